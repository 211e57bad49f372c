#include "shim/comm/comm_stream.h"
#include "cuda/device.h"
#include "shim/comm/comm_attribute.h"

bool tempi_streams_named;

static int keyval = MPI_KEYVAL_INVALID;

static int delete_nothing(MPI_Comm comm, int key, void *value, void *state)
{
    (void)comm, (void)key, (void)value, (void)state;
    return MPI_SUCCESS;
}

void tempi_stream_start(void)
{
    if (keyval == MPI_KEYVAL_INVALID &&
        tempi_lib.Comm_create_keyval(tempi_comm_attribute_not_copied, delete_nothing, &keyval,
                                     NULL) != MPI_SUCCESS)
        keyval = MPI_KEYVAL_INVALID;
}

void tempi_stream_stop(void)
{
    __atomic_store_n(&tempi_streams_named, false, __ATOMIC_RELAXED);
    if (keyval != MPI_KEYVAL_INVALID)
        tempi_lib.Comm_free_keyval(&keyval);
    keyval = MPI_KEYVAL_INVALID;
}

int tempi_stream_set(uintptr_t comm, uintptr_t stream)
{
    const MPI_Comm which = tempi_comm_of(comm);
    if (keyval == MPI_KEYVAL_INVALID)
        return TEMPI_ERR_NO_MPI;
    if (which == MPI_COMM_NULL ||
        tempi_lib.Comm_set_attr(which, keyval, (void *)stream) != MPI_SUCCESS)
        return TEMPI_ERR_ARG;
    __atomic_store_n(&tempi_streams_named, true, __ATOMIC_RELAXED);
    return TEMPI_OK;
}

uintptr_t tempi_stream_look_up(MPI_Comm comm)
{
    void *value;
    int found = 0;
    if (comm == MPI_COMM_NULL ||
        tempi_lib.Comm_get_attr(comm, keyval, &value, &found) != MPI_SUCCESS || !found)
        return 0;
    return (uintptr_t)value;
}

uintptr_t tempi_stream_enter(MPI_Comm comm)
{
    const uintptr_t before = tempi_cuda_get_stream();
    if (before == 0)
        tempi_cuda_set_stream(tempi_stream_of(comm));
    return before;
}

void tempi_stream_leave(uintptr_t before)
{
    tempi_cuda_set_stream(before);
}
