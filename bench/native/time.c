#include "native.h"

#include <time.h>

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_time(bench_op op, const void *argument, int64_t loops)
{
    const double start = bench_now();
    for (int64_t i = 0; i < loops; i++) {
        const int code = op(argument);
        if (code != 0)
            return code > 0 ? -(double)code : (double)code;
    }
    return bench_now() - start;
}
