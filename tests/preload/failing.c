/* Messages of device memory to oneself while a call of the CUDA driver fails.
 *
 *     failing [FUNCTION K DONE [ERROR]]
 *
 * The K-th call of FUNCTION after the first DONE steps fails. Each step prints "right NAME", "error
 * NAME" when an MPI call of it said so, "gone NAME" when the device itself no longer answers, or
 * "WRONG NAME". */
#include "device_memory.h"
#include <mpi.h>
#include <string.h>

enum { MOST = 1 << 20, SENT = 0x40, CLEAN = 0x11 };

typedef struct kind {
    const char *name;
    MPI_Datatype type;
    long span;  /* bytes of memory */
    int packed; /* bytes */
} kind;

static MPI_Comm comm;
static char *out, *into, *between; /* on the device */
static char host[MOST], expected[MOST], got[MOST], plain[MOST];

/* Whether MPI said that it failed. */
static int bad(int code)
{
    return code != MPI_SUCCESS;
}

static char byte_at(long i)
{
    return (char)(i * 7 + i / 251 + SENT);
}

static int prepare(const kind *k)
{
    for (long i = 0; i < k->span; i++)
        host[i] = byte_at(i);
    memset(got, CLEAN, (size_t)k->span);
    return device_write(out, host, (size_t)k->span) && device_write(into, got, (size_t)k->span);
}

/* What a message of the kind makes of clean memory, by the library on host memory. */
static void expect(const kind *k)
{
    int at = 0;
    MPI_Pack(host, 1, k->type, plain, MOST, &at, MPI_COMM_SELF);
    memset(expected, CLEAN, (size_t)k->span);
    at = 0;
    MPI_Unpack(plain, k->packed, &at, expected, 1, k->type, MPI_COMM_SELF);
}

static void verdict(const char *name, const kind *k, int failed, int present)
{
    const char *how = "error";
    if (!present)
        how = "gone";
    else if (!failed) {
        expect(k);
        how = !device_read(got, into, (size_t)k->span)      ? "gone"
              : memcmp(got, expected, (size_t)k->span) == 0 ? "right"
                                                            : "WRONG";
    }
    printf("%s %s of %s\n", how, name, k->name);
    fflush(stdout);
}

/* A receive without a message. */
static void give_up(MPI_Request *receive)
{
    MPI_Cancel(receive);
    MPI_Wait(receive, MPI_STATUS_IGNORE);
}

