/* Wrong on purpose: two threads pack into one buffer at once. A thread checker that
 * instruments the engine must report it. */
#include "column_check.h"
#include <pthread.h>
#include <stdatomic.h>

enum { TURNS = 100 };
static matrix from;
static double packed[ROWS];
static MPI_Datatype type;

static _Atomic int turns[2]; /* of each thread; read and written so that they order nothing */

/* Goes on until the other has had its turns too: on a busy machine one thread may be done before
 * the other begins, and then the engine's own locks put all of the one before the other. */
static void *work(void *second)
{
    const int me = second != NULL;
    while (atomic_load_explicit(&turns[0], memory_order_relaxed) < TURNS ||
           atomic_load_explicit(&turns[1], memory_order_relaxed) < TURNS) {
        int position = 0;
        MPI_Pack(column(&from), 1, type, packed, sizeof packed, &position, MPI_COMM_WORLD);
        atomic_fetch_add_explicit(&turns[me], 1, memory_order_relaxed);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check_begin();
    type = column_type(ROWS);
    pthread_create(&thread, NULL, work, &type);
    work(NULL);
    pthread_join(thread, NULL);
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
