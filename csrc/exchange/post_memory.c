#include "exchange/post_memory.h"
#include "exchange/rest.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Linux 5.14 */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SLAB   TEMPI_POST_SLAB
#define REGION ((uint64_t)64 << 30) /* the file is sparse */

enum {
    FIRST = 8 << 10 /* bytes of blocks, allocated at once */,
    LEAST = 256,
    LEAST_LOG = 8,
    SHORT = 64 << 10,
    STEPS = 4
};

_Static_assert(TEMPI_POST_CLASSES == 30 * STEPS, "to the largest region");

typedef tempi_post_view view;
typedef struct tempi_post_list list;

/* ---- mapping --------------------------------------------------------------------------------- */

static uint64_t page(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A long block has a page more than its room: what it holds may begin a little behind its place. */
static uint64_t whole(uint64_t room)
{
    return room + page();
}

static bool grow(view *v, uint64_t slab)
{
    if (slab < v->n)
        return true;
    const uint64_t n = slab < 32 ? 64 : 2 * slab;
    struct tempi_post_slab *slabs = realloc(v->slabs, n * sizeof *slabs);
    if (!slabs)
        return false;
    memset(slabs + v->n, 0, (n - v->n) * sizeof *slabs);
    v->slabs = slabs;
    v->n = n;
    return true;
}

void *tempi_post_map(tempi_post_memory *memory, int member, uint64_t place, uint64_t room)
{
    view *v = &memory->views[member];
    const uint64_t slab = place / SLAB, bytes = room > SHORT ? whole(room) : SLAB;
    if (!grow(v, slab))
        return NULL;
    if (!v->slabs[slab].address) {
        void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->file,
                          (off_t)((uint64_t)member * REGION + slab * SLAB));
        if (made == MAP_FAILED)
            return NULL;
        (void)madvise(made, bytes, MADV_DONTFORK);
        if (slab > 0 && bytes <= memory->rest) /* those that rest are many, and would seem slow */
            (void)madvise(made, bytes,
                          member == memory->own ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
        v->slabs[slab] = (struct tempi_post_slab){made, bytes};
    }
    return v->slabs[slab].address + place % SLAB;
}

static void give_pages_back(const tempi_post_memory *memory, uint64_t place, uint64_t bytes)
{
    (void)fallocate(memory->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)((uint64_t)memory->own * REGION + place), (off_t)bytes);
}

