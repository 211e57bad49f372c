#include "cuda/copy_list.h"
#include "base/stats.h"

#include <stdlib.h>
#include <string.h>

enum { UNIFIED = 4 /* CU_MEMORYTYPE_UNIFIED: the address tells which memory it is */ };

static void note_one(int64_t bytes)
{
    tempi_stat_add(TEMPI_STAT_device_copies, 1);
    tempi_stat_add(TEMPI_STAT_device_copied_bytes, bytes);
}

int tempi_cuda_copy(tempi_cuda_stream stream, uint64_t dst, uint64_t src, int64_t n)
{
    note_one(n);
    return TEMPI_CU(MemcpyAsync, dst, src, (size_t)n, stream);
}

int tempi_cuda_copy_planned(tempi_cuda_stream stream, const tempi_device_copy *copy)
{
    if (copy->rows == 0)
        return tempi_cuda_copy(stream, copy->dst, copy->src, copy->n);
    const tempi_memory_copy2d rows = {.src_type = UNIFIED,
                                      .src_device = copy->src,
                                      .src_pitch = (size_t)copy->src_pitch,
                                      .dst_type = UNIFIED,
                                      .dst_device = copy->dst,
                                      .dst_pitch = (size_t)copy->dst_pitch,
                                      .width = (size_t)copy->n,
                                      .height = (size_t)copy->rows};
    note_one(copy->n * copy->rows);
    return TEMPI_CU(Memcpy2DAsync, &rows, stream);
}

static bool resize(void **array, int room, size_t size)
{
    void *larger = realloc(*array, (size_t)room * size);
    *array = larger ? larger : *array;
    return larger != NULL;
}

static bool reserve(tempi_copy_list *list)
{
    const int room = list->room ? 2 * list->room : 32;
    void *dst = list->dst, *src = list->src, *bytes = list->bytes;
    const bool good = resize(&dst, room, sizeof *list->dst) &&
                      resize(&src, room, sizeof *list->src) &&
                      resize(&bytes, room, sizeof *list->bytes);
    *list = (tempi_copy_list){dst, src, bytes, list->n, good ? room : list->room};
    return good;
}

int tempi_copy_list_add(tempi_copy_list *list, uint64_t dst, uint64_t src, int64_t n)
{
    if (list->n == list->room && !reserve(list))
        return TEMPI_ERR_MEMORY;
    list->dst[list->n] = dst;
    list->src[list->n] = src;
    list->bytes[list->n++] = (size_t)n;
    return TEMPI_OK;
}

void tempi_copy_list_free(tempi_copy_list *list)
{
    free(list->dst);
    free(list->src);
    free(list->bytes);
    *list = (tempi_copy_list){.n = 0};
}

static int run_each(const tempi_copy_list *list, tempi_cuda_stream stream)
{
    int status = TEMPI_OK;
    for (int i = 0; i < list->n && status == TEMPI_OK; ++i)
        status = tempi_cuda_copy(stream, list->dst[i], list->src[i], (int64_t)list->bytes[i]);
    return status;
}

static void note(const tempi_copy_list *list)
{
    int64_t bytes = 0;
    for (int i = 0; i < list->n; ++i)
        bytes += (int64_t)list->bytes[i];
    tempi_stat_add(TEMPI_STAT_device_copies, list->n);
    tempi_stat_add(TEMPI_STAT_device_copied_bytes, bytes);
}

/* A driver that has the function may refuse these copies; to copy some bytes twice is harmless. */
int tempi_copy_list_run(const tempi_copy_list *list, tempi_cuda_stream stream)
{
    tempi_memcpy_attributes in_stream_order = {.source_order = TEMPI_CUDA_SOURCE_IN_STREAM_ORDER};
    size_t first = 0;
    if (list->n < 2 || !tempi_cu.MemcpyBatchAsync)
        return run_each(list, stream);
    const int result = tempi_cu.MemcpyBatchAsync(list->dst, list->src, list->bytes, (size_t)list->n,
                                                 &in_stream_order, &first, 1, stream);
    if (result == TEMPI_CUDA_INVALID_VALUE || result == TEMPI_CUDA_NOT_SUPPORTED)
        return run_each(list, stream);
    note(list);
    return tempi_cuda_check(result, "cuMemcpyBatchAsync");
}
