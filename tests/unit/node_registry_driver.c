/* node_registry_driver.c: the node registry and the launcher's variables, for the sanitizers and
 * for test_peers_native.py.
 *
 *     registry FOLDER JOB LOCAL RANK...
 *
 * Each rank joins the registry in a separate process, all at once. Prints "N ranks: R R R, file" or
 * "no registry".
 *
 *     lines FOLDER JOB LOCAL RANK...
 *
 * Each rank joins and writes into its line. Prints the sum of all lines, as the first rank reads
 * them, or "no lines".
 *
 *     launcher RANK SIZE
 *
 * Prints "LOCAL NAME".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/launcher.h"
#include "topology/locality.h"
#include "topology/node_registry.h"

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void show(const tempi_node_registry *registry, int file)
{
    int ranks[4096];
    const unsigned n = tempi_node_registry_count(registry);
    for (unsigned i = 0; i < n; ++i)
        ranks[i] = tempi_node_registry_rank(registry, i);
    qsort(ranks, n, sizeof *ranks, compare);
    printf("%u ranks:", n);
    for (unsigned i = 0; i < n; ++i)
        printf(" %d", ranks[i]);
    printf("%s\n", file ? ", file" : "");
}

/* The first rank joins after the others, and sees them all. */
static int registry(int argc, char **argv)
{
    const char *folder = argv[2], *job = argv[3];
    const int local = atoi(argv[4]);
    char left[4096];
    for (int i = 6; i < argc; ++i)
        if (fork() == 0) {
            tempi_node_registry *own = tempi_node_registry_join(folder, job, atoi(argv[i]), local);
            free(own); /* like a process that exits without leaving */
            _exit(own ? 0 : 1);
        }
    while (wait(NULL) > 0)
        ;
    tempi_node_registry *own = tempi_node_registry_join(folder, job, atoi(argv[5]), local);
    if (!own) {
        printf("no registry\n");
        return 0;
    }
    snprintf(left, sizeof left, "find '%s' -name 'tempi-*' | grep -q .", folder);
    const int file = system(left) == 0;
    show(own, file);
    tempi_node_registry_leave(own);
    return 0;
}

static void write_line(const tempi_node_registry *registry, int rank)
{
    char *lines = tempi_node_registry_lines(registry);
    if (lines)
        memcpy(lines + (size_t)tempi_node_registry_own(registry) * TEMPI_LOCALITY_LINE, &rank,
               sizeof rank);
}

static int lines(int argc, char **argv)
{
    const char *folder = argv[2], *job = argv[3];
    const int local = atoi(argv[4]);
    tempi_node_registry *own = tempi_node_registry_join(folder, job, atoi(argv[5]), local);
    for (int i = 6; i < argc; ++i)
        if (fork() == 0) {
            tempi_node_registry *other = tempi_node_registry_join(folder, job, atoi(argv[i]),
                                                                  local);
            write_line(other, atoi(argv[i]));
            free(other);
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    write_line(own, atoi(argv[5]));
    const char *found = tempi_node_registry_lines(own);
    int sum = 0;
    for (int i = 0; found && i < local; ++i) {
        int rank;
        memcpy(&rank, found + (size_t)i * TEMPI_LOCALITY_LINE, sizeof rank);
        sum += rank;
    }
    if (found)
        printf("%d\n", sum);
    else
        printf("no lines\n");
    tempi_node_registry_leave(own);
    return 0;
}

static int launcher(char **argv)
{
    tempi_job job;
    tempi_launcher_ask(atoi(argv[2]), atoi(argv[3]), &job);
    printf("%d %s\n", job.local, job.name);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 6 && strcmp(argv[1], "registry") == 0)
        return registry(argc, argv);
    if (argc >= 6 && strcmp(argv[1], "lines") == 0)
        return lines(argc, argv);
    if (argc == 4 && strcmp(argv[1], "launcher") == 0)
        return launcher(argv);
    return 2;
}
