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

/* A wrapper that does nothing, as an interposer has it: the exported name jumps through a slot to
 * its entry, which jumps to the library's function. The three are in pages of their own, as those
 * of an interposer are: after a call of a microsecond they are no longer where the processor finds
 * them at once. */
enum { PAGE = 4096 };
static _Alignas(PAGE) struct {
    any volatile entry, next; /* else a compiler may know them */
    char rest[PAGE - 2 * sizeof(any)];
} wrapped;

#define PARAMETERS                                                                             \
    uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f, uintptr_t g, \
        uintptr_t h, uintptr_t i, uintptr_t j, uintptr_t k

__attribute__((aligned(PAGE))) static int wrapper_entry(PARAMETERS)
{
    return wrapped.next(a, b, c, d, e, f, g, h, i, j, k);
}

__attribute__((aligned(PAGE))) int bench_bare_wrapper(PARAMETERS)
{
    return wrapped.entry(a, b, c, d, e, f, g, h, i, j, k);
}

__attribute__((aligned(PAGE))) void bench_wrap_barely(uintptr_t function)
{
    wrapped.entry = wrapper_entry;
    any next;
    memcpy(&next, &function, sizeof next);
    wrapped.next = next;
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
