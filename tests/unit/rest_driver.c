/* rest_driver.c: the memory that processes write and others read, for test_memory_rest.py.
 *
 *     rest FOLDER                       blocks of messages are used again after a rest
 *     rings FOLDER MEMBERS LIMIT FREE ROOM CACHE
 *
 * No file may be longer than LIMIT, the file system says that it has FREE bytes, and has ROOM; a
 * core has a level 2 cache of CACHE bytes. Prints the length of a ring, by the process that makes
 * the memory and by another one.
 *
 * Exits with 1 at the first error. */
#include "exchange/post_memory.h"
#include "exchange/rest.h"
#include "exchange/segment.h"
#include "no_layouts.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

enum { PLACES = 4096 };

/* ---- blocks ---------------------------------------------------------------------------------- */

static int64_t room = INT64_MAX,
               told_free = INT64_MAX; /* bytes of a file; that are said to be left */

int __real_posix_fallocate(int file, off_t at, off_t bytes);
int __wrap_posix_fallocate(int file, off_t at, off_t bytes);
int __wrap_posix_fallocate(int file, off_t at, off_t bytes)
{
    return at + bytes > room ? ENOSPC : __real_posix_fallocate(file, at, bytes);
}

int __wrap_fstatvfs(int file, struct statvfs *about);
int __wrap_fstatvfs(int file, struct statvfs *about)
{
    (void)file;
    *about = (struct statvfs){.f_bavail = (fsblkcnt_t)told_free / 4096, .f_frsize = 4096};
    return 0;
}

typedef struct seen {
    uint64_t places[PLACES];
    int n;
} seen;

/* Whether it is a new one. */
static bool note(seen *s, uint64_t place)
{
    for (int i = 0; i < s->n; ++i)
        if (s->places[i] == place)
            return false;
    if (s->n == PLACES)
        fail("too many places");
    s->places[s->n++] = place;
    return true;
}

static uint64_t get_as(tempi_post_memory *memory, uint64_t bytes, bool reused)
{
    uint64_t room;
    const uint64_t place = tempi_post_block_get(memory, bytes, 0, reused, &room);
    if (place == 0 || room < bytes)
        fail("no block");
    memset(tempi_post_own_place(memory, place, room), 1, bytes);
    return place;
}

static uint64_t get(tempi_post_memory *memory, uint64_t bytes)
{
    return get_as(memory, bytes, false);
}

/* One block at a time: so many others before the first one again, and then all in their order. */
static void one_at_a_time(tempi_post_memory *memory, uint64_t bytes)
{
    seen all = {.n = 0};
    const int others = (int)tempi_rest_bytes() / (int)bytes;
    for (int i = 0; i < 3 * (others + 1); ++i) {
        const uint64_t place = get(memory, bytes);
        tempi_post_block_put(memory, place, false, bytes);
        if (i <= others && !note(&all, place))
            fail("a block is used again before it has rested");
        if (i > others && place != all.places[i % (others + 1)])
            fail("not the block that has rested longest");
    }
}

static void many_at_a_time(tempi_post_memory *memory, uint64_t bytes)
{
    enum { MANY = 100 };
    seen all = {.n = 0};
    for (int turn = 0; turn < 3; ++turn) {
        uint64_t places[MANY];
        for (int i = 0; i < MANY; ++i)
            places[i] = get(memory, bytes);
        for (int i = 0; i < MANY; ++i) {
            if (note(&all, places[i]) && turn > 0)
                fail("a new block, while others have rested");
            tempi_post_block_put(memory, places[i], false, bytes);
        }
    }
}

/* Blocks of other lengths count as well. */
static void in_turn(tempi_post_memory *memory)
{
    static const uint64_t sizes[] = {5 << 10, 24 << 10, 48 << 10, 160 << 10, 320 << 10};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    seen all = {.n = 0};
    uint64_t bytes = 0;
    for (int i = 0; i < 100 * SIZES; ++i) {
        const uint64_t size = sizes[i % SIZES], place = get(memory, size);
        bytes += note(&all, place) ? size : 0;
        tempi_post_block_put(memory, place, false, size);
    }
    const uint64_t rest = (uint64_t)tempi_rest_bytes();
    if (bytes < rest || bytes > rest + (1 << 20))
        fail("not as much memory as rests");
}

