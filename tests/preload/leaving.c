/* Ways to end a program: types and requests never freed, sends without a wait, and MPI_Finalize
 * called from an exit handler. All messages must still arrive. */
#include "column_check.h"

static MPI_Datatype type;
static matrix out[4], in[4];
static MPI_Request receives[4];

static void leave(void)
{
    MPI_Finalize();
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (check_rank == 0)
        printf("ok finalized=%d\n", finalized);
}

int main(int argc, char **argv)
{
    MPI_Request request, unused;
    MPI_Init(&argc, &argv);
    atexit(leave);
    check_begin();
    type = column_type(ROWS);
    for (int i = 0; i < 4; i++) {
        clear(&in[i]);
        fill(&out[i], check_rank, i);
        MPI_Irecv(column(&in[i]), 1, type, check_peer, i, MPI_COMM_WORLD, &receives[i]);
    }
    /* Nothing waits for the last send: the peer receives it before it exits. */
    for (int i = 0; i < 4; i++) {
        MPI_Isend(column(&out[i]), 1, type, check_peer, i, MPI_COMM_WORLD, &request);
        if (i % 2)
            MPI_Request_free(&request);
        else
            MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Waitall(4, receives, MPI_STATUSES_IGNORE);
    int good = 1;
    for (int i = 0; i < 4; i++)
        good = good && arrived(&in[i], check_peer, i, ROWS);
    verdict("delivered", good);
    MPI_Send_init(column(&out[0]), 1, type, check_peer, 9, MPI_COMM_WORLD, &unused);
    return check_bad != 0; /* the type and the persistent request stay */
}
