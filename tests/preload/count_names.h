/* The collectives by their plain names or, with LARGE_COUNTS, by those of MPI-4 that end with _c.
 */
#ifndef COUNT_NAMES_H
#define COUNT_NAMES_H

#include <mpi.h>

#ifndef LARGE_COUNTS
#define BY_COUNTS(NAME) NAME
typedef int count_arg, displ_arg;
#else
#define BY_COUNTS(NAME) NAME##_c
typedef MPI_Count count_arg;
typedef MPI_Aint displ_arg;

/* Open MPI 5 has none of them, as libraries of MPI-3: there only tempi has the functions. Weak, as
 * the program is linked without it. */
#if defined OMPI_MAJOR_VERSION || MPI_VERSION < 4
#define WEAK(NAME, ...) extern int NAME(__VA_ARGS__) __attribute__((weak))
#define IN_EACH_FORM(BLOCKING_NAME, NONBLOCKING_NAME, PERSISTENT_NAME, ...) \
    WEAK(BLOCKING_NAME, __VA_ARGS__);                                       \
    WEAK(NONBLOCKING_NAME, __VA_ARGS__, MPI_Request *);                     \
    WEAK(PERSISTENT_NAME, __VA_ARGS__, MPI_Info, MPI_Request *)
#define OUT_OF(...) const void *, __VA_ARGS__, MPI_Datatype
#define INTO(...)   void *, __VA_ARGS__, MPI_Datatype
#define ONE         MPI_Count
#define MANY        const MPI_Count *, const MPI_Aint *
#define OUT_OF_W    const void *, MANY, const MPI_Datatype *
#define INTO_W      void *, MANY, const MPI_Datatype *

IN_EACH_FORM(MPI_Alltoall_c, MPI_Ialltoall_c, MPI_Alltoall_init_c, OUT_OF(ONE), INTO(ONE),
             MPI_Comm);
IN_EACH_FORM(MPI_Alltoallv_c, MPI_Ialltoallv_c, MPI_Alltoallv_init_c, OUT_OF(MANY), INTO(MANY),
             MPI_Comm);
IN_EACH_FORM(MPI_Alltoallw_c, MPI_Ialltoallw_c, MPI_Alltoallw_init_c, OUT_OF_W, INTO_W, MPI_Comm);
IN_EACH_FORM(MPI_Allgather_c, MPI_Iallgather_c, MPI_Allgather_init_c, OUT_OF(ONE), INTO(ONE),
             MPI_Comm);
IN_EACH_FORM(MPI_Allgatherv_c, MPI_Iallgatherv_c, MPI_Allgatherv_init_c, OUT_OF(ONE), INTO(MANY),
             MPI_Comm);
IN_EACH_FORM(MPI_Gather_c, MPI_Igather_c, MPI_Gather_init_c, OUT_OF(ONE), INTO(ONE), int, MPI_Comm);
IN_EACH_FORM(MPI_Gatherv_c, MPI_Igatherv_c, MPI_Gatherv_init_c, OUT_OF(ONE), INTO(MANY), int,
             MPI_Comm);
IN_EACH_FORM(MPI_Scatter_c, MPI_Iscatter_c, MPI_Scatter_init_c, OUT_OF(ONE), INTO(ONE), int,
             MPI_Comm);
IN_EACH_FORM(MPI_Scatterv_c, MPI_Iscatterv_c, MPI_Scatterv_init_c, OUT_OF(MANY), INTO(ONE), int,
             MPI_Comm);
IN_EACH_FORM(MPI_Bcast_c, MPI_Ibcast_c, MPI_Bcast_init_c, void *, MPI_Count, MPI_Datatype, int,
             MPI_Comm);
IN_EACH_FORM(MPI_Neighbor_alltoall_c, MPI_Ineighbor_alltoall_c, MPI_Neighbor_alltoall_init_c,
             OUT_OF(ONE), INTO(ONE), MPI_Comm);
IN_EACH_FORM(MPI_Neighbor_alltoallv_c, MPI_Ineighbor_alltoallv_c, MPI_Neighbor_alltoallv_init_c,
             OUT_OF(MANY), INTO(MANY), MPI_Comm);
IN_EACH_FORM(MPI_Neighbor_alltoallw_c, MPI_Ineighbor_alltoallw_c, MPI_Neighbor_alltoallw_init_c,
             OUT_OF_W, INTO_W, MPI_Comm);
IN_EACH_FORM(MPI_Neighbor_allgather_c, MPI_Ineighbor_allgather_c, MPI_Neighbor_allgather_init_c,
             OUT_OF(ONE), INTO(ONE), MPI_Comm);
IN_EACH_FORM(MPI_Neighbor_allgatherv_c, MPI_Ineighbor_allgatherv_c, MPI_Neighbor_allgatherv_init_c,
             OUT_OF(ONE), INTO(MANY), MPI_Comm);
#endif
#endif

#endif
