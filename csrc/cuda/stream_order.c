/* stream_order.c: orders tempi's work after the work in the program's streams. */
#include "cuda/device.h"
#include "pack/pack.h"

static _Thread_local struct {
    uintptr_t stream;
    int slot; /* context slot of the buffer's device */
} named[2];   /* by direction */

void tempi_cuda_set_direction_stream(int direction, int slot, uintptr_t stream)
{
    named[direction].stream = stream;
    named[direction].slot = slot;
}

void tempi_cuda_set_stream(uintptr_t stream)
{
    tempi_cuda_set_direction_stream(TEMPI_PACK, 0, stream);
    tempi_cuda_set_direction_stream(TEMPI_UNPACK, 0, stream);
}

uintptr_t tempi_cuda_get_stream(void)
{
    return named[TEMPI_PACK].stream;
}

static int order_by_event(tempi_cuda_device *device, tempi_cuda_stream theirs,
                          tempi_cuda_stream stream)
{
    tempi_cuda_event event;
    int status = tempi_cuda_event_get(device, &event);
    if (status != TEMPI_OK)
        return status;
    status = TEMPI_CU(EventRecord, event, theirs);
    if (status == TEMPI_OK)
        /* Captures the event as recorded now, so the event can be reused at once. */
        status = TEMPI_CU(StreamWaitEvent, stream, event, 0);
    tempi_cuda_event_put(device, event);
    return status;
}

/* An event can be recorded only in a stream of its own device, and the stream that the program set
 * may be another device's. In that case, and for any other failure of the event, block here. */
int tempi_cuda_order_streams(tempi_cuda_device *device, tempi_cuda_stream first,
                             tempi_cuda_stream then)
{
    const int status = order_by_event(device, first, then);
    if (status == TEMPI_OK || !tempi_cuda_up())
        return status;
    return TEMPI_CU(StreamSynchronize, first);
}

int tempi_cuda_order(tempi_cuda_device *device, tempi_cuda_stream stream, uintptr_t theirs)
{
    const bool unpacks = stream == device->streams[TEMPI_UNPACK] ||
                         stream == device->copy_streams[TEMPI_UNPACK];
    const uintptr_t own = named[unpacks ? TEMPI_UNPACK : TEMPI_PACK].stream,
                    after = own ? own : theirs;
    return tempi_cuda_order_streams(
        device, after ? (tempi_cuda_stream)after : TEMPI_CUDA_LEGACY_STREAM, stream);
}

int tempi_cuda_wait_stream(int slot, uintptr_t stream)
{
    tempi_cuda_entry entry;
    tempi_cuda_device *device = tempi_cuda_device_get(slot < 0 ? 0 : slot);
    int status = device ? tempi_cuda_enter(device, &entry) : TEMPI_ERR_DEVICE;
    if (status != TEMPI_OK)
        return status;
    status = TEMPI_CU(StreamSynchronize, (tempi_cuda_stream)stream);
    tempi_cuda_leave(&entry);
    return status;
}

int tempi_cuda_settle(int direction)
{
    const uintptr_t stream = named[direction].stream;
    return stream ? tempi_cuda_wait_stream(named[direction].slot, stream) : TEMPI_OK;
}

int tempi_cuda_await_program(int slot)
{
    const uintptr_t theirs = tempi_cuda_get_stream();
    return tempi_cuda_wait_stream(slot, theirs ? theirs : (uintptr_t)TEMPI_CUDA_LEGACY_STREAM);
}
