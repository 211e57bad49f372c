/* Large-count calls by weak names, as mpi4py makes them, whether or not the MPI below has them. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define WEAK(NAME, ...) extern int NAME(__VA_ARGS__) __attribute__((weak))

WEAK(MPI_Send_c, const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm);
WEAK(MPI_Irecv_c, void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
WEAK(MPI_Pack_c, const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Count *, MPI_Comm);
WEAK(MPI_Allreduce_c, const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
WEAK(MPI_Alltoallv_c, const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
     const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm);
WEAK(MPI_Ialltoallv_c, const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
     const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request *);
WEAK(MPI_Igatherv_c, const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *,
     const MPI_Aint *, MPI_Datatype, int, MPI_Comm, MPI_Request *);
WEAK(MPI_Neighbor_allgatherv_c, const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *,
     const MPI_Aint *, MPI_Datatype, MPI_Comm);

#define EXPECT(CONDITION)                                  \
    do {                                                   \
        if (!(CONDITION)) {                                \
            printf("line %d: %s\n", __LINE__, #CONDITION); \
            bad = 1;                                       \
        }                                                  \
    } while (0)

static int bad;
static const long long HUGE = 3000000000LL;

static void points(void)
{
    int sent[4] = {1, 2, 3, 4}, got[4] = {0};
    char packed[sizeof sent];
    MPI_Count position = 0;
    MPI_Request request;
    MPI_Irecv_c(got, 4, MPI_INT, 0, 5, MPI_COMM_SELF, &request);
    MPI_Send_c(sent, 4, MPI_INT, 0, 5, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(memcmp(sent, got, sizeof got) == 0);
    EXPECT(MPI_Pack_c(sent, 4, MPI_INT, packed, sizeof packed, &position, MPI_COMM_SELF) == 0);
    EXPECT(position == (MPI_Count)sizeof packed && memcmp(packed, sent, sizeof packed) == 0);
    EXPECT(MPI_Send_c(sent, HUGE, MPI_INT, MPI_PROC_NULL, 5, MPI_COMM_SELF) == MPI_SUCCESS);
}

/* Elements of no bytes: a count above INT_MAX arrives whole without memory. */
static void huge(void)
{
    MPI_Datatype empty;
    MPI_Request request;
    MPI_Status status;
    int count = -1;
    MPI_Type_contiguous(0, MPI_INT, &empty);
    MPI_Type_commit(&empty);
    MPI_Irecv_c(&count, HUGE, empty, 0, 6, MPI_COMM_SELF, &request);
    EXPECT(MPI_Send_c(&count, HUGE, empty, 0, 6, MPI_COMM_SELF) == MPI_SUCCESS);
    EXPECT(MPI_Wait(&request, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_BYTE, &count);
    EXPECT(count == 0);
    MPI_Type_free(&empty);
}

static void collectives(int size, int rank)
{
    int sent[8], got[8], all[8] = {0};
    MPI_Count ones[8];
    MPI_Aint places[8];
    MPI_Request request;
    for (int i = 0; i < size; i++) {
        ones[i] = 1;
        places[i] = size - 1 - i;
        sent[i] = 10 * rank + size - 1 - i;
    }
    memset(got, 0, sizeof got);
    MPI_Alltoallv_c(sent, ones, places, MPI_INT, got, ones, places, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++)
        EXPECT(got[size - 1 - i] == 10 * i + rank);
    memset(got, 0, sizeof got);
    MPI_Ialltoallv_c(sent, ones, places, MPI_INT, got, ones, places, MPI_INT, MPI_COMM_WORLD,
                     &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++)
        EXPECT(got[size - 1 - i] == 10 * i + rank);
    /* On ranks other than the root the arrays must not be read. */
    MPI_Igatherv_c(&rank, 1, MPI_INT, all, rank == 0 ? ones : (MPI_Count *)8,
                   rank == 0 ? places : (MPI_Aint *)8, MPI_INT, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; rank == 0 && i < size; i++)
        EXPECT(all[size - 1 - i] == i);
}

static void neighbours(int size, int rank)
{
    const int periodic = 1;
    const MPI_Count ones[2] = {1, 1};
    const MPI_Aint places[2] = {0, 1};
    int got[2] = {-1, -1};
    MPI_Comm ring;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    MPI_Neighbor_allgatherv_c(&rank, 1, MPI_INT, got, ones, places, MPI_INT, ring);
    EXPECT(got[0] == (rank + size - 1) % size && got[1] == (rank + 1) % size);
    MPI_Comm_free(&ring);
}

/* What the plain function cannot say and no helper type can mean is MPI's own error. */
static void refusal(int native)
{
    int one = 1, other = 0, class = MPI_SUCCESS;
    MPI_Count many[1] = {HUGE};
    MPI_Aint place[1] = {0};
    if (native)
        return;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Error_class(MPI_Allreduce_c(&one, &other, HUGE, MPI_INT, MPI_SUM, MPI_COMM_SELF), &class);
    EXPECT(class == MPI_ERR_COUNT && other == 0);
    MPI_Error_class(MPI_Alltoallv_c(&one, many, place, MPI_INT, &other, many, place, MPI_INT,
                                    MPI_COMM_SELF),
                    &class);
    EXPECT(class == MPI_ERR_COUNT && other == 0);
}

int main(int argc, char **argv)
{
    int size, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    EXPECT(MPI_Send_c != NULL);
    if (!bad) {
        points();
        huge();
        collectives(size, rank);
        neighbours(size, rank);
        refusal(argc > 1);
    }
    MPI_Finalize();
    if (!bad && rank == 0)
        printf("ok large\n");
    return bad;
}
