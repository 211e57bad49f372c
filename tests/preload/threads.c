/* MPI_THREAD_MULTIPLE: threads send, receive and complete derived types at once, each with its own
 * tags; half of them make and free their types all the time. */
#include "column_check.h"
#include <pthread.h>

enum { THREADS = 4, TURNS = 60, MESSAGES = 4 };

typedef struct worker {
    pthread_t thread;
    int number, bad;
    matrix out[MESSAGES], in[MESSAGES];
} worker;

static worker workers[THREADS];

static void complete(int way, MPI_Request requests[])
{
    enum { N = 2 * MESSAGES };
    int index, flag = 0, some, indices[N];
    switch (way) {
    case 0: MPI_Waitall(N, requests, MPI_STATUSES_IGNORE); break;
    case 1:
        do
            MPI_Testany(N, requests, &index, &flag, MPI_STATUS_IGNORE);
        while (!flag || index != MPI_UNDEFINED);
        break;
    case 2:
        do
            MPI_Waitsome(N, requests, &some, indices, MPI_STATUSES_IGNORE);
        while (some != MPI_UNDEFINED);
        break;
    default:
        for (int i = N - 1; i >= 0; i--)
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    }
}

static void *work(void *argument)
{
    worker *w = argument;
    MPI_Datatype type = column_type(ROWS);
    for (int turn = 0; turn < TURNS; turn++) {
        MPI_Request requests[2 * MESSAGES];
        MPI_Datatype used = w->number % 2 ? column_type(ROWS) : type;
        for (int i = 0; i < MESSAGES; i++) {
            const int tag = w->number * MESSAGES + i;
            clear(&w->in[i]);
            fill(&w->out[i], check_rank, turn * 100 + tag);
            MPI_Irecv(column(&w->in[i]), 1, used, check_peer, tag, MPI_COMM_WORLD,
                      &requests[2 * i]);
            MPI_Isend(column(&w->out[i]), 1, used, check_peer, tag, MPI_COMM_WORLD,
                      &requests[2 * i + 1]);
        }
        if (used != type)
            MPI_Type_free(&used);
        complete((turn + w->number) % 4, requests);
        for (int i = 0; i < MESSAGES; i++)
            w->bad += !arrived(&w->in[i], check_peer, turn * 100 + w->number * MESSAGES + i, ROWS);
    }
    MPI_Type_free(&type);
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, bad = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check_begin();
    if (provided < MPI_THREAD_MULTIPLE) {
        if (check_rank == 0)
            printf("no threads: level %d\n", provided);
        MPI_Finalize();
        return 0;
    }
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        bad += workers[i].bad;
    }
    verdict("threads", bad == 0);
    MPI_Finalize();
    return check_bad != 0;
}