/* Some at a time, of any length, that come back in any order: none has another one's memory. */
static void in_any_order(tempi_post_memory *memory)
{
    enum { HELD = 40, STEPS = 4000 };
    struct {
        uint64_t place, bytes;
        bool reused;
        char value;
    } held[HELD] = {{0}};
    dice d = {7};
    for (int step = 0; step < STEPS; ++step) {
        const int64_t i = draw(&d, 0, HELD - 1);
        const uint64_t bytes = held[i].bytes;
        if (held[i].place == 0) {
            held[i].bytes = (uint64_t)draw(&d, 64, (int64_t)64 << draw(&d, 1, 14));
            held[i].reused = draw(&d, 0, 1);
            held[i].place = get_as(memory, held[i].bytes, held[i].reused);
            held[i].value = (char)draw(&d, 0, 100);
            memset(tempi_post_own_place(memory, held[i].place, held[i].bytes), held[i].value,
                   held[i].bytes);
            continue;
        }
        const char *at = tempi_post_own_place(memory, held[i].place, bytes);
        for (uint64_t k = 0; k < bytes; ++k)
            if (at[k] != held[i].value)
                fail("a block has the memory of another one");
        tempi_post_block_put(memory, held[i].place, held[i].reused, bytes);
        held[i].place = 0;
    }
}

static void short_ones(tempi_post_memory *memory)
{
    const uint64_t first = get(memory, TEMPI_REST_LEAST / 2);
    tempi_post_block_put(memory, first, false, TEMPI_REST_LEAST / 2);
    if (get(memory, TEMPI_REST_LEAST / 2) != first)
        fail("a short block rests");
}

static void without_memory(tempi_post_memory *memory)
{
    const uint64_t bytes = 192 << 10, first = get(memory, bytes);
    tempi_post_block_put(memory, first, false, bytes);
    room = 0;
    if (get(memory, bytes) != first)
        fail("a block rests, though there is no other one");
    room = INT64_MAX;
    tempi_post_block_put(memory, first, false, bytes);
    if (get(memory, bytes) != first)
        fail("memory is asked for at each block");
    tempi_post_block_put(memory, first, false, bytes);
    room = 0;
    if (get_as(memory, bytes, true) != first)
        fail("a block rests, though there is no other one to be reused");
    room = INT64_MAX;
    memory->refused = false;
}

/* The last one that came back, and none that rests. */
static void reused_ones(tempi_post_memory *memory)
{
    static const uint64_t sizes[] = {16 << 10, 320 << 10};
    for (int i = 0; i < 2; ++i) {
        const uint64_t bytes = sizes[i], rests = get(memory, bytes);
        tempi_post_block_put(memory, rests, false, bytes);
        const uint64_t first = get_as(memory, bytes, true), second = get_as(memory, bytes, true);
        if (first == rests || second == rests || first == second)
            fail("a block that rests is reused");
        tempi_post_block_put(memory, first, true, bytes);
        tempi_post_block_put(memory, second, true, bytes);
        if (get_as(memory, bytes, true) != second || get_as(memory, bytes, true) != first)
            fail("not the block that came back last");
        tempi_post_block_put(memory, first, true, bytes);
        const uint64_t other = get(memory, bytes);
        if (other == first)
            fail("a block that is reused has rested");
        tempi_post_block_put(memory, other, false, bytes);
    }
}

/* As much of other memory is to be written as rests: what is reused is not other memory. */
static void beside_reused(tempi_post_memory *memory)
{
    const uint64_t bytes = 128 << 10, first = get(memory, bytes);
    tempi_post_block_put(memory, first, false, bytes);
    for (int i = 0; i < 2 * (int)(memory->rest / bytes); ++i)
        tempi_post_block_put(memory, get_as(memory, bytes, true), true, bytes);
    if (get(memory, bytes) == first)
        fail("a block has rested while another one was reused");
}

/* Their pages are given back with those of the others. */
static void given_back(tempi_post_memory *memory)
{
    const uint64_t bytes = 192 << 10;
    for (int i = 0; i < 2; ++i)
        tempi_post_block_put(memory, get_as(memory, bytes, i == 1), i == 1, bytes);
    tempi_post_memory_give_back(memory);
    if (memory->idle != 0)
        fail("blocks keep their pages");
}

/* They keep their pages. */
static void too_long(tempi_post_memory *memory)
{
    const uint64_t bytes = TEMPI_POST_KEPT / 8 * 5, first = get(memory, bytes);
    for (int i = 0; i < 3; ++i) {
        tempi_post_block_put(memory, first, false, bytes);
        if (get(memory, bytes) != first)
            fail("a block rests that is too long");
    }
    tempi_post_block_put(memory, first, false, bytes);
}

