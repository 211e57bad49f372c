/* Wrappers that do nothing, as an interposer has them: the exported name jumps through a slot to
 * its entry, which jumps to the library's function. What that takes in a call of a microsecond,
 * after which the wrapper's code is no longer where the processor finds it at once, depends on the
 * sets of the first cache that it shares with the library's code, and those follow from its place
 * in a page. So name and entry are there at each place, and a call is wrapped by those that lie as
 * the interposer's own do (arm64: by such a name and the first entry). */
#include "native.h"

#include <string.h>

enum { PAGE = 4096, STEP = 16 };

/* In a page of their own, as an interposer's slots are. */
_Alignas(PAGE) __attribute__((visibility("hidden"))) struct {
    struct {
        uintptr_t volatile entry, next;
    } of[BENCH_BARE_WRAPPERS];
    char rest[PAGE - BENCH_BARE_WRAPPERS * 2 * sizeof(uintptr_t)];
} bench_wrapped;

#ifdef __x86_64__
#define JUMP(slot) "endbr64\njmp *bench_wrapped+" slot "(%rip)\n"
#else
#define JUMP(slot)                        \
    "hint #34\nadrp x16, bench_wrapped\n" \
    "ldr x16, [x16, #:lo12:bench_wrapped+" slot "]\nbr x16\n"
#endif

/* A page of them, through one slot. */
#define JUMPS(name, slot)                                                                   \
    extern __attribute__((visibility("hidden"))) const char name[PAGE];                     \
    __asm__(".pushsection .text\n.balign 4096\n.hidden " #name "\n.globl " #name "\n" #name \
            ":\n.rept 256\n.balign 16\n" JUMP(slot) ".endr\n.balign 4096\n"                 \
                                                    ".popsection")
JUMPS(bench_names_0, "0");
JUMPS(bench_entries_0, "8");
JUMPS(bench_names_1, "16");
JUMPS(bench_entries_1, "24");

static uintptr_t lying_as(const char *code, uintptr_t other)
{
    return (uintptr_t)code + other % PAGE / STEP * STEP;
}

/* Where an interposer's name jumps to; 0: it is none, or of another processor. */
static uintptr_t target_of(uintptr_t name)
{
    static const unsigned char jump[] = {0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25}; /* of x86-64 */
    int32_t distance;
    uintptr_t target;
    if (!name || memcmp((const void *)name, jump, sizeof jump) != 0)
        return 0;
    memcpy(&distance, (const char *)name + sizeof jump, sizeof distance);
    const uintptr_t end = name + sizeof jump + sizeof distance;
    memcpy(&target, (const void *)(end + (uintptr_t)(intptr_t)distance), sizeof target);
    return target;
}

uintptr_t bench_bare_wrapper(int which, uintptr_t function, uintptr_t as)
{
    static const char *const names[] = {bench_names_0, bench_names_1};
    static const char *const entries[] = {bench_entries_0, bench_entries_1};
    bench_wrapped.of[which].entry = lying_as(entries[which], target_of(as));
    bench_wrapped.of[which].next = function;
    return lying_as(names[which], as);
}
