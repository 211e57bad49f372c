#include "topology/launcher.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>

static bool says(const char *name, int value)
{
    const char *text = getenv(name);
    char *end;
    return text && *text && strtol(text, &end, 10) == value && *end == '\0';
}

static bool has(const char *name, int *value)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return false;
    const long found = strtol(text, &end, 10);
    *value = (int)found;
    return *end == '\0' && found >= 0 && found == *value;
}

static int number(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

static const char *text_of(const char *name)
{
    const char *text = getenv(name);
    return text ? text : "";
}

/* Variables of Open MPI and PRRTE, of hydra, of MVAPICH. */
static const struct {
    const char *rank, *size, *local;
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

/* Of the step's node of that number, by Slurm's list of tasks on each: "4(x2),3" are 4, 4, 3. 0: it
 * is not in there. */
static int tasks_of(const char *list, int node)
{
    while (*list) {
        char *end;
        const long tasks = strtol(list, &end, 10);
        long times = 1;
        if (end == list || tasks < 0)
            return 0;
        if (strncmp(end, "(x", 2) == 0) {
            times = strtol(end + 2, &end, 10);
            if (times < 1 || *end++ != ')')
                return 0;
        }
        if (node < times)
            return (int)tasks;
        node -= (int)times;
        list = *end == ',' ? end + 1 : "";
    }
    return 0;
}

static int local_ranks(int rank, int size)
{
    for (int i = 0; i < LAUNCHERS; ++i)
        if (says(launchers[i].rank, rank) && says(launchers[i].size, size) &&
            number(launchers[i].local) > 0)
            return number(launchers[i].local);
    int node;
    if (!says("SLURM_PROCID", rank) || !says("SLURM_STEP_NUM_TASKS", size))
        return 0;
    if (says("SLURM_STEP_NUM_NODES", 1))
        return size;
    return has("SLURM_NODEID", &node) ? tasks_of(text_of("SLURM_STEP_TASKS_PER_NODE"), node) : 0;
}

/* Start time of that process, to distinguish it from a later one with the same pid; 0: not visible.
 */
static unsigned long long began(pid_t process)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    if (!tempi_text_read(path, text, sizeof text))
        return 0;
    /* The second field is the program's name, which may contain spaces. */
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; ++field)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

/* The process that created PMI's socket pair: hydra's proxy or Slurm's step daemon, one per node
 * and job. */
static pid_t pmi_server(void)
{
    struct ucred who = {.pid = 0};
    socklen_t size = sizeof who;
    const char *text = getenv("PMI_FD");
    if (!text || getsockopt(atoi(text), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
        return 0;
    return who.pid; /* 0: it is outside this container */
}

static bool name_by_pmix(int rank, char *out, size_t size)
{
    static const char *const servers[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4",
                                          "PMIX_SERVER_URI3", "PMIX_SERVER_URI21",
                                          "PMIX_SERVER_URI2"};
    const char *world = getenv("PMIX_NAMESPACE");
    if (!world || !says("PMIX_RANK", rank))
        return false;
    for (size_t i = 0; i < sizeof servers / sizeof *servers; ++i)
        if (*text_of(servers[i]))
            return snprintf(out, size, "pmix %s %s", world, text_of(servers[i])) < (int)size;
    return false;
}

/* Processes from MPI_Comm_spawn share the proxy of their parents, so it does not identify one
 * world. */
static bool name_by_pmi(int rank, int size, char *out, size_t room)
{
    if (getenv("PMI_SPAWNED") || !says("PMI_RANK", rank) || !says("PMI_SIZE", size))
        return false;
    const pid_t server = pmi_server();
    if (server <= 0)
        return false;
    return snprintf(out, room, "pmi %ld %llu %s.%s", (long)server, began(server),
                    text_of("SLURM_JOB_ID"), text_of("SLURM_STEP_ID")) < (int)room;
}

bool tempi_launcher_guess(int *rank, int *size)
{
    for (int i = 0; i < LAUNCHERS; ++i)
        if (has(launchers[i].rank, rank) && has(launchers[i].size, size))
            return true;
    if (!has("SLURM_STEP_NUM_TASKS", size))
        *size = 0;
    return has("PMIX_RANK", rank);
}

void tempi_launcher_ask(int rank, int size, tempi_job *out)
{
    struct utsname host;
    char name[sizeof out->name - sizeof host.nodename];
    *out = (tempi_job){.local = local_ranks(rank, size)};
    if (uname(&host) != 0)
        return;
    if (name_by_pmi(rank, size, name, sizeof name) || name_by_pmix(rank, name, sizeof name))
        snprintf(out->name, sizeof out->name, "%.64s %s", host.nodename, name);
}
