/* The collectives of these tests in a form that is chosen once: blocking, nonblocking, or
 * persistent. */
#ifndef COLLECTIVE_FORMS_H
#define COLLECTIVE_FORMS_H

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "count_names.h"

/* Open MPI has them since its version 5, beside MPI 3.1. */
#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
#define PERSISTENT_COLLECTIVES
#endif

typedef enum form { BLOCKING, NONBLOCKING, PERSISTENT } form;
static form by_form;

static void choose_form(const char *name)
{
    by_form = !name ? BLOCKING : strcmp(name, "persistent") == 0 ? PERSISTENT : NONBLOCKING;
#ifndef PERSISTENT_COLLECTIVES
    if (by_form == PERSISTENT)
        printf("no persistent collectives: MPI %d.%d\n", MPI_VERSION, MPI_SUBVERSION);
#endif
}

/* In another way each time. */
static int completed(MPI_Request *request)
{
    static _Thread_local int turn;
    int flag = 0, which, rc = MPI_SUCCESS;
    MPI_Status status;
    switch (turn++ % 4) {
    case 0: return MPI_Wait(request, MPI_STATUS_IGNORE);
    case 1:
        while (rc == MPI_SUCCESS && !flag)
            rc = MPI_Test(request, &flag, MPI_STATUS_IGNORE);
        return rc;
    case 2: return MPI_Waitany(1, request, &which, MPI_STATUS_IGNORE);
    default:
        rc = MPI_Waitall(1, request, &status);
        return rc == MPI_ERR_IN_STATUS ? status.MPI_ERROR : rc;
    }
}

static int started_and_completed(MPI_Request *request)
{
    int rc = MPI_Start(request);
    if (rc == MPI_SUCCESS)
        rc = completed(request);
    if (*request != MPI_REQUEST_NULL)
        MPI_Request_free(request);
    return rc;
}

/* A function in the form that was chosen. */
#ifdef PERSISTENT_COLLECTIVES
#define IN_FORM(BLOCKING_NAME, NONBLOCKING_NAME, PERSISTENT_NAME, ...)                 \
    do {                                                                               \
        MPI_Request request_ = MPI_REQUEST_NULL;                                       \
        int rc_;                                                                       \
        if (by_form == BLOCKING)                                                       \
            return BY_COUNTS(BLOCKING_NAME)(__VA_ARGS__);                              \
        rc_ = by_form == NONBLOCKING                                                   \
                  ? BY_COUNTS(NONBLOCKING_NAME)(__VA_ARGS__, &request_)                \
                  : BY_COUNTS(PERSISTENT_NAME)(__VA_ARGS__, MPI_INFO_NULL, &request_); \
        return rc_ != MPI_SUCCESS       ? rc_                                          \
               : by_form == NONBLOCKING ? completed(&request_)                         \
                                        : started_and_completed(&request_);            \
    } while (0)
#else
#define IN_FORM(BLOCKING_NAME, NONBLOCKING_NAME, PERSISTENT_NAME, ...)       \
    do {                                                                     \
        MPI_Request request_ = MPI_REQUEST_NULL;                             \
        if (by_form == BLOCKING)                                             \
            return BY_COUNTS(BLOCKING_NAME)(__VA_ARGS__);                    \
        const int rc_ = BY_COUNTS(NONBLOCKING_NAME)(__VA_ARGS__, &request_); \
        return rc_ != MPI_SUCCESS ? rc_ : completed(&request_);              \
    } while (0)
#endif

static int alltoallw(const void *out, const count_arg *outcounts, const displ_arg *outdispls,
                     const MPI_Datatype *outtypes, void *in, const count_arg *incounts,
                     const displ_arg *indispls, const MPI_Datatype *intypes, MPI_Comm comm)
{
    IN_FORM(MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init, out, outcounts, outdispls, outtypes,
            in, incounts, indispls, intypes, comm);
}

static int neighbor_alltoallw(const void *out, const count_arg *outcounts,
                              const MPI_Aint *outdispls, const MPI_Datatype *outtypes, void *in,
                              const count_arg *incounts, const MPI_Aint *indispls,
                              const MPI_Datatype *intypes, MPI_Comm comm)
{
    IN_FORM(MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, MPI_Neighbor_alltoallw_init, out,
            outcounts, outdispls, outtypes, in, incounts, indispls, intypes, comm);
}

static int neighbor_alltoall(const void *out, count_arg outcount, MPI_Datatype outtype, void *in,
                             count_arg incount, MPI_Datatype intype, MPI_Comm comm)
{
    IN_FORM(MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, MPI_Neighbor_alltoall_init, out,
            outcount, outtype, in, incount, intype, comm);
}

static int neighbor_alltoallv(const void *out, const count_arg *outcounts,
                              const displ_arg *outdispls, MPI_Datatype outtype, void *in,
                              const count_arg *incounts, const displ_arg *indispls,
                              MPI_Datatype intype, MPI_Comm comm)
{
    IN_FORM(MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, MPI_Neighbor_alltoallv_init, out,
            outcounts, outdispls, outtype, in, incounts, indispls, intype, comm);
}

static int gather(const void *out, count_arg outcount, MPI_Datatype outtype, void *in,
                  count_arg incount, MPI_Datatype intype, int root, MPI_Comm comm)
{
    IN_FORM(MPI_Gather, MPI_Igather, MPI_Gather_init, out, outcount, outtype, in, incount, intype,
            root, comm);
}

static int scatter(const void *out, count_arg outcount, MPI_Datatype outtype, void *in,
                   count_arg incount, MPI_Datatype intype, int root, MPI_Comm comm)
{
    IN_FORM(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init, out, outcount, outtype, in, incount,
            intype, root, comm);
}

#endif
