/* pack_driver.c: packs and unpacks random boxes in C, for sanitizers and other processors. Every
 * buffer ends or begins at an inaccessible page; the reference visits the boxes byte by byte.
 * Prints each ISA of this processor with its number of cases; exits with 1 at the first error. */
#include "base/thread.h"
#include "base/warm_up.h"
#include "pack/pack.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ENTRIES = 40, CASES = 400, LARGEST = 1 << 18 };

static uint64_t state = 88172645463325252u;

static int64_t draw(int64_t from, int64_t to) /* both included */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return from + (int64_t)(state % (uint64_t)(to - from + 1));
}

static int64_t draw_run(void)
{
    static const int64_t runs[] = {1,  2,  3,  4,  6,  7,  8,  12,  16, 17,
                                   24, 32, 33, 48, 63, 64, 65, 130, 300};
    return runs[draw(0, (int64_t)(sizeof runs / sizeof *runs) - 1)];
}

/* `size` bytes with a forbidden page in front (at_end 0) or behind (at_end 1). */
typedef struct fence {
    char *map;
    size_t bytes;
    char *data;
} fence;

static fence fence_make(int64_t size, int at_end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t inner = ((size_t)size + page) / page * page;
    fence made = {NULL, inner + 2 * page, NULL};
    made.map = mmap(NULL, made.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made.map == MAP_FAILED || mprotect(made.map + page, inner, PROT_READ | PROT_WRITE))
        exit(2);
    made.data = made.map + page + (at_end ? inner - (size_t)size : 0);
    return made;
}

static void fence_free(fence *gone)
{
    munmap(gone->map, gone->bytes);
}

/* ---- random boxes ---------------------------------------------------------------------------- */

static tempi_entry entries[ENTRIES + 1];
static tempi_table table = {0, entries};

static void make_regular(tempi_box *box)
{
    const int transposed = (int)draw(0, 2) == 0;
    box->run = transposed ? (int64_t)1 << draw(0, 4) : draw_run();
    int64_t packed = box->run;
    int64_t memory = box->run;
    box->ndims = (int32_t)draw(1, 3);
    for (int d = box->ndims - 1; d >= 0; d--) {
        box->dims[d].count = draw(2, d == box->ndims - 1 ? 70 : 6);
        box->dims[d].packed_stride = packed;
        box->dims[d].stride = memory + (draw(0, 3) ? draw(0, 2 * memory) : 0);
        packed *= box->dims[d].count;
        memory = box->dims[d].stride * box->dims[d].count;
    }
    if (transposed && box->ndims > 1) {
        const int64_t stride = box->dims[0].stride;
        box->dims[0].stride = box->run;
        box->dims[box->ndims - 1].stride = stride / box->run * box->run + box->run;
    }
}

/* For a table of different runs: of any length, or all from a power of two to twice that. */
static int64_t draw_length(int64_t power)
{
    return power ? draw(power, 2 * power) : draw_run();
}

static void make_table(tempi_box *box)
{
    const int64_t power = draw(0, 1) ? (int64_t)1 << draw(0, 5) : 0;
    box->run = draw(0, 2) ? draw_run() : 0;
    table.n = draw(1, ENTRIES);
    int64_t packed = 0;
    int64_t memory = 0;
    for (int64_t i = 0; i <= table.n; i++) {
        const int64_t length = box->run ? box->run : draw_length(power);
        entries[i].offset = memory;
        entries[i].packed = packed;
        packed += length;
        memory += length + draw(0, 9);
    }
    box->table = &table;
}

/* ---- the reference --------------------------------------------------------------------------- */

static int64_t where[LARGEST]; /* memory offset of each packed byte of one element */

static void note_run(const tempi_box *box, int64_t offset, int64_t packed)
{
    if (!box->table) {
        for (int64_t i = 0; i < box->run; i++)
            where[packed + i] = offset + i;
        return;
    }
    for (int64_t j = 0; j < table.n; j++) {
        const int64_t length = box->run ? box->run : entries[j + 1].packed - entries[j].packed;
        for (int64_t i = 0; i < length; i++)
            where[packed + entries[j].packed + i] = offset + entries[j].offset + i;
    }
}

static void note_box(const tempi_box *box, int d, int64_t offset, int64_t packed)
{
    if (d == box->ndims) {
        note_run(box, offset, packed);
        return;
    }
    for (int64_t i = 0; i < box->dims[d].count; i++)
        note_box(box, d + 1, offset + i * box->dims[d].stride,
                 packed + i * box->dims[d].packed_stride);
}

static int64_t box_size(const tempi_box *box)
{
    int64_t size = box->run;
    if (box->table)
        size = box->run ? table.n * box->run : entries[table.n].packed;
    for (int d = 0; d < box->ndims; d++)
        size *= box->dims[d].count;
    return size;
}

/* ---- one case -------------------------------------------------------------------------------- */

static void expect(int good, const char *what, int64_t at)
{
    if (good)
        return;
    printf("%s: %s differs at byte %lld\n", tempi_isa_name(), what, (long long)at);
    exit(1);
}