static bool allocate(const tempi_post_memory *memory, uint64_t place, uint64_t bytes)
{
    const uint64_t at = (uint64_t)memory->own * REGION + place;
    if (tempi_segment_allocate(memory->file, (int64_t)at, (int64_t)bytes))
        return true;
    give_pages_back(memory, place, bytes);
    return false;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The smallest one that holds so many bytes; sets *bytes to its size. */
static int class_of(uint64_t *bytes)
{
    const uint64_t n = *bytes < LEAST ? LEAST : *bytes;
    const int log = 63 - __builtin_clzll(n);
    const uint64_t step = (uint64_t)1 << (log - 2), steps = (n + step - 1) / step;
    *bytes = steps * step;
    return (log - LEAST_LOG) * STEPS + (int)(steps - STEPS);
}

/* The start of a block that is not in use. */
typedef struct idle_block {
    uint64_t next;  /* place, of the list's last one it is anything */
    uint64_t since; /* memory->given, when it was given out */
} idle_block;

static uint64_t pop(tempi_post_memory *memory, list *from, uint64_t room)
{
    const uint64_t place = from->first;
    const idle_block *block = place ? tempi_post_own_place(memory, place, room) : NULL;
    if (!block)
        return 0;
    from->first = place == from->last ? 0 : block->next;
    return place;
}

/* Blocks in use were given out after this one, if they come back in their order. */
static void push(tempi_post_memory *memory, list *to, uint64_t place, uint64_t room)
{
    idle_block *block = tempi_post_own_place(memory, place, room);
    *block = (idle_block){.next = to->first, .since = memory->given - memory->used};
    to->last = to->first ? to->last : place;
    to->first = place;
}

/* Behind those that are there. */
static void append(tempi_post_memory *memory, list *to, uint64_t place, uint64_t room)
{
    if (to->first == 0) {
        push(memory, to, place, room);
        return;
    }
    idle_block *block = tempi_post_own_place(memory, place, room),
               *last = tempi_post_own_place(memory, to->last, room);
    block->since = memory->given - memory->used;
    last->next = to->last = place;
}

static bool has_rested(tempi_post_memory *memory, const list *from, uint64_t room)
{
    const idle_block *block = tempi_post_own_place(memory, from->first, room);
    return block && (room < TEMPI_REST_LEAST || memory->given - block->since >= memory->rest);
}

/* Whether the first one is to rest, and another one to be made. */
static bool lets_rest(tempi_post_memory *memory, const list *from, uint64_t room)
{
    const bool has_room = room > SHORT ? memory->idle + room <= TEMPI_POST_KEPT
                                       : memory->spare + room <= 2 * memory->rest;
    return has_room && !memory->refused && !has_rested(memory, from, room);
}

static uint64_t cut(tempi_post_memory *memory, uint64_t room)
{
    if (memory->end - memory->at < room) {
        if (memory->top + SLAB > REGION || !allocate(memory, memory->top, SLAB) ||
            !tempi_post_own_place(memory, memory->top, 0))
            return 0;
        memory->at = memory->top;
        memory->end = memory->top += SLAB;
    }
    memory->at += room;
    return memory->at - room;
}

static uint64_t long_block(tempi_post_memory *memory, uint64_t room, list *without)
{
    uint64_t place = without->first;
    if (place != 0)
        return allocate(memory, place + page(), room) ? pop(memory, without, room) : 0;
    place = memory->top;
    if (whole(room) > REGION - place || !allocate(memory, place, whole(room)))
        return 0;
    if (!tempi_post_own_place(memory, place, room)) {
        give_pages_back(memory, place, whole(room));
        return 0;
    }
    memory->top += (whole(room) + SLAB - 1) / SLAB * SLAB;
    return place;
}

static uint64_t new_block(tempi_post_memory *memory, int class, uint64_t room)
{
    return room > SHORT ? long_block(memory, room, &memory->without[class]) : cut(memory, room);
}

static uint64_t used_block(tempi_post_memory *memory, list *from, uint64_t room)
{
    const uint64_t place = pop(memory, from, room);
    if (place != 0 && room > SHORT)
        memory->idle -= room;
    return place;
}

static uint64_t rested_block(tempi_post_memory *memory, int class, uint64_t room)
{
    list *used = &memory->free[class], *reused = &memory->reused[class];
    const bool any = used->first != 0, spares = any && lets_rest(memory, used, room);
    uint64_t place = !any && reused->first != 0 ? used_block(memory, reused, room)
                     : !any || spares           ? new_block(memory, class, room)
                                                : 0;
    if (spares && place != 0 && room <= SHORT)
        memory->spare += room;
    if (place == 0 && any) {
        memory->refused |= spares;
        place = used_block(memory, used, room);
    }
    if (place != 0) {
        memory->given += room;
        memory->used += room;
    }
    return place;
}

static uint64_t reused_block(tempi_post_memory *memory, int class, uint64_t room)
{
    list *used = &memory->reused[class], *rested = &memory->free[class];
    if (used->first == 0 && rested->first != 0 && has_rested(memory, rested, room))
        used = rested;
    const uint64_t place = used->first != 0 ? used_block(memory, used, room)
                                            : new_block(memory, class, room);
    /* rather one that has not rested than none */
    return place == 0 && rested->first != 0 ? used_block(memory, rested, room) : place;
}

uint64_t tempi_post_block_get(tempi_post_memory *memory, uint64_t bytes, uint64_t shift,
                              bool reused, uint64_t *room)
{
    *room = bytes > SHORT ? bytes : bytes + shift;
    if (bytes > REGION / 2)
        return 0;
    const int class = class_of(room);
    return (reused ? reused_block : rested_block)(memory, class, *room);
}

void tempi_post_block_put(tempi_post_memory *memory, uint64_t place, bool reused, uint64_t room)
{
    const int class = class_of(&room);
    memory->used -= reused ? 0 : room;
    if (room > SHORT && memory->idle + room > TEMPI_POST_KEPT) {
        give_pages_back(memory, place + page(), room);
        push(memory, &memory->without[class], place, room);
        return;
    }
    memory->idle += room > SHORT ? room : 0;
    if (reused)
        push(memory, &memory->reused[class], place, room);
    else
        (room < TEMPI_REST_LEAST ? push : append)(memory, &memory->free[class], place, room);
}

/* But for the first page, where the list is. */
static void empty_class(tempi_post_memory *memory, list *from, int class, uint64_t room)
{
    for (uint64_t place; (place = pop(memory, from, room)) != 0;) {
        give_pages_back(memory, place + page(), room);
        memory->idle -= room;
        push(memory, &memory->without[class], place, room);
    }
}

void tempi_post_memory_give_back(tempi_post_memory *memory)
{
    memory->refused = false;
    for (int class = 0; class < TEMPI_POST_CLASSES; ++class) {
        const int log = class / STEPS + LEAST_LOG;
        const uint64_t room = ((uint64_t)1 << (log - 2)) * (uint64_t)(class % STEPS + STEPS);
        if (room <= SHORT)
            continue;
        empty_class(memory, &memory->free[class], class, room);
        empty_class(memory, &memory->reused[class], class, room);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static int64_t length_for(int members)
{
    return (int64_t)REGION * members;
}

bool tempi_post_memory_create(const char *folder, int members, char name[TEMPI_SEGMENT_NAME])
{
    const int file = tempi_segment_make_file(folder, length_for(members), name);
    if (file >= 0)
        close(file);
    return file >= 0;
}

bool tempi_post_memory_open(tempi_post_memory *memory, const char *folder, int members, int own,
                            const char *name, uint64_t reserved)
{
    *memory =
        (tempi_post_memory){.file = tempi_segment_open_file(folder, length_for(members), name),
                            .members = members,
                            .own = own,
                            .rest = (uint64_t)tempi_rest_bytes(),
                            .views = calloc((size_t)members, sizeof *memory->views),
                            .top = SLAB,
                            .at = reserved,
                            .end = reserved + FIRST};
    return memory->file >= 0 && memory->views && memory->end <= SLAB &&
           allocate(memory, 0, memory->end) && tempi_post_own_place(memory, 0, 0);
}

static void unmap(view *v)
{
    for (uint64_t i = 0; i < v->n; ++i)
        if (v->slabs[i].address)
            munmap(v->slabs[i].address, v->slabs[i].bytes);
    free(v->slabs);
}

void tempi_post_memory_close(tempi_post_memory *memory)
{
    for (int i = 0; memory->views && i < memory->members; ++i)
        unmap(&memory->views[i]);
    if (memory->file >= 0)
        close(memory->file);
    free(memory->views);
}
