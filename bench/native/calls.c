/* calls.c: sequences of any calls: of the CUDA driver, whose API is loaded at run time, and of MPI.
 * Every argument is an integer or a pointer in its own register or stack slot (System V, x86-64 and
 * arm64), and a function ignores the arguments beyond its own. */
#include "native.h"

#include <string.h>

typedef int (*any)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                   uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static int call(const struct bench_call *c)
{
    any function;
    const uintptr_t *a = c->arguments;
    memcpy(&function, &c->function, sizeof function);
    return function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
}

int bench_calls_in_turn(const void *sequence)
{
    const struct bench_sequence *s = sequence;
    for (int64_t i = 0; i < s->n; i++) {
        const int code = call(&s->calls[i]);
        if (code != 0)
            return code;
    }
    return 0;
}
