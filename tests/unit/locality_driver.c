/* locality_driver.c: the locality of a rank, with a made-up clock and a made-up peer; for the
 * sanitizers and for test_peers_native.py.
 *
 *     locality_driver WORD...   h      (first) this rank is the higher one of the two
 *                               rN     publish the peer's result: 1 other LLC, 0 same
 *                               xN     the same, about the rank 30 beyond this one
 *                               w      the peer writes its line
 *                               lN     probe the line, which arrives in N nanoseconds
 *                               bN     messages from here on have N bytes; before, 0 bytes
 *                               aN     send N messages; the peer writes its line before each
 *                               ?      print "same" or "other" (LLC)
 *                               !      print the result that the lower rank has published
 *                               =      print what this rank has published
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

static void print_entry(uint32_t entry)
{
    printf("%s ", entry == 0 ? "none" : entry & OTHER_BIT ? "other" : "same");
}

int main(int argc, char **argv)
{
    static _Alignas(4096) char page[4096]; /* as it is mapped */
    line *lines = (line *)(void *)page;
    if (tempi_locality_open(lines, -1, 2) || tempi_locality_open(lines, 2, 2))
        return 1;
    const int me = argc > 1 && argv[1][0] == 'h', peer = 1 - me;
    tempi_locality *own = tempi_locality_open(lines, me, 2);
    _Atomic uint32_t *theirs = &lines[peer].results[me];
    const int before = readings;
    int bytes = 0, written = 0;
    unsigned published = 0;
    for (int i = 1 + me; i < argc; i++) {
        const int n = atoi(argv[i] + 1);
        switch (argv[i][0]) {
        case 'r':
            published += 2;
            *theirs = (unsigned)(me + 1) << NAMED_AT | (published & 15) | (unsigned)n;
            break;
        case 'x': *theirs = (unsigned)(me + 31) << NAMED_AT | (unsigned)n; break;
        case 'w': lines[peer].beats++; break;
        case 'l':
            step = 10 + n;
            tempi_locality_probe(own, peer);
            written++;
            break;
        case 'a':
            for (int k = 0; k < n; k++) {
                lines[peer].beats++;
                tempi_locality_is_other_llc(own, peer, bytes);
                written += bytes < TEMPI_LLC_EVICTING;
            }
            break;
        case 'b': bytes = n; break;
        case '!': print_entry(lines[0].results[1]); break;
        case '=': print_entry(lines[me].results[peer]); break;
        default: printf("%s ", own->peers[peer].other_llc ? "other" : "same");
        }
    }
    tempi_locality_probe(own, -1);
    tempi_locality_probe(own, 2);
    const int probes = (readings - before) / 3;
    if (tempi_locality_is_other_llc(own, 2, 0) ||
        lines[me].beats != (unsigned)written) /* the own line, once each time */
        return 1;
    if (counted[TEMPI_STAT_locality_probes] != probes)
        return 1;
    printf("%d %d\n", probes, counted[TEMPI_STAT_locality_changes]);
    tempi_locality_close(own);
    return 0;
}
