/* layout_driver.c: builds every kind of layout in C, for sanitizers, failing allocations and other
 * processors. With no argument: prints each canonical layout as text. With a number n: only the
 * n-th allocation fails; prints the status of each type. Exits with 1 on a leak. */
#include "tempi.h"
#include <stdio.h>
#include <stdlib.h>

static long fail_at = -1; /* allocations until one fails; -1: never */
static long failures;

static int allocation_fails(void)
{
    if (fail_at < 0 || --fail_at > 0)
        return 0;
    if (fail_at == 0) {
        failures++;
        return 1;
    }
    return 0;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return allocation_fails() ? NULL : __real_malloc(bytes);
}
void *__wrap_calloc(size_t n, size_t bytes)
{
    return allocation_fails() ? NULL : __real_calloc(n, bytes);
}
void *__wrap_realloc(void *old, size_t bytes)
{
    return allocation_fails() ? NULL : __real_realloc(old, bytes);
}

enum { N = 400, FEW = 40 };
static int64_t places[N], lengths[N];

/* Each kind returns a status and, if that is TEMPI_OK, a raw layout. */
typedef int (*kind)(tempi_layout **out);

static int make_face(tempi_layout **out)
{
    const int64_t sizes[] = {34, 34, 34}, subsizes[] = {32, 32, 2}, starts[] = {1, 1, 30};
    tempi_layout *element;
    int status = tempi_layout_bytes(8, &element);
    if (status)
        return status;
    status = tempi_layout_subarray(3, sizes, subsizes, starts, TEMPI_ORDER_FORTRAN, element, out);
    tempi_layout_free(element);
    return status;
}

static int make_cyclic(tempi_layout **out)
{
    const int64_t sizes[] = {50, 31}, arguments[] = {3, 2}, processes[] = {2, 3};
    const int kinds[] = {TEMPI_DISTRIBUTE_CYCLIC, TEMPI_DISTRIBUTE_CYCLIC};
    tempi_layout *element;
    int status = tempi_layout_pair(8, 8, 4, 16, &element);
    if (status)
        return status;
    status = tempi_layout_darray(6, 4, 2, sizes, kinds, arguments, processes, TEMPI_ORDER_C,
                                 element, out);
    tempi_layout_free(element);
    return status;
}

static int make_indexed_of(int64_t n, tempi_layout *element, tempi_layout **out)
{
    const int status = tempi_layout_hindexed(n, lengths, places, element, out);
    tempi_layout_free(element);
    return status;
}

static int make_indexed(tempi_layout **out)
{
    tempi_layout *element;
    const int status = tempi_layout_bytes(4, &element);
    return status ? status : make_indexed_of(N, element, out);
}

static int make_indexed_twice(tempi_layout **out)
{
    tempi_layout *inner, *bytes;
    int status = tempi_layout_bytes(3, &bytes);
    if (status)
        return status;
    status = make_indexed_of(FEW, bytes, &inner);
    return status ? status : make_indexed_of(FEW, inner, out);
}

static int make_block(tempi_layout **out)
{
    tempi_layout *element, *vector;
    int status = tempi_layout_bytes(8, &element);
    if (status)
        return status;
    status = tempi_layout_hvector(3, 1, -40, element, &vector);
    tempi_layout_free(element);
    if (status)
        return status;
    status = tempi_layout_hindexed_block(N, 2, places, vector, out);
    tempi_layout_free(vector);
    return status;
}

static int make_struct(tempi_layout **out)
{
    const tempi_layout *members[N];
    tempi_layout *kinds[3] = {NULL, NULL, NULL};
    int status = tempi_layout_bytes(8, &kinds[0]);
    if (!status)
        status = tempi_layout_pair(2, 4, 4, 8, &kinds[1]);
    if (!status)
        status = tempi_layout_hvector(4, 1, 100, kinds[0], &kinds[2]);
    for (int i = 0; i < N; i++)
        members[i] = kinds[i % 7 % 3];
    if (!status)
        status = tempi_layout_struct(N, lengths, places, members, out);
    for (int i = 0; i < 3; i++)
        tempi_layout_free(kinds[i]);
    return status;
}