static int nonblocking(const kind *k)
{
    MPI_Request receive = MPI_REQUEST_NULL, send = MPI_REQUEST_NULL;
    if (bad(MPI_Irecv(into, 1, k->type, 0, 1, comm, &receive)))
        return 1;
    int failed = bad(MPI_Isend(out, 1, k->type, 0, 1, comm, &send));
    if (!failed)
        failed = bad(MPI_Wait(&send, MPI_STATUS_IGNORE));
    if (failed)
        give_up(&receive);
    else
        failed = bad(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    return failed;
}

static int burst(const kind *k)
{
    enum { N = 3 };
    MPI_Request receives[N], sends[N];
    int failed = 0;
    for (int i = 0; i < N; i++)
        failed |= bad(MPI_Irecv(into, 1, k->type, 0, 10 + i, comm, &receives[i]));
    for (int i = 0; i < N && !failed; i++)
        failed |= bad(MPI_Isend(out, 1, k->type, 0, 10 + i, comm, &sends[i]));
    for (int i = 0; i < N && !failed; i++)
        failed |= bad(MPI_Wait(&sends[i], MPI_STATUS_IGNORE)) << i;
    if (!failed)
        return bad(MPI_Waitall(N, receives, MPI_STATUSES_IGNORE));
    for (int i = 0; i < N; i++)
        give_up(&receives[i]);
    return 1;
}

static int self(const kind *k)
{
    MPI_Comm clean;
    MPI_Comm_dup(comm, &clean);
    const int failed =
        bad(MPI_Sendrecv(out, 1, k->type, 0, 1, into, 1, k->type, 0, 1, clean, MPI_STATUS_IGNORE));
    MPI_Comm_free(&clean);
    return failed;
}

static int persistent(const kind *k)
{
    MPI_Request receive, send;
    MPI_Recv_init(into, 1, k->type, 0, 2, comm, &receive);
    MPI_Send_init(out, 1, k->type, 0, 2, comm, &send);
    MPI_Start(&receive);
    int failed = bad(MPI_Start(&send));
    if (failed)
        give_up(&receive);
    else
        failed = bad(MPI_Wait(&send, MPI_STATUS_IGNORE)) |
                 bad(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    MPI_Request_free(&receive);
    MPI_Request_free(&send);
    return failed;
}

static int pack(const kind *k)
{
    int at = 0;
    int failed = bad(MPI_Pack(out, 1, k->type, plain, MOST, &at, comm));
    at = 0;
    return failed || bad(MPI_Unpack(plain, k->packed, &at, into, 1, k->type, comm));
}

static int pack_on_device(const kind *k)
{
    int at = 0;
    int failed = bad(MPI_Pack(out, 1, k->type, between, MOST, &at, comm));
    at = 0;
    return failed || bad(MPI_Unpack(between, k->packed, &at, into, 1, k->type, comm));
}

static const struct {
    const char *name;
    int (*run)(const kind *);
} steps[] = {{"a nonblocking message", nonblocking},
             {"a burst", burst},
             {"a message to oneself", self},
             {"a persistent message", persistent},
             {"a pack", pack},
             {"a pack on the device", pack_on_device}};

static kind kind_new(const char *name, MPI_Datatype type)
{
    kind k = {.name = name, .type = type};
    MPI_Aint lb, extent;
    MPI_Type_commit(&k.type);
    MPI_Type_get_true_extent(type, &lb, &extent);
    MPI_Type_size(type, &k.packed);
    k.span = (long)extent;
    return k;
}

static kind kind_of(int which)
{
    MPI_Datatype type;
    int lengths[60], places[60];
    switch (which) {
    case 0: MPI_Type_vector(300, 1, 4, MPI_DOUBLE, &type); return kind_new("a vector", type);
    case 1:
        for (int i = 0, at = 0; i < 60; i++) {
            lengths[i] = 1 + i * i % 3;
            places[i] = at;
            at += lengths[i] + 1 + i * i * i % 5;
        }
        MPI_Type_indexed(60, lengths, places, MPI_INT, &type);
        return kind_new("a list", type);
    case 2:
        MPI_Type_vector(40000, 1, 3, MPI_DOUBLE, &type);
        return kind_new("a large vector", type);
    default: MPI_Type_contiguous(5000, MPI_DOUBLE, &type); return kind_new("a row", type);
    }
}

static void arm(int argc, char **argv)
{
    char rule[200];
    const unsigned long long so_far =
        ((uint64_t (*)(const char *))cu("tempi_emulator_count"))(argv[1]);
    snprintf(rule, sizeof rule, "%s:%llu%s%s", argv[1], so_far + strtoull(argv[2], NULL, 10),
             argc > 4 ? ":" : "", argc > 4 ? argv[4] : "");
    if (((int (*)(const char *))cu("tempi_emulator_fail"))(rule) != 0)
        printf("BAD rule %s\n", rule);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    device_begin();
    out = device_new(MOST);
    into = device_new(MOST);
    between = device_new(MOST);
    const long until_armed = argc > 3 ? strtol(argv[3], NULL, 10) : -1;
    long done = 0;
    for (int round = 0; round < 2; round++) {
        printf("round %d\n", round);
        for (int which = 0; which < 4; which++) {
            kind k = kind_of(which);
            for (int i = 0; i < (int)(sizeof steps / sizeof *steps); i++) {
                if (done++ == until_armed)
                    arm(argc, argv);
                const int present = prepare(&k);
                verdict(steps[i].name, &k, steps[i].run(&k), present);
            }
            MPI_Type_free(&k.type);
        }
    }
    device_delete(out);
    device_delete(into);
    device_delete(between);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    printf("end\n");
    return 0;
}
