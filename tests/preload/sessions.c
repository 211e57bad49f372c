/* The sessions model alone: no MPI_Init, and as many consecutive sessions as the argument says. */
#include "counted.h"

#include "column_check.h"

#if MPI_VERSION < 4
int main(void)
{
    printf("no sessions: MPI %d.%d\n", MPI_VERSION, MPI_SUBVERSION);
    return 0;
}
#else
static int one_session(int turn)
{
    static matrix out, in;
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    MPI_Request requests[2];
    int rank, size, good = 0, all = 0;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "tempi.test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    const int peer = size == 1 ? 0 : rank ^ 1;
    MPI_Datatype type = column_type(ROWS);
    fill(&out, rank, turn);
    clear(&in);
    MPI_Irecv(column(&in), 1, type, peer, 1, comm, &requests[0]);
    MPI_Isend(column(&out), 1, type, peer, 1, comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    good = arrived(&in, peer, turn, ROWS);
    MPI_Type_free(&type);
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_LAND, comm);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    fprintf(stderr, "turn %d: sends %ld\n", turn, counted("sends"));
    if (rank == 0)
        printf("%s session %d\n", all ? "ok" : "BAD", turn);
    return all;
}

int main(int argc, char **argv)
{
    int good = 1;
    for (int turn = 0; turn < (argc > 1 ? atoi(argv[1]) : 1); turn++)
        good &= one_session(turn);
    return !good;
}
#endif