/* Of many lengths: they take so much more memory than without rest. */
static void many_lengths(tempi_post_memory *memory)
{
    enum { MOST = 64 << 10 };
    seen all = {.n = 0};
    uint64_t taken = 0, needed = 0;
    for (int turn = 0; turn < 100; ++turn) {
        needed = 0;
        for (uint64_t bytes = TEMPI_REST_LEAST; bytes <= MOST; bytes += bytes / 4) {
            const uint64_t place = get(memory, bytes);
            taken += note(&all, place) ? bytes : 0;
            needed += bytes;
            for (int i = 0; i < 60; ++i) {
                const uint64_t other = get(memory, bytes);
                taken += note(&all, other) ? bytes : 0;
                tempi_post_block_put(memory, other, false, bytes);
            }
            tempi_post_block_put(memory, place, false, bytes);
        }
    }
    if (taken > 2 * needed + 2 * (uint64_t)tempi_rest_bytes())
        fail("too much memory rests");
}

static void with_memory(const char *folder, void (*check)(tempi_post_memory *memory))
{
    tempi_post_memory memory;
    char name[TEMPI_SEGMENT_NAME];
    if (!tempi_post_memory_create(folder, 2, name) ||
        !tempi_post_memory_open(&memory, folder, 2, 1, name, 256))
        fail("no memory");
    tempi_segment_unlink(folder, name);
    check(&memory);
    tempi_post_memory_close(&memory);
}

static void one_of_16_kib(tempi_post_memory *memory)
{
    one_at_a_time(memory, 16 << 10);
}

static void long_ones(tempi_post_memory *memory)
{
    one_at_a_time(memory, 128 << 10);
    one_at_a_time(memory, 1 << 20);
}

static void many_of_64_kib(tempi_post_memory *memory)
{
    many_at_a_time(memory, 64 << 10);
}

static int rest(const char *folder)
{
    void (*const checks[])(tempi_post_memory *) = {one_of_16_kib, long_ones,     many_of_64_kib,
                                                   in_turn,       short_ones,    without_memory,
                                                   in_any_order,  too_long,      many_lengths,
                                                   reused_ones,   beside_reused, given_back};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; ++i)
        with_memory(folder, checks[i]);
    return 0;
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* Their memory, and nothing of it twice. */
static void use_all(const tempi_segment *segment)
{
    for (int i = 0; i < segment->members * segment->members; ++i) {
        const int from = i / segment->members, to = i % segment->members;
        tempi_ring_end end;
        tempi_segment_end(segment, from, to, &end);
        if (from == to ? end.ring != NULL : end.bytes.capacity != (uint64_t)segment->capacity)
            fail("not that ring");
        if (!end.ring)
            continue;
        char *last = end.ring->data + end.bytes.capacity;
        if (end.reused.data) {
            if (end.reused.data < last || end.bytes.capacity <= end.reused.capacity)
                fail("a short ring is not beside a longer one");
            last = end.reused.data + end.reused.capacity;
        }
        if ((uintptr_t)end.ring % TEMPI_RING_ALIGN != 0 || last > segment->memory + segment->bytes)
            fail("a ring is not in the memory");
        for (char *at = (char *)end.ring; at < last; ++at)
            if (*at)
                fail("two rings have the same memory");
        memset(end.ring, 1, (size_t)(last - (char *)end.ring));
    }
}

/* What one process has stored the other one finds. */
static bool is_shared(const tempi_segment *made, tempi_segment *opened)
{
    use_all(opened);
    tempi_ring_end end;
    tempi_segment_end(made, 1, 0, &end);
    return end.ring->data[0] == 1 && end.ring->data[end.bytes.capacity - 1] == 1;
}

static int rings(const char *folder, int members, int64_t limit, int64_t other)
{
    const struct rlimit most = {.rlim_cur = (rlim_t)limit, .rlim_max = RLIM_INFINITY};
    char name[TEMPI_SEGMENT_NAME];
    if (setrlimit(RLIMIT_FSIZE, &most) != 0)
        fail("no limit");
    tempi_segment made = tempi_segment_create(folder, members, name);
    if (!made.memory) {
        printf("none\n");
        return 0;
    }
    level_2_cache = other;
    tempi_segment opened = tempi_segment_open(folder, members, name);
    if (!opened.memory || opened.bytes != made.bytes)
        fail("it cannot be opened");
    tempi_segment_unlink(folder, name);
    if (!is_shared(&made, &opened))
        fail("not the same rings");
    printf("%ld %ld\n", (long)made.capacity, (long)opened.capacity);
    tempi_segment_close(&made);
    tempi_segment_close(&opened);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    if (strcmp(argv[1], "rest") == 0) {
        level_2_cache = atoll(argv[3]);
        return rest(argv[2]);
    }
    if (argc != 9)
        return 2;
    told_free = atoll(argv[5]);
    room = atoll(argv[6]);
    level_2_cache = atoll(argv[7]);
    return rings(argv[2], atoi(argv[3]), atoll(argv[4]), atoll(argv[8]));
}
