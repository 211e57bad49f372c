/* Every point-to-point function once with a derived type on each side: modes, receives, persistent
 * requests, combined calls, packing, and every function that completes. */
#include "column_check.h"

typedef int (*blocking)(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int (*starting)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static MPI_Datatype type;
static matrix out, in;

static void blocking_sends(void)
{
    static const struct {
        const char *name;
        blocking send;
    } modes[] = {
        {"Send", MPI_Send}, {"Ssend", MPI_Ssend}, {"Rsend", MPI_Rsend}, {"Bsend", MPI_Bsend}};
    for (int i = 0; i < 4; i++) {
        MPI_Request request;
        MPI_Status status;
        fill(&out, check_rank, i);
        clear(&in);
        MPI_Irecv(column(&in), 1, type, check_peer, i, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD); /* ready mode */
        modes[i].send(column(&out), 1, type, check_peer, i, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        verdict(modes[i].name, arrived(&in, check_peer, i, ROWS) &&
                                   status.MPI_SOURCE == check_peer && status.MPI_TAG == i &&
                                   request == MPI_REQUEST_NULL);
    }
}

static void nonblocking_sends(void)
{
    static const struct {
        const char *name;
        starting send;
    } modes[] = {{"Isend", MPI_Isend},
                 {"Issend", MPI_Issend},
                 {"Irsend", MPI_Irsend},
                 {"Ibsend", MPI_Ibsend}};
    for (int i = 0; i < 4; i++) {
        MPI_Request requests[2];
        fill(&out, check_rank, i);
        clear(&in);
        MPI_Irecv(column(&in), 1, type, check_peer, i, MPI_COMM_WORLD, &requests[0]);
        MPI_Barrier(MPI_COMM_WORLD);
        modes[i].send(column(&out), 1, type, check_peer, i, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        verdict(modes[i].name, arrived(&in, check_peer, i, ROWS));
    }
}

static void persistent_sends(void)
{
    static const struct {
        const char *name;
        starting init;
    } modes[] = {{"Send_init", MPI_Send_init},
                 {"Ssend_init", MPI_Ssend_init},
                 {"Rsend_init", MPI_Rsend_init},
                 {"Bsend_init", MPI_Bsend_init}};
    for (int i = 0; i < 4; i++) {
        MPI_Request requests[2];
        int good = 1;
        MPI_Recv_init(column(&in), 1, type, check_peer, i, MPI_COMM_WORLD, &requests[0]);
        modes[i].init(column(&out), 1, type, check_peer, i, MPI_COMM_WORLD, &requests[1]);
        for (int turn = 0; turn < 3; turn++) {
            fill(&out, check_rank, 10 * turn + i);
            clear(&in);
            MPI_Start(&requests[0]);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Startall(1, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            good = good && arrived(&in, check_peer, 10 * turn + i, ROWS) &&
                   requests[0] != MPI_REQUEST_NULL;
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
        verdict(modes[i].name, good);
    }
}

static void receives(void)
{
    MPI_Request request;
    MPI_Status status;
    MPI_Message message;
    int flag = 0, count, good;
    fill(&out, check_rank, 1);
    clear(&in);
    MPI_Isend(column(&out), 1, type, check_peer, 1, MPI_COMM_WORLD, &request);
    MPI_Recv(column(&in), 1, type, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Get_count(&status, type, &count);
    good = count == 1;
    MPI_Get_elements(&status, type, &count);
    verdict("Recv", good && count == ROWS && arrived(&in, check_peer, 1, ROWS));

    clear(&in);
    MPI_Isend(column(&out), 1, type, check_peer, 2, MPI_COMM_WORLD, &request);
    MPI_Mprobe(check_peer, 2, MPI_COMM_WORLD, &message, &status);
    MPI_Mrecv(column(&in), 1, type, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    verdict("Mrecv", arrived(&in, check_peer, 1, ROWS));

    clear(&in);
    MPI_Isend(column(&out), 1, type, check_peer, 3, MPI_COMM_WORLD, &request);
    while (!flag)
        MPI_Improbe(check_peer, 3, MPI_COMM_WORLD, &flag, &message, &status);
    MPI_Request matched;
    MPI_Imrecv(column(&in), 1, type, &message, &matched);
    MPI_Wait(&matched, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    verdict("Imrecv", arrived(&in, check_peer, 1, ROWS));
}

static void combined(void)
{
    fill(&out, check_rank, 4);
    clear(&in);
    MPI_Sendrecv(column(&out), 1, type, check_peer, 4, column(&in), 1, type, check_peer, 4,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    verdict("Sendrecv", arrived(&in, check_peer, 4, ROWS));
    clear(&in);
    for (int i = 0; i < ROWS; i++)
        in.cell[i][1] = value_of(check_rank, 5, i);
    MPI_Sendrecv_replace(column(&in), 1, type, check_peer, 5, check_peer, 5, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
    verdict("Sendrecv_replace", arrived(&in, check_peer, 5, ROWS));
}

static void packing(void)
{
    static char packed[8 * ROWS + 16];
    int position = 8, size;
    fill(&out, check_rank, 6);
    clear(&in);
    MPI_Pack_size(1, type, MPI_COMM_WORLD, &size);
    MPI_Pack(column(&out), 1, type, packed, sizeof packed, &position, MPI_COMM_WORLD);
    const int end = position;
    position = 8;
    MPI_Unpack(packed, sizeof packed, &position, column(&in), 1, type, MPI_COMM_WORLD);
    verdict("Pack and Unpack",
            arrived(&in, check_rank, 6, ROWS) && end == 8 + 8 * ROWS && position == end);
}

/* ---- completion ------------------------------------------------------------------------------ */

enum { MANY = 5 };
static matrix outs[MANY], ins[MANY];
static MPI_Request requests[2 * MANY];

static void post(int seed)
{
    for (int i = 0; i < MANY; i++) {
        clear(&ins[i]);
        MPI_Irecv(column(&ins[i]), 1, type, check_peer, i, MPI_COMM_WORLD, &requests[2 * i]);
    }
    for (int i = MANY - 1; i >= 0; i--) {
        fill(&outs[i], check_rank, seed + i);
        MPI_Isend(column(&outs[i]), 1, type, check_peer, i, MPI_COMM_WORLD, &requests[2 * i + 1]);
    }
}

static int all_arrived(int seed)
{
    int good = 1;
    for (int i = 0; i < MANY; i++)
        good = good && arrived(&ins[i], check_peer, seed + i, ROWS);
    for (int i = 0; i < 2 * MANY; i++)
        good = good && requests[i] == MPI_REQUEST_NULL;
    return good;
}

static void complete_all(void)
{
    MPI_Status statuses[2 * MANY];
    int flag = 0;
    post(10);
    MPI_Waitall(2 * MANY, requests, statuses);
    int good = all_arrived(10);
    for (int i = 0; i < MANY; i++)
        good = good && statuses[2 * i].MPI_SOURCE == check_peer && statuses[2 * i].MPI_TAG == i;
    verdict("Waitall", good);
    post(20);
    while (!flag)
        MPI_Testall(2 * MANY, requests, &flag, MPI_STATUSES_IGNORE);
    verdict("Testall", all_arrived(20));
}

static void complete_any(void)
{
    MPI_Status status;
    int index, flag, n = 0;
    post(30);
    for (;; n++) {
        MPI_Waitany(2 * MANY, requests, &index, &status);
        if (index == MPI_UNDEFINED)
            break;
    }
    verdict("Waitany", n == 2 * MANY && all_arrived(30));
    post(40);
    for (n = 0;;) {
        MPI_Testany(2 * MANY, requests, &index, &flag, MPI_STATUS_IGNORE);
        if (flag && index == MPI_UNDEFINED)
            break;
        n += flag;
    }
    verdict("Testany", n == 2 * MANY && all_arrived(40));
}

static void complete_some(void)
{
    MPI_Status statuses[2 * MANY];
    int indices[2 * MANY], some, n = 0;
    post(50);
    for (;; n += some) {
        MPI_Waitsome(2 * MANY, requests, &some, indices, statuses);
        if (some == MPI_UNDEFINED)
            break;
    }
    verdict("Waitsome", n == 2 * MANY && all_arrived(50));
    post(60);
    for (n = 0;; n += some) {
        MPI_Testsome(2 * MANY, requests, &some, indices, MPI_STATUSES_IGNORE);
        if (some == MPI_UNDEFINED)
            break;
    }
    verdict("Testsome", n == 2 * MANY && all_arrived(60));
}

static void complete_one(void)
{
    int left = 2 * MANY, flag;
    post(70);
    while (left > 0)
        for (int i = 0; i < 2 * MANY; i++)
            if (requests[i] != MPI_REQUEST_NULL) {
                MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
                left -= flag;
            }
    verdict("Test", all_arrived(70));
    post(80);
    int good = 1;
    for (int i = 0; i < MANY; i++) {
        for (flag = 0; !flag;)
            MPI_Request_get_status(requests[2 * i], &flag, MPI_STATUS_IGNORE);
        good = good && arrived(&ins[i], check_peer, 80 + i, ROWS);
    }
    for (int i = 0; i < 2 * MANY; i++)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    verdict("Request_get_status", good && all_arrived(80));
}

static void giving_up(void)
{
    MPI_Request request;
    MPI_Status status;
    int cancelled = 0;
    clear(&in);
    MPI_Irecv(column(&in), 1, type, check_peer, 77, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    verdict("Cancel", cancelled && arrived(&in, 0, 0, 0));

    MPI_Datatype gone = column_type(ROWS);
    fill(&out, check_rank, 90);
    MPI_Isend(column(&out), 1, gone, check_peer, 78, MPI_COMM_WORLD, &request);
    MPI_Type_free(&gone);
    MPI_Request_free(&request);
    MPI_Recv(column(&in), 1, type, check_peer, 78, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    verdict("Request_free and Type_free", arrived(&in, check_peer, 90, ROWS));
}

int main(int argc, char **argv)
{
    static char buffer[1 << 18];
    void *back;
    int size;
    MPI_Init(&argc, &argv);
    check_begin();
    type = column_type(ROWS);
    MPI_Buffer_attach(buffer, sizeof buffer);
    blocking_sends();
    nonblocking_sends();
    persistent_sends();
    receives();
    combined();
    packing();
    complete_all();
    complete_any();
    complete_some();
    complete_one();
    giving_up();
    MPI_Buffer_detach(&back, &size);
    MPI_Type_free(&type);
    MPI_Finalize();
    return check_bad != 0;
}
