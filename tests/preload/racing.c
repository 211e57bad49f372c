/* Wrong on purpose: two threads pack into one buffer at once. A thread checker that sees the engine must
 * say so. */
#include "check.h"
#include <pthread.h>

static matrix from;
static double packed[ROWS];
static MPI_Datatype type;

static void *work(void *argument)
{
    for (int turn = 0; turn < 100; turn++) {
        int position = 0;
        MPI_Pack(column(&from), 1, type, packed, sizeof packed, &position, MPI_COMM_WORLD);
    }
    return argument;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check_begin();
    type = column_type(ROWS);
    pthread_create(&thread, NULL, work, NULL);
    work(NULL);
    pthread_join(thread, NULL);
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