/* More dimensions than a box has, over `inner`, which is freed. */
static int make_deep(tempi_layout *inner, tempi_layout **out)
{
    int status = TEMPI_OK;
    for (int i = 0; i < 13 && !status; i++) {
        tempi_layout *outer = NULL;
        status = tempi_layout_hvector(2, 1, 3 * (inner->true_ub - inner->true_lb) + 1, inner,
                                      &outer);
        tempi_layout_free(inner);
        inner = outer;
    }
    if (!status)
        *out = inner;
    return status;
}

static int make_deep_regular(tempi_layout **out)
{
    tempi_layout *inner;
    const int status = tempi_layout_bytes(1, &inner);
    return status ? status : make_deep(inner, out);
}

static int make_deep_irregular(tempi_layout **out)
{
    tempi_layout *inner, *bytes;
    int status = tempi_layout_bytes(1, &bytes);
    if (status)
        return status;
    status = make_indexed_of(6, bytes, &inner);
    return status ? status : make_deep(inner, out);
}

static int make_resized(tempi_layout **out)
{
    tempi_layout *inner, *twice;
    int status = make_block(&inner);
    if (status)
        return status;
    status = tempi_layout_resized(-8, 123456, inner, &twice);
    tempi_layout_free(inner);
    if (status)
        return status;
    status = tempi_layout_contiguous(5, twice, out);
    tempi_layout_free(twice);
    return status;
}

static const kind kinds[] = {make_face,          make_cyclic,         make_indexed,
                             make_indexed_twice, make_block,          make_struct,
                             make_deep_regular,  make_deep_irregular, make_resized};

static void print_layout(const tempi_layout *l)
{
    uint64_t sum = 0;
    printf("size %lld lb %lld extent %lld true %lld..%lld runs %lld boxes %d dense %d\n",
           (long long)l->size, (long long)l->lb, (long long)l->extent, (long long)l->true_lb,
           (long long)l->true_ub, (long long)l->runs, l->nboxes, l->dense);
    for (int32_t i = 0; i < l->nboxes; i++) {
        const tempi_box *b = &l->boxes[i];
        printf("  box %lld %lld %lld:", (long long)b->offset, (long long)b->packed,
               (long long)b->run);
        for (int d = 0; d < b->ndims; d++)
            printf(" (%lld %lld %lld)", (long long)b->dims[d].count, (long long)b->dims[d].stride,
                   (long long)b->dims[d].packed_stride);
        for (int64_t k = 0; b->table && k < b->table->n; k++)
            sum = sum * 31 + (uint64_t)b->table->entries[k].offset * 7 +
                  (uint64_t)b->table->entries[k].packed;
        printf(" table %lld sum %llu\n", (long long)(b->table ? b->table->n : 0),
               (unsigned long long)sum);
    }
}

int main(int argc, char **argv)
{
    for (int i = 0; i < N; i++) {
        places[i] = 40 * i + 8 * (i * i % 5);
        lengths[i] = 1 + i * 7 % 3;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tempi_layout *raw = NULL;
        const tempi_layout *canonical = NULL;
        fail_at = argc > 1 ? atol(argv[1]) : -1;
        int status = kinds[i](&raw);
        if (!status)
            status = tempi_layout_canonical(raw, NULL, NULL, &canonical);
        fail_at = -1;
        if (argc > 1)
            printf("%zu: %d\n", i, status);
        else if (!status)
            print_layout(canonical);
        tempi_layout_release(canonical);
        tempi_layout_free(raw);
    }
    if (tempi_layout_alive() != 0)
        printf("%lld layouts left\n", (long long)tempi_layout_alive());
    return tempi_layout_alive() != 0 || (argc > 1 && failures == 0);
}
