/* A program linked to no MPI library: queries tempi before one is loaded, then loads the one on its
 * command line with RTLD_LOCAL, as mpi4py does, and calls the functions that it finds by name. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define FIND(TYPE, NAME) ((TYPE)dlsym(RTLD_DEFAULT, NAME))

typedef int (*query_fn)(int *);
typedef int (*init_fn)(int *, char ***);
typedef int (*void_fn)(void);

static int flag_of(const char *name)
{
    int flag = 77;
    return FIND(query_fn, name)(&flag) == 0 ? flag : -1;
}

int main(int argc, char **argv)
{
    if (argc < 2 || FIND(void_fn, "MPI_Finalize") == NULL)
        return 9;
    printf("before: initialized=%d finalized=%d pinitialized=%d\n", flag_of("MPI_Initialized"),
           flag_of("MPI_Finalized"), flag_of("PMPI_Initialized"));
    const int refused = FIND(init_fn, "MPI_Init")(NULL, NULL);
    if (dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == NULL) {
        printf("%s\n", dlerror());
        return 8;
    }
    const int status = FIND(init_fn, "MPI_Init")(NULL, NULL);
    printf("refused=%d init=%d initialized=%d\n", refused != 0, status, flag_of("MPI_Initialized"));
    return FIND(void_fn, "MPI_Finalize")();
}
