/* locality_driver.c: the locality of a rank, with a made-up clock and a made-up peer; for the
 * sanitizers and for test_peers_native.py.
 *
 *     locality_driver WORD...   w      the peer writes its line
 *                               lN     probe the line, which arrives in N nanoseconds
 *                               bN     messages from here on have N bytes; before, 0 bytes
 *                               aN     send N messages; the peer writes its line before each
 *                               ?      print "same" or "other" (LLC)
 *
 * At the end it prints the number of probes, and of locality class changes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long reading, step = 10;
static int readings;

static int made_up(clockid_t clock, struct timespec *out)
{
    (void)clock;
    readings++;
    reading += step;
    *out = (struct timespec){.tv_nsec = reading};
    return 0;
}

/* Own counters, instead of base/stats.h. */
#define TEMPI_BASE_STATS_H
enum { TEMPI_STAT_locality_probes, TEMPI_STAT_locality_changes };
static int counted[2];

static void tempi_stat_add(int which, int amount)
{
    counted[which] += amount;
}

#define clock_gettime made_up
#include "topology/locality.c"

int main(int argc, char **argv)
{
    static line lines[2];
    if (tempi_locality_open(lines, -1, 2) || tempi_locality_open(lines, 2, 2))
        return 1;
    tempi_locality *own = tempi_locality_open(lines, 0, 2);
    const int before = readings;
    int bytes = 0;
    for (int i = 1; i < argc; i++) {
        const int n = atoi(argv[i] + 1);
        switch (argv[i][0]) {
        case 'w': lines[1].beats++; break;
        case 'l':
            step = 10 + n;
            tempi_locality_probe(own, 1);
            break;
        case 'a':
            for (int k = 0; k < n; k++) {
                lines[1].beats++;
                tempi_locality_is_other_llc(own, 1, bytes);
            }
            break;
        case 'b': bytes = n; break;
        default: printf("%s ", own->peers[1].other_llc ? "other" : "same");
        }
    }
    tempi_locality_probe(own, -1);
    tempi_locality_probe(own, 2);
    if (tempi_locality_is_other_llc(own, 2, 0) ||
        lines[0].beats != (unsigned)(readings - before) / 2)
        return 1;
    if (counted[TEMPI_STAT_locality_probes] != (readings - before) / 2)
        return 1;
    printf("%d %d\n", (readings - before) / 2, counted[TEMPI_STAT_locality_changes]);
    tempi_locality_close(own);
    return 0;
}
