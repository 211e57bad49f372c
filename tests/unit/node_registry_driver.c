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
 *     agree FOLDER OUTSIDER
 *
 * Three members register, settle and ask whether they all agree, in each order there is; the member
 * OUTSIDER joins in no agreement (-1: all do). Prints "N orders, N yes, N of one mind".
 *
 *     child FOLDER JOB LOCAL RANK
 *
 * A rank joins twice, and a child process of it between. Prints their indices.
 *
 *     launcher RANK SIZE
 *
 * Prints "LOCAL NAME".
 */
#include <pthread.h>
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

/* ---- agreement ------------------------------------------------------------------------------- */

enum { TRIO = 3, STEPS = 3 };

typedef struct member {
    int rank;
    tempi_node_registry *registry;
    pthread_t asker;
    int answer;
} member;

/* As csrc/shim/comm/peer_agree.c does. */
static bool ask(const member *own)
{
    int indices[TRIO], last = 0;
    for (int i = 0; i < TRIO; ++i) {
        indices[i] = tempi_node_registry_find(own->registry, i);
        if (indices[i] < 0)
            return false;
        last = indices[i] > last ? indices[i] : last;
    }
    if (!tempi_node_registry_knows(own->registry, tempi_node_registry_own(own->registry), last))
        return false;
    for (int i = 0; i < TRIO; ++i)
        if (!tempi_node_registry_knows(own->registry, indices[i], last))
            return false;
    return true;
}

/* A thread: it may wait for a member that has yet to settle. */
static void *asks(void *argument)
{
    member *own = argument;
    own->answer = ask(own);
    return NULL;
}

static void step(member *own, int which, const char *folder, const char *job, bool joins)
{
    if (which == 0)
        own->registry = tempi_node_registry_join(folder, job, own->rank, TRIO);
    else if (which == 1)
        tempi_node_registry_settle(own->registry, joins);
    else
        pthread_create(&own->asker, NULL, asks, own);
}

/* Adds to counts: orders, those in which the answer is yes, those in which it is the same for all.
 */
static void run_order(const int *order, const char *folder, int outsider, int *counts)
{
    member members[TRIO] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    int steps[TRIO] = {0}, yes = 0;
    char job[32];
    snprintf(job, sizeof job, "order %d", counts[0]);
    for (int i = 0; i < TRIO * STEPS; ++i) {
        member *own = &members[order[i]];
        step(own, steps[order[i]]++, folder, job, own->rank != outsider);
    }
    for (int i = 0; i < TRIO; ++i)
        pthread_join(members[i].asker, NULL);
    for (int i = 0; i < TRIO; ++i) {
        yes += members[i].answer;
        tempi_node_registry_leave(members[i].registry);
    }
    ++counts[0];
    counts[1] += yes == TRIO;
    counts[2] += yes == TRIO || yes == 0;
}

static void all_orders(int *order, int n, int *left, const char *folder, int outsider, int *counts)
{
    if (n == TRIO * STEPS)
        run_order(order, folder, outsider, counts);
    for (int i = 0; i < TRIO; ++i)
        if (left[i] > 0) {
            --left[i];
            order[n] = i;
            all_orders(order, n + 1, left, folder, outsider, counts);
            ++left[i];
        }
}

static int agree(char **argv)
{
    int order[TRIO * STEPS], left[TRIO] = {STEPS, STEPS, STEPS}, counts[3] = {0};
    all_orders(order, 0, left, argv[2], atoi(argv[3]), counts);
    printf("%d orders, %d yes, %d of one mind\n", counts[0], counts[1], counts[2]);
    return 0;
}

static int child(char **argv)
{
    const char *folder = argv[2], *job = argv[3];
    const int local = atoi(argv[4]), rank = atoi(argv[5]);
    tempi_node_registry *own = tempi_node_registry_join(folder, job, rank, local), *again;
    if (fork() == 0) {
        tempi_node_registry *other = tempi_node_registry_join(folder, job, rank, local);
        printf("child %d of %u\n", tempi_node_registry_own(other),
               tempi_node_registry_count(other));
        tempi_node_registry_settle(other, true);
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    again = tempi_node_registry_join(folder, job, rank, local);
    tempi_node_registry_settle(own, false);
    tempi_node_registry_settle(again, true); /* the first one counts */
    printf("own %d, again %d of %u, knows itself: %d\n", tempi_node_registry_own(own),
           tempi_node_registry_own(again), tempi_node_registry_count(again),
           tempi_node_registry_knows(own, 0, 0));
    tempi_node_registry_leave(own);
    tempi_node_registry_leave(again);
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
    if (argc == 4 && strcmp(argv[1], "agree") == 0)
        return agree(argv);
    if (argc == 6 && strcmp(argv[1], "child") == 0)
        return child(argv);
    if (argc == 4 && strcmp(argv[1], "launcher") == 0)
        return launcher(argv);
    return 2;
}
