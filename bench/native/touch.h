/* touch.h: one access to each cache line of some runs, for the bounds. */
#ifndef TEMPI_BENCH_TOUCH_H
#define TEMPI_BENCH_TOUCH_H
#include <stdint.h>

enum { LINE = 64 };

#define INLINE static inline __attribute__((always_inline))

INLINE char *line_of(const char *p)
{
    return (char *)((uintptr_t)p & ~(uintptr_t)(LINE - 1));
}

INLINE void access(char *p, int store)
{
    if (store)
        *(volatile char *)p = 0;
    else
        (void)*(volatile char *)p;
}

/* One access in each line of [first, end), none before `first`. Returns the line after the last
 * one. */
INLINE char *touch(char *first, const char *end, int store)
{
    if (first >= end)
        return first;
    access(first, store);
    char *p = line_of(first) + LINE;
#pragma GCC unroll 4
    for (; p < end; p += LINE)
        access(p, store);
    return p;
}

/* The same for a run of at most LINE bytes, which has at most two lines: no loop and no branch, so
 * that more of them are under way at once. A second access to one line costs next to nothing. */
INLINE void touch_short(char *p, int64_t run, int store)
{
    access(p, store);
    access(p + run - 1, store);
}

/* 1: no run of a row spans two lines, wherever it is in the row. */
INLINE int single(const char *memory, int64_t stride, int64_t run)
{
    const uintptr_t within = (uintptr_t)memory & (LINE - 1);
    if (run <= LINE && stride % LINE == 0)
        return within + (uintptr_t)run <= LINE;
    int64_t power = 1;
    while (power < run)
        power *= 2;
    return power <= LINE && within % (uintptr_t)power == 0 && stride % power == 0;
}

/* A row of runs `stride` apart. Where the gaps are shorter than a line, the row touches every line
 * from its lowest to its highest byte; else each run touches its own. */
typedef struct touched_row {
    char *memory;
    int64_t stride, run;
    int close, one;
    char *touched; /* the line after the last one of a close row */
} touched_row;

INLINE touched_row row_of(char *memory, int64_t stride, int64_t run)
{
    const int64_t step = stride < 0 ? -stride : stride;
    return (touched_row){.memory = memory,
                         .stride = stride,
                         .run = run,
                         .close = step - run < LINE,
                         .one = single(memory, stride, run)};
}

/* Its m runs from the i-th one on; in ascending order. */
INLINE void touch_runs(touched_row *row, int64_t i, int64_t m, int store)
{
    const int64_t stride = row->stride, run = row->run;
    char *first = row->memory + i * stride;
    if (row->close) {
        const int64_t step = stride < 0 ? -stride : stride;
        char *low = stride < 0 ? first + (m - 1) * stride : first;
        char *start = stride >= 0 && row->touched > low ? row->touched : low;
        row->touched = touch(start, low + (m - 1) * step + run, store);
    } else if (row->one) {
        for (int64_t k = 0; k < m; k++)
            access(first + k * stride, store);
    } else if (run <= LINE) {
        for (int64_t k = 0; k < m; k++)
            touch_short(first + k * stride, run, store);
    } else {
        for (int64_t k = 0; k < m; k++)
            touch(first + k * stride, first + k * stride + run, store);
    }
}

#endif
