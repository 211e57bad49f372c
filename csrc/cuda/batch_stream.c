/* batch_stream.c: the stream that a batch is launched in, and what it waits for there.
 *
 *   all items named one stream of the program      that stream
 *   none named a stream                            tempi's, after TEMPI_STREAM_ORDER
 *   several streams, or named ones and others      tempi's, which waits for each named stream once
 */
#include "cuda/batch.h"

typedef struct census {
    int named;                 /* different streams of the program */
    uintptr_t last;            /* the last of these */
    bool others;               /* items that named none */
    tempi_cuda_stream ordered; /* tempi's, after what those wait for */
} census;

static bool is_first(const tempi_cuda_batch *batch, int i)
{
    for (int j = 0; j < i; ++j)
        if (batch->items[j].op.stream == batch->items[i].op.stream)
            return false;
    return true;
}

/* Whether the item waits for a named stream; if not, what tempi's stream has to come after. */
static bool is_named(const tempi_cuda_batch *batch, int i, census *c)
{
    tempi_cuda_stream of = NULL;
    const uintptr_t stream = batch->items[i].op.stream;
    const bool unnamed = stream == TEMPI_CUDA_ORDERED ||
                         tempi_cuda_is_default(batch->device, batch->direction, stream, &of);
    if (of == batch->device->default_streams[batch->direction])
        c->ordered = of;
    c->others |= unnamed;
    return !unnamed;
}

static census take_census(const tempi_cuda_batch *batch)
{
    census c = {.ordered = batch->device->streams[batch->direction]};
    for (int i = 0; i < batch->nitems; ++i)
        if (is_named(batch, i, &c) && is_first(batch, i)) {
            ++c.named;
            c.last = batch->items[i].op.stream;
        }
    return c;
}

int tempi_cuda_batch_choose_stream(tempi_cuda_batch *batch, bool own)
{
    census c = take_census(batch);
    batch->stream = c.ordered;
    if (batch->in_program_order && c.ordered == batch->device->default_streams[batch->direction])
        batch->stream = batch->device->default_streams[TEMPI_PACK]; /* one for both directions */
    const uintptr_t joined = atomic_load(&batch->device->joined);
    if (c.named == 1 && !c.others && !own && (joined == 0 || joined == c.last) &&
        !tempi_cuda_is_captured((tempi_cuda_stream)c.last)) {
        batch->stream = (tempi_cuda_stream)c.last;
        return TEMPI_OK;
    }
    int status = TEMPI_OK;
    for (int i = 0; i < batch->nitems && c.named > 0 && status == TEMPI_OK; ++i)
        if (is_named(batch, i, &c) && is_first(batch, i))
            status = tempi_cuda_order_streams(
                batch->device, (tempi_cuda_stream)batch->items[i].op.stream, batch->stream);
    return status;
}
