/* A child is forked while messages are under way; it packs, exits by exit(), and the parent goes
 * on. */
#include "column_check.h"
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static matrix out, in;
    MPI_Request requests[2];
    int status = 1;
    MPI_Init(&argc, &argv);
    check_begin();
    MPI_Datatype type = column_type(ROWS);
    fill(&out, check_rank, 1);
    clear(&in);
    MPI_Irecv(column(&in), 1, type, check_peer, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(column(&out), 1, type, check_peer, 1, MPI_COMM_WORLD, &requests[1]);
    const pid_t child = fork();
    if (child == 0) {
        int initialized = 0;
        MPI_Initialized(&initialized); /* about all that a child may call */
        exit(initialized ? 7 : 8);
    }
    waitpid(child, &status, 0);
    verdict("child", child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    verdict("parent", arrived(&in, check_peer, 1, ROWS));
    FILE *shell = popen("echo shell", "r");
    char line[16] = "";
    const char *read = fgets(line, sizeof line, shell);
    verdict("popen", read && strcmp(line, "shell\n") == 0 && pclose(shell) == 0);
    MPI_Type_free(&type);
    MPI_Finalize();
    return check_bad != 0;
}