static int64_t place(const tempi_layout *layout, int64_t byte)
{
    return where[byte % layout->size] + byte / layout->size * layout->extent;
}

/* Packs bytes [first, first + n), and unpacks them into poisoned memory. */
static void check(const tempi_layout *layout, int64_t count, int64_t first, int64_t n, int at_end)
{
    const int64_t span = (count - 1) * layout->extent + layout->true_ub;
    fence memory = fence_make(span, at_end), packed = fence_make(n, !at_end),
          wanted = fence_make(span, at_end);
    const bool nontemporal = draw(0, 2) == 0;
    for (int64_t i = 0; i < span; i++)
        memory.data[i] = (char)(i * 7 + i / 251);
    memset(packed.data, 0x55, (size_t)n);
    (nontemporal ? tempi_pack_nontemporal : tempi_pack)(layout, count, memory.data, first, n,
                                                        packed.data);
    memset(wanted.data, 0x3c, (size_t)span);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = place(layout, first + i);
        expect(packed.data[i] == memory.data[at], "packed", i);
        wanted.data[at] = packed.data[i];
    }
    memset(memory.data, 0x3c, (size_t)span);
    (nontemporal ? tempi_unpack_nontemporal : tempi_unpack)(layout, count, packed.data, first, n,
                                                            memory.data);
    for (int64_t i = 0; i < span; i++)
        expect(memory.data[i] == wanted.data[i], "unpacked", i);
    fence_free(&memory);
    fence_free(&packed);
    fence_free(&wanted);
}

static void check_random(int number)
{
    tempi_box box = {0};
    if (number % 3)
        make_regular(&box);
    else
        make_table(&box);
    tempi_layout layout = {.size = box_size(&box), .nboxes = 1, .boxes = &box};
    if (layout.size > LARGEST)
        return;
    note_box(&box, 0, 0, 0);
    for (int64_t i = 0; i < layout.size; i++)
        layout.true_ub = where[i] + 1 > layout.true_ub ? where[i] + 1 : layout.true_ub;
    layout.extent = layout.true_ub + draw(0, 3);
    const int64_t count = draw(1, 3);
    const int64_t size = layout.size * count;
    const int64_t first = draw(0, size);
    check(&layout, count, 0, size, number % 2);
    check(&layout, count, first, draw(0, size - first), number % 2);
}

/* The thread counts the calls of kernels that are timed, until one is settled; then at most one of
 * 33 is, now and then. */
static void check_trials(void)
{
    enum { RUNS = 256, STRIDE = 1024, RUN = 16, MORE = 10000 };
    static const double seconds[8] = {1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 1e-6};
    static char memory[RUNS * STRIDE], packed[RUNS * RUN];
    tempi_box box = {.ndims = 1, .dims = {{RUNS, STRIDE, RUN}}, .run = RUN};
    const tempi_layout layout = {
        .size = RUNS * RUN, .extent = sizeof memory, .nboxes = 1, .boxes = &box};
    tempi_tune_pretend(-1);
    tempi_tune_weigh(seconds);
    const int before = tempi_this_thread.kernel_trials;
    tempi_pack(&layout, 1, memory, 0, layout.size, packed);
    tempi_pack(&layout, 1, memory, 0, layout.size, packed);
    expect(tempi_this_thread.kernel_trials == before + 1, "the number of trials", 0);
    for (int i = 0; i < 300; i++)
        tempi_pack(&layout, 1, memory, 0, layout.size, packed);
    const int settled = tempi_this_thread.kernel_trials;
    for (int i = 0; i < MORE; i++)
        tempi_pack(&layout, 1, memory, 0, layout.size, packed);
    const int again = tempi_this_thread.kernel_trials - settled;
    expect(again > 0 && again <= MORE / 33, "the number of trials", 1);
    tempi_tune_weigh(NULL);
}

/* A turn's first call, and others until so much time has passed, also in one call or between them.
 */
static void check_warm_up(void)
{
    double turn = 0, sparse = 0;
    expect(tempi_warms_up(&turn, 1, 9), "a first call's warm-up", 0);
    turn = 0;
    expect(tempi_warms_up(&turn, 1, 1 + 1e-6), "a first call's warm-up", 1);
    expect(tempi_warms_up(&turn, 1 + 2e-6, 1 + 3e-6), "a second call's warm-up", 2);
    expect(!tempi_warms_up(&turn, 1 + 4e-6, 1 + 60e-6), "a long call's warm-up", 3);
    expect(tempi_warms_up(&sparse, 1, 1 + 1e-6), "a first call's warm-up", 4);
    expect(!tempi_warms_up(&sparse, 2, 2 + 1e-6), "a later call's warm-up", 5);
}

int main(void)
{
    check_warm_up();
    static const char *const levels[] = {"avx512", "avx2", "sse2", "neon", "scalar"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (tempi_kernels_use(levels[i]) != TEMPI_OK)
            continue;
        for (int number = 0; number < CASES; number++) {
            if (number % 16 == 0)
                tempi_tune_pretend((int)draw(0, 7));
            check_random(number);
        }
        check_trials();
        printf("%s %d\n", tempi_isa_name(), CASES);
    }
    return 0;
}
