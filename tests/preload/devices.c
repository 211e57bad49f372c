/* Device memory at the end of contexts, threads and processes, one case per run:
 *
 *     devices fork | gone | late | threads | contexts | own | destroyed | reset | elsewhere |
 * opened | early | selves
 */
#include "column_check.h"
#include "counted.h"
#include "device_memory.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* CUDA ends before MPI does, as with a runtime whose destructors run first. */
static void gone(void)
{
    device_begin();
    verdict("before", swap(MPI_COMM_WORLD, check_peer, 1, check_rank, check_peer));
    ((void (*)(void))cu("tempi_emulator_deinit"))();
    matrix out, in;
    MPI_Datatype type = column_type(ROWS);
    fill(&out, check_rank, 2);
    clear(&in);
    MPI_Sendrecv(column(&out), 1, type, check_peer, 2, column(&in), 1, type, check_peer, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
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
    MPI_Sendrecv(column(&out), 1, type, check_peer, 2, column(&in), 1, type, check_peer, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
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
        w->good &= swap(w->comm, check_peer, i, 100 * w->number + check_rank,
                        100 * w->number + check_peer);
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
            MPI_Sendrecv(column_of(out), 1, type, check_peer, 3, column_of(in), 1, type, check_peer,
                         3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            const int kept = current() == of[now];
            CU_MUST(cuCtxSetCurrent, of[buffer]);
            verdict("context",
                    kept && device_read(&m, in, sizeof m) && arrived(&m, check_peer, now, ROWS));
            MPI_Type_free(&type);
            device_delete(out);
            device_delete(in);
        }
    }
}

static void *own_context(int ordinal)
{
    void *made = NULL;
    CU_MUST(cuCtxCreate_v2, &made, 0u, ordinal);
    return made;
}

static void *pool_new(size_t n)
{
    uint64_t made = 0;
    CU_MUST(cuMemAllocAsync, &made, n, LEGACY);
    return (void *)(uintptr_t)made;
}

static void *managed_new(size_t n)
{
    uint64_t made = 0;
    CU_MUST(cuMemAllocManaged, &made, n, 1u);
    return (void *)(uintptr_t)made;
}

/* The program's own work is pending in its context's default stream when MPI is called, and so are
 * the reads of the result: no call waits for it. */
static int fill_and_swap(void *(*make)(size_t), int value, void *now)
{
    matrix m;
    void *context = current(), *out = make(sizeof m), *in = make(sizeof m);
    MPI_Datatype type = column_type(ROWS);
    unsigned char wanted[sizeof(double)], kept[sizeof(double)];
    memset(wanted, value + check_peer, sizeof wanted);
    memset(kept, 7, sizeof kept);
    CU_MUST(cuMemsetD8Async, (uint64_t)(uintptr_t)in, (unsigned char)7, sizeof m, LEGACY);
    CU_MUST(cuMemsetD8Async, (uint64_t)(uintptr_t)out, (unsigned char)(value + check_rank),
            sizeof m, LEGACY);
    CU_MUST(cuCtxSetCurrent, now);
    MPI_Request requests[2];
    MPI_Irecv(column_of(in), 1, type, check_peer, 4, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(column_of(out), 1, type, check_peer, 4, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    int good = current() == now;
    CU_MUST(cuCtxSetCurrent, context);
    good &= device_read(&m, in, sizeof m);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDTH; j++)
            good &= memcmp(&m.cell[i][j], j == 1 ? wanted : kept, sizeof(double)) == 0;
    MPI_Type_free(&type);
    device_delete(out);
    device_delete(in);
    return good;
}

/* Memory of contexts that the program made, two of them on one device, while any or none is
 * current. */
static void own(void)
{
    void *(*const makers[])(size_t) = {device_new, managed_new};
    void *of[4] = {NULL};
    device_begin();
    for (int i = 1; i < 4; i++) {
        of[i] = own_context(i / 3);
        CU_MUST(cuCtxPopCurrent_v2, NULL);
    }
    for (int buffer = 1; buffer < 4; buffer++) {
        int good = 1;
        for (int now = 0; now < 4; now++)
            for (int kind = 0; kind < 2; kind++) {
                CU_MUST(cuCtxSetCurrent, of[buffer]);
                good &= fill_and_swap(makers[kind], 10 * buffer + 3 * now, of[now]);
            }
        /* A pool is the device's: what the program does with its memory is in the current context.
         */
        CU_MUST(cuCtxSetCurrent, of[buffer]);
        good &= fill_and_swap(pool_new, 50 + buffer, of[buffer]);
        verdict("own context", good);
    }
    for (int i = 1; i < 4; i++)
        CU_MUST(cuCtxDestroy_v2, of[i]);
}

/* One after the other, with requests that are freed when the context is gone: the handles are given
 * again, now for this device and now for that. */
static int one_of_many(int i, void **before)
{
    MPI_Request requests[2];
    matrix m;
    void *context = own_context(i % 2);
    int good = !*before || *before == context;
    MPI_Datatype type = column_type(ROWS);
    fill(&m, check_rank, i);
    void *out = on_device(&m);
    clear(&m);
    void *in = on_device(&m);
    MPI_Recv_init(column_of(in), 1, type, check_peer, i, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(column_of(out), 1, type, check_peer, i, MPI_COMM_WORLD, &requests[1]);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    good &= device_read(&m, in, sizeof m) && arrived(&m, check_peer, i, ROWS);
    CU_MUST(cuCtxDestroy_v2, context);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Type_free(&type);
    *before = context;
    return good;
}

/* A receive whose memory is freed while it is posted: an error, and later messages are right. */
static void receive_into_nothing(void (*end)(void))
{
    matrix m;
    MPI_Request request;
    MPI_Datatype type = column_type(ROWS);
    clear(&m);
    void *in = on_device(&m);
    MPI_Irecv(column_of(in), 1, type, check_peer, 1000, MPI_COMM_WORLD, &request);
    end();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&m, ROWS, MPI_DOUBLE, check_peer, 1000, MPI_COMM_WORLD);
    verdict("an error", MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    MPI_Type_free(&type);
}

static void destroy(void)
{
    CU_MUST(cuCtxDestroy_v2, current());
}

static void destroyed(void)
{
    void *before = NULL;
    device_begin();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int good = 1;
    for (int i = 0; i < 40; i++)
        good &= one_of_many(i, &before);
    verdict("one after the other", good);
    (void)own_context(0);
    receive_into_nothing(destroy);
    verdict("afterwards", swap(MPI_COMM_WORLD, check_peer, 2, check_rank, check_peer));
}

/* As cudaDeviceReset and OpenACC's shutdown do; the next use of the device starts it anew. */
static void reset_device(void)
{
    CU_MUST(cuDevicePrimaryCtxReset_v2, 0);
    CU_MUST(cuCtxSetCurrent, device_context(0));
}

/* The program resets its device between messages, under a receive, and before MPI_Finalize. */
static void reset(void)
{
    device_begin();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    verdict("before", swap(MPI_COMM_WORLD, check_peer, 1, check_rank, check_peer));
    for (int i = 0; i < 3; i++) {
        reset_device();
        verdict("after a reset", swap(MPI_COMM_WORLD, check_peer, 2, check_rank, check_peer));
    }
    receive_into_nothing(reset_device);
    verdict("afterwards", swap(MPI_COMM_WORLD, check_peer, 2, check_rank, check_peer));
    CU_MUST(cuDevicePrimaryCtxReset_v2, 0);
}

/* Memory that another thread, with a context of its own, has filled and keeps. */
typedef struct place {
    void *(*begin)(int);
    void *out, *in;
} place;

static void *green_context(int ordinal)
{
    void *green = NULL, *made = NULL;
    CU_MUST(cuGreenCtxCreate, &green, NULL, ordinal, 1u);
    CU_MUST(cuCtxFromGreenCtx, &made, green);
    CU_MUST(cuCtxSetCurrent, made);
    return made;
}

static void *current_primary(int ordinal)
{
    CU_MUST(cuCtxSetCurrent, device_context(ordinal));
    return current();
}

static void *furnish(void *argument)
{
    place *p = argument;
    matrix m;
    void *context = p->begin(0);
    fill(&m, check_rank, 5);
    p->out = on_device(&m);
    clear(&m);
    p->in = on_device(&m);
    return context;
}

static void *send_and_receive(void *argument)
{
    place *p = argument;
    MPI_Request requests[2];
    MPI_Datatype type = column_type(ROWS);
    MPI_Irecv(column_of(p->in), 1, type, check_peer, 5, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(column_of(p->out), 1, type, check_peer, 5, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Type_free(&type);
    return NULL;
}

static void *in_thread(void *(*run)(void *), place *p)
{
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, run, p);
    pthread_join(thread, &result);
    return result;
}

/* Sent by a thread that never had a context, and by one whose context is another. */
static void elsewhere(void)
{
    void *(*const contexts[])(int) = {current_primary, own_context, green_context};
    device_begin();
    for (int i = 0; i < 3; i++)
        for (int bare = 0; bare < 2; bare++) {
            place p = {.begin = contexts[i]};
            matrix m;
            void *context = in_thread(furnish, &p);
            if (bare)
                (void)in_thread(send_and_receive, &p);
            else
                (void)send_and_receive(&p);
            void *before = current();
            CU_MUST(cuCtxSetCurrent, context);
            verdict("elsewhere",
                    device_read(&m, p.in, sizeof m) && arrived(&m, check_peer, 5, ROWS));
            CU_MUST(cuCtxSetCurrent, before);
        }
}

/* Each rank sends from, and receives into, memory of the other that it opened. */
static void opened(void)
{
    typedef struct handle {
        char bytes[64];
    } handle;
    matrix m;
    handle own[2], other[2];
    uint64_t there[2];
    device_begin();
    fill(&m, check_rank, 6);
    void *out = on_device(&m);
    clear(&m);
    void *in = on_device(&m);
    CU_MUST(cuIpcGetMemHandle, &own[0], (uint64_t)(uintptr_t)out);
    CU_MUST(cuIpcGetMemHandle, &own[1], (uint64_t)(uintptr_t)in);
    MPI_Sendrecv(own, sizeof own, MPI_BYTE, check_peer, 1, other, sizeof other, MPI_BYTE,
                 check_peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2; i++)
        CU_MUST(cuIpcOpenMemHandle_v2, &there[i], other[i], 1u);
    place p = {.out = (void *)(uintptr_t)there[0], .in = (void *)(uintptr_t)there[1]};
    (void)send_and_receive(
        &p); /* the peer's bytes go to the peer, which puts them into this rank's memory */
    MPI_Barrier(MPI_COMM_WORLD);
    verdict("opened", device_read(&m, in, sizeof m) && arrived(&m, check_peer, 6, ROWS));
    for (int i = 0; i < 2; i++)
        CU_MUST(cuIpcCloseMemHandle, there[i]);
}

static uint64_t loads(void)
{
    uint64_t (*const count)(const char *) = (uint64_t (*)(const char *))cu("tempi_emulator_count");
    return count("cuModuleLoadData") + count("cuModuleGetFunction") + count("cuFuncLoad");
}

/* A context is current before MPI_Init, which loads all kernels: a message may be what a running
 * kernel waits for. */
static void early(void)
{
    const uint64_t before = loads();
    verdict("loaded", before > 0);
    verdict("sent", swap(MPI_COMM_WORLD, check_peer, 1, check_rank, check_peer));
    verdict("no more", loads() == before);
}

enum { SELVES = 3, COMMS = 60, MESSAGES = 2 };

typedef struct self {
    pthread_t thread;
    int number;
} self;

static pthread_barrier_t together;
static MPI_Comm shared;
static void *context_of_all;
static int seen[COMMS * SELVES * MESSAGES];
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

/* The message is a whole one: counted by its number. */
static void count_one(const matrix *m, int comm)
{
    const int id = (int)((m->cell[0][1] - value_of(0, 0, 0)) / 1000.0);
    const int there = id >= 0 && id < COMMS * SELVES * MESSAGES &&
                      id / (SELVES * MESSAGES) == comm && arrived(m, 0, id, ROWS);
    pthread_mutex_lock(&counting);
    if (there)
        seen[id]++;
    pthread_mutex_unlock(&counting);
}

static void to_itself(int comm, int number, MPI_Datatype type)
{
    void *out[MESSAGES], *in[MESSAGES];
    MPI_Request requests[2 * MESSAGES];
    matrix m, host[MESSAGES];
    const int from_host = number == 1; /* its messages are not moved */
    for (int i = 0; i < MESSAGES; i++) {
        fill(&host[i], 0, (comm * SELVES + number) * MESSAGES + i);
        out[i] = from_host ? &host[i] : on_device(&host[i]);
        clear(&m);
        in[i] = on_device(&m);
    }
    pthread_barrier_wait(&together);
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Irecv(column_of(in[i]), 1, type, 0, 7, shared, &requests[2 * i]);
        MPI_Isend(column_of(out[i]), 1, type, 0, 7, shared, &requests[2 * i + 1]);
    }
    MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MESSAGES; i++) {
        device_read(&m, in[i], sizeof m);
        count_one(&m, comm);
        device_delete(in[i]);
        if (!from_host)
            device_delete(out[i]);
    }
}

static void *be_self(void *argument)
{
    const self *s = argument;
    CU_MUST(cuCtxSetCurrent, context_of_all);
    MPI_Datatype type = column_type(ROWS);
    for (int comm = 0; comm < COMMS; comm++) {
        if (s->number == 0)
            MPI_Comm_dup(MPI_COMM_SELF, &shared);
        pthread_barrier_wait(&together);
        to_itself(comm, s->number, type);
        pthread_barrier_wait(&together);
        if (s->number == 0)
            MPI_Comm_free(&shared);
    }
    MPI_Type_free(&type);
    return NULL;
}

/* Threads with messages to the process itself, of one tag in one communicator: any of them may get
 * any, whole and once. */
static void selves(void)
{
    self all[SELVES];
    int good = 1;
    device_begin();
    context_of_all = current();
    pthread_barrier_init(&together, NULL, SELVES);
    for (int i = 0; i < SELVES; i++) {
        all[i].number = i;
        pthread_create(&all[i].thread, NULL, be_self, &all[i]);
    }
    for (int i = 0; i < SELVES; i++)
        pthread_join(all[i].thread, NULL);
    for (int i = 0; i < COMMS * SELVES * MESSAGES; i++)
        good &= seen[i] == 1;
    verdict("selves", good);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"fork", forking},        {"gone", gone},         {"late", late},
                 {"threads", threads},     {"contexts", contexts}, {"own", own},
                 {"destroyed", destroyed}, {"reset", reset},       {"elsewhere", elsewhere},
                 {"opened", opened},       {"early", early},       {"selves", selves}};
    int level;
    device_load();
    if (argc > 1 && strcmp(argv[1], "early") == 0)
        device_begin();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    check_begin();
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
        if (argc > 1 && strcmp(cases[i].name, argv[1]) == 0)
            cases[i].run();
    MPI_Finalize();
    const int resets = argc > 1 && strcmp(argv[1], "reset") == 0;
    return check_bad != 0 || (resets && counted("cuda_failures") > 0);
}
