/* Calls in a delete callback of MPI_COMM_SELF, within MPI_Finalize: a collective that the odd ranks
 * make before theirs, collectives on MPI_COMM_SELF, messages, and a datatype that is new. The
 * argument "multiple": with MPI_THREAD_MULTIPLE. Each rank prints on stderr what tempi carried
 * there. */
#include "counted.h"
#include "exchange_kinds.h"

static int column_comes_back(int seed)
{
    static matrix out, in;
    MPI_Request requests[2];
    MPI_Datatype type = column_type(ROWS - seed);
    fill(&out, check_rank, seed);
    clear(&in);
    MPI_Irecv(column(&in), 1, type, check_peer, seed, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(column(&out), 1, type, check_peer, seed, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Type_free(&type);
    return arrived(&in, check_peer, seed, ROWS - seed);
}

static int at_the_end(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)value, (void)state;
    const long before[] = {counted("collectives"), counted("sends")};
    if (check_rank % 2 == 0)
        verdict("with ranks before MPI_Finalize", all_to_all(MPI_COMM_WORLD, 3));
    verdict("on MPI_COMM_SELF", all_to_all(MPI_COMM_SELF, 2));
    verdict("a message", column_comes_back(7));
    fprintf(stderr, "within MPI_Finalize: collectives %ld, sends %ld\n",
            counted("collectives") - before[0], counted("sends") - before[1]);
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    const int level = argc > 1 && strcmp(argv[1], "multiple") == 0 ? MPI_THREAD_MULTIPLE
                                                                   : MPI_THREAD_SINGLE;
    int provided, key;
    MPI_Init_thread(&argc, &argv, level, &provided);
    check_begin();
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_the_end, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    for (int turn = 0; turn < 3; turn++)
        verdict("before", all_to_all(MPI_COMM_WORLD, turn) & all_to_all(MPI_COMM_SELF, turn) &
                              column_comes_back(turn));
    if (check_rank % 2 == 1)
        verdict("with ranks in MPI_Finalize", all_to_all(MPI_COMM_WORLD, 3));
    MPI_Finalize();
    return check_bad != 0;
}
