/* Device memory in collectives, one-sided operations and files, and tempi's answers about it.
 *
 *     device_calls DRIVER FILE    DRIVER: the emulated driver's library, or "none" for host memory
 *
 * Prints MPI's answers, and "ok NAME" for each step that was right. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1000 };

static int rank, size;
static void *driver;

/* ---- memory ---------------------------------------------------------------------------------- */

#define CU(name, ...) (((int (*)())(uintptr_t)dlsym(driver, name))(__VA_ARGS__))

static int *memory(void)
{
    uint64_t address = 0;
    if (!driver)
        return calloc(N, sizeof(int));
    if (CU("cuMemAlloc_v2", &address, (size_t)(N * sizeof(int))) != 0)
        abort();
    return (int *)(uintptr_t)address;
}

static void put(int *there, int first, int step)
{
    int values[N];
    for (int i = 0; i < N; i++)
        values[i] = first + i * step;
    if (driver)
        CU("cuMemcpyHtoD_v2", (uint64_t)(uintptr_t)there, values, sizeof values);
    else
        memcpy(there, values, sizeof values);
}

static void verdict(const char *name, const int *there, int first, int step)
{
    int values[N], good = 1, all;
    if (driver)
        CU("cuMemcpyDtoH_v2", values, (uint64_t)(uintptr_t)there, sizeof values);
    else
        memcpy(values, there, sizeof values);
    for (int i = 0; i < N; i++)
        good = good && values[i] == first + i * step;
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s %s\n", all ? "ok" : "BAD", name);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void collectives(int *a, int *b)
{
    MPI_Request request;
    put(a, rank, 1);
    MPI_Allreduce(a, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    verdict("Allreduce", b, size * (size - 1) / 2, size);
    put(b, 7, 0);
    MPI_Ireduce(a, b, N, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    verdict("Ireduce", b, rank == 0 ? size - 1 : 7, rank == 0 ? 1 : 0);
    MPI_Bcast(a, N, MPI_INT, size - 1, MPI_COMM_WORLD);
    verdict("Bcast", a, size - 1, 1);
    put(a, rank, 1);
    MPI_Allreduce(MPI_IN_PLACE, a, N, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    verdict("Allreduce in place", a, 0, 1);
}

static void persistent(int *a, int *b)
{
    int (*init)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, MPI_Request *);
    init = (int (*)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info,
                    MPI_Request *))(uintptr_t)dlsym(RTLD_DEFAULT, "MPI_Allreduce_init");
    MPI_Request request;
    if (!init ||
        init(a, b, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request) != MPI_SUCCESS)
        return;
    for (int turn = 0; turn < 3; turn++) {
        put(a, turn, 1);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        verdict("Allreduce_init", b, size * turn, size);
    }
    MPI_Request_free(&request);
}

static void one_sided(int *a, int *b)
{
    static int shown[N];
    MPI_Win win;
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Win_create(shown, sizeof shown, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    put(a, rank, 2);
    MPI_Win_fence(0, win);
    MPI_Put(a, N, MPI_INT, next, 0, N, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    MPI_Get(b, N, MPI_INT, rank, 0, N, MPI_INT, win);
    MPI_Win_unlock(rank, win);
    verdict("Put and Get", b, before, 2);
    MPI_Win_free(&win);
}

static void files(int *a, int *b, const char *path)
{
    MPI_File file;
    const MPI_Offset place = (MPI_Offset)rank * N * (MPI_Offset)sizeof(int);
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE,
                  MPI_INFO_NULL, &file);
    put(a, rank, 3);
    MPI_File_write_at_all(file, place, a, N, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_read_at_all_begin(file, place, b, N, MPI_INT);
    MPI_File_read_at_all_end(file, b, MPI_STATUS_IGNORE);
    verdict("File", b, rank, 3);
    MPI_File_close(&file);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answers(void)
{
    char kinds[MPI_MAX_INFO_VAL] = "unknown";
    int found = 0;
    MPI_Info info;
    int (*query)(void) = (int (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
    int (*gpu)(int, int *) = (int (*)(int, int *))(uintptr_t)dlsym(RTLD_DEFAULT,
                                                                   "MPIX_GPU_query_support");
    int cuda = -1;
    MPI_Comm_get_info(MPI_COMM_WORLD, &info);
    MPI_Info_get(info, "mpi_memory_alloc_kinds", MPI_MAX_INFO_VAL - 1, kinds, &found);
    MPI_Info_free(&info);
    if (rank != 0)
        return;
    if (gpu && gpu(0, &cuda) != MPI_SUCCESS)
        cuda = -2;
    printf("MPIX_Query_cuda_support: %d\nMPIX_GPU_query_support: %d\n", query ? query() : -1, cuda);
    printf("mpi_memory_alloc_kinds: %s\n", kinds);
}

static void set_up(const char *path)
{
    void *context = NULL;
    if (strcmp(path, "none") == 0)
        return;
    driver = dlopen(path, RTLD_NOW);
    if (!driver || CU("cuInit", 0) != 0 || CU("cuDevicePrimaryCtxRetain", &context, 0) != 0 ||
        CU("cuCtxSetCurrent", context) != 0)
        abort();
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    answers();
    set_up(argv[1]);
    int *a = memory(), *b = memory();
    collectives(a, b);
    persistent(a, b);
    one_sided(a, b);
    files(a, b, argv[2]);
    MPI_Finalize();
    return 0;
}
