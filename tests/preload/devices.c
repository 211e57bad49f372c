/* Device memory at life's edges, one case a run:
 *
 *     devices fork | gone | late | threads | contexts
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "device.h"

static void *on_device(const matrix *m)
{
    void *there = device_new(sizeof *m);
    device_write(there, m, sizeof *m);
    return there;
}

static void *column_of(void *there)
{
    return (char *)there + sizeof(double);
}

/* Both ways between the pair, in device memory. */
static int swap(MPI_Comm comm, int peer, int tag, int mine, int theirs)
{
    matrix m;
    MPI_Request requests[2];
    MPI_Datatype type = column_type(ROWS);
    fill(&m, mine, tag);
    void *out = on_device(&m);
    clear(&m);
    void *in = on_device(&m);
    MPI_Irecv(column_of(in), 1, type, peer, tag, comm, &requests[0]);
    MPI_Isend(column_of(out), 1, type, peer, tag, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    const int there = device_read(&m, in, sizeof m);
    MPI_Type_free(&type);
    device_delete(out);
    device_delete(in);
    return there && arrived(&m, theirs, tag, ROWS);
}

/* A child is forked while messages of device memory are under way. */
static void forking(void)
{
    matrix m;
    MPI_Request requests[2];
    int status = 1;
    device_begin();
    MPI_Datatype type = column_type(ROWS);
    fill(&m, check_rank, 1);
    void *out = on_device(&m);
    clear(&m);
    void *in = on_device(&m);
    MPI_Irecv(column_of(in), 1, type, check_peer, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(column_of(out), 1, type, check_peer, 1, MPI_COMM_WORLD, &requests[1]);
    const pid_t child = fork();
    if (child == 0) {
        int initialized = 0, size = 0;
        MPI_Initialized(&initialized); /* about all that a child may call */
        MPI_Type_size(type, &size);
        _exit(initialized && size == 8 * ROWS ? 7 : 8);
    }
    waitpid(child, &status, 0);
    verdict("child", child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    verdict("parent", device_read(&m, in, sizeof m) && arrived(&m, check_peer, 1, ROWS));
    verdict("later", swap(MPI_COMM_WORLD, check_peer, 2, check_rank, check_peer));
    MPI_Type_free(&type);
    device_delete(out);
    device_delete(in);
}

/* CUDA ends before MPI does, as with a run-time whose destructors come first. */
static void gone(void)
{
    device_begin();
    verdict("before", swap(MPI_COMM_WORLD, check_peer, 1, check_rank, check_peer));
    ((void (*)(void))cu("tempi_emulator_deinit"))();
    matrix out, in;
    MPI_Datatype type = column_type(ROWS);
    fill(&out, check_rank, 2);
    clear(&in);
    MPI_Sendrecv(column(&out), 1, type, check_peer, 2, column(&in), 1, type, check_peer, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    verdict("host memory afterwards", arrived(&in, check_peer, 2, ROWS));
    MPI_Type_free(&type);
}

/* CUDA comes after MPI and its first messages. */
static void late(void)
{
    matrix out, in;
    MPI_Datatype type = column_type(ROWS);
    fill(&out, check_rank, 2);
    clear(&in);
    MPI_Sendrecv(column(&out), 1, type, check_peer, 2, column(&in), 1, type, check_peer, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    verdict("before CUDA", arrived(&in, check_peer, 2, ROWS));
    MPI_Type_free(&type);
    device_begin();
    verdict("with CUDA", swap(MPI_COMM_WORLD, check_peer, 1, check_rank, check_peer));
}

static void *current(void)
{
    void *context = NULL;
    CU_MUST(cuCtxGetCurrent, &context);
    return context;
}

enum { THREADS = 4, ROUNDS = 40 };

typedef struct worker {
    pthread_t thread;
    MPI_Comm comm;
    void *context;
    int number, good;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    CU_MUST(cuCtxSetCurrent, w->context);
    w->good = 1;
    for (int i = 0; i < ROUNDS; i++)
        w->good &= swap(w->comm, check_peer, i, 100 * w->number + check_rank, 100 * w->number + check_peer);
    w->good &= current() == w->context;
    return NULL;
}

/* Each thread with a device and a communicator of its own. */
static void threads(void)
{
    worker workers[THREADS];
    void *contexts[2];
    device_begin();
    contexts[0] = device_context(0);
    contexts[1] = device_context(1);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.number = i, .context = contexts[i % 2]};
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[i].comm);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) {
        verdict("thread", workers[i].good);
        MPI_Comm_free(&workers[i].comm);
    }
}

/* Whatever context is current, also none: it stays, and the buffer's own is used. */
static void contexts(void)
{
    void *of[3];
    device_begin();
    of[0] = device_context(0);
    of[1] = device_context(1);
    of[2] = NULL;
    for (int buffer = 0; buffer < 2; buffer++) {
        for (int now = 0; now < 3; now++) {
            matrix m;
            MPI_Datatype type = column_type(ROWS);
            CU_MUST(cuCtxSetCurrent, of[buffer]);
            fill(&m, check_rank, now);
            void *out = on_device(&m);
            clear(&m);
            void *in = on_device(&m);
            CU_MUST(cuCtxSetCurrent, of[now]);
            MPI_Sendrecv(column_of(out), 1, type, check_peer, 3, column_of(in), 1, type, check_peer, 3,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            const int kept = current() == of[now];
            CU_MUST(cuCtxSetCurrent, of[buffer]);
            verdict("context", kept && device_read(&m, in, sizeof m) && arrived(&m, check_peer, now, ROWS));
            MPI_Type_free(&type);
            device_delete(out);
            device_delete(in);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"fork", forking}, {"gone", gone}, {"late", late}, {"threads", threads}, {"contexts", contexts}};
    int level;
    device_load();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    check_begin();
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
        if (argc > 1 && strcmp(cases[i].name, argv[1]) == 0)
            cases[i].run();
    MPI_Finalize();
    return check_bad != 0;
}
