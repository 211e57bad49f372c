/* Wrong on purpose: the type extends past the end of the packed memory. A checker must report
 * tempi's read there. */
#include "column_check.h"

int main(int argc, char **argv)
{
    static char packed[8 * ROWS];
    int position = 0;
    MPI_Init(&argc, &argv);
    MPI_Datatype type = column_type(ROWS);
    char *memory = calloc(1, sizeof(matrix) - 64);
    MPI_Pack(memory + 64, 1, type, packed, sizeof packed, &position, MPI_COMM_WORLD);
    printf("packed %d\n", position);
    free(memory);
    MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
