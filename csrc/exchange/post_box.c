/* A place is an offset in the sender's region. A block is memory for a message, or for the bytes of
 * one: of a size class, four to each power of two. Short blocks are cut from slabs; longer ones are
 * slabs of their own. Slabs are mapped when they are used first, on both sides, and stay mapped.
 *
 * Memory is allocated before it is used: where shared memory is exhausted that fails, and no store
 * does. A long block that is not in use gives back its pages, if many are not. */
#include "exchange/post_box.h"
#include "exchange/segment.h"
#include "exchange/single_copy.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLAB   ((uint64_t)256 << 10)
#define REGION ((uint64_t)64 << 30) /* the file is sparse */
#define IDLE   ((uint64_t)64 << 20) /* bytes of long blocks that are kept for the next messages */

/* FIRST: bytes for the first messages, allocated at once. */
enum {
    FIRST = 8 << 10,
    LEAST = 256,
    LEAST_LOG = 8,
    SHORT = 64 << 10,
    STEPS = 4,
    CLASSES = 30 * STEPS,
    LINE = 128
};

/* Of a message. */
enum {
    SENT,
    CLAIMED, /* the receiver reads what is offered */
    TAKEN,
    WITHDRAWN, /* the sender packs what was offered; SENT again, when it has */
    REFUSED    /* the receiver cannot read it: likewise */
};

/* The first message of a list, which nobody sent; how many the receiver has come to, and how it
 * can get at the sender's memory. */
typedef struct head {
    tempi_post first;
    _Alignas(LINE) uint64_t passed;
    uint32_t access; /* TEMPI_ACCESS_* */
} head;

_Static_assert(sizeof(tempi_post) <= LINE, "the receiver's part of a head has a line of its own");

typedef struct mapping {
    char *address;
    uint64_t bytes;
} mapping;

/* What this process has mapped of a region, by the number of the first slab. */
typedef struct view {
    mapping *slabs;
    uint64_t n;
} view;

/* The list of one receiver. */
typedef struct outbox {
    uint64_t oldest, newest; /* places: of messages in use, or of `first` */
    uint64_t index;          /* how many came before the oldest */
    uint64_t unsent;         /* the place of the one that is being made */
    tempi_copy_choice choice;
    tempi_offer_pause pause; /* of descriptions for its devices */
} outbox;

struct tempi_post_box {
    int file, members, own;
    view *views;
    uint64_t *next;            /* for each sender: the place of its last message that was read */
    outbox *outboxes;          /* for each receiver */
    uint64_t top;              /* where the next slab begins */
    uint64_t at, end;          /* of the slab that short blocks are cut from */
    uint64_t idle;             /* bytes of long blocks that are not in use and have pages */
    uint64_t free[CLASSES];    /* the first block of each; each begins with the place of the next */
    uint64_t without[CLASSES]; /* those that gave back their pages, but for the first */
};

/* ---- mapping --------------------------------------------------------------------------------- */

static bool grow(view *v, uint64_t slab)
{
    if (slab < v->n)
        return true;
    const uint64_t n = slab < 32 ? 64 : 2 * slab;
    mapping *slabs = realloc(v->slabs, n * sizeof *slabs);
    if (!slabs)
        return false;
    memset(slabs + v->n, 0, (n - v->n) * sizeof *slabs);
    v->slabs = slabs;
    v->n = n;
    return true;
}

/* Maps the slab of that place, or the whole long block that begins there. */
static char *at_place(tempi_post_box *box, int member, uint64_t place, uint64_t room)
{
    view *v = &box->views[member];
    const uint64_t slab = place / SLAB, bytes = room > SHORT ? room : SLAB;
    if (!grow(v, slab))
        return NULL;
    if (!v->slabs[slab].address) {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, box->file,
                            (off_t)((uint64_t)member * REGION + slab * SLAB));
        if (memory == MAP_FAILED)
            return NULL;
        (void)madvise(memory, bytes, MADV_DONTFORK);
        v->slabs[slab] = (mapping){memory, bytes};
    }
    return v->slabs[slab].address + place % SLAB;
}

static head *head_of(tempi_post_box *box, int from, int to)
{
    return (head *)(void *)at_place(box, from, (uint64_t)to * sizeof(head), 0);
}

/* After the heads: what others need to read that process's memory. */
static tempi_probe *probe_of(tempi_post_box *box, int member)
{
    return (tempi_probe *)(void *)at_place(box, member, (uint64_t)box->members * sizeof(head), 0);
}

/* Of this process's region. */
static void *own_place(tempi_post_box *box, uint64_t place, uint64_t room)
{
    return at_place(box, box->own, place, room);
}

static uint64_t page(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static void give_pages_back(const tempi_post_box *box, uint64_t place, uint64_t bytes)
{
    (void)fallocate(box->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)((uint64_t)box->own * REGION + place), (off_t)bytes);
}

static bool allocate(const tempi_post_box *box, uint64_t place, uint64_t bytes)
{
    const uint64_t at = (uint64_t)box->own * REGION + place;
    if (tempi_segment_allocate(box->file, (int64_t)at, (int64_t)bytes))
        return true;
    give_pages_back(box, place, bytes);
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

static uint64_t pop(tempi_post_box *box, uint64_t *list, uint64_t room)
{
    const uint64_t place = *list;
    const uint64_t *next = place ? own_place(box, place, room) : NULL;
    if (!next)
        return 0;
    *list = *next;
    return place;
}

static uint64_t cut(tempi_post_box *box, uint64_t room)
{
    if (box->end - box->at < room) {
        if (box->top + SLAB > REGION || !allocate(box, box->top, SLAB) ||
            !own_place(box, box->top, 0))
            return 0;
        box->at = box->top;
        box->end = box->top += SLAB;
    }
    box->at += room;
    return box->at - room;
}

static uint64_t long_block(tempi_post_box *box, uint64_t room, uint64_t *without)
{
    uint64_t place = *without;
    if (place != 0)
        return allocate(box, place + page(), room - page()) ? pop(box, without, room) : 0;
    place = box->top;
    if (room > REGION - place || !allocate(box, place, room))
        return 0;
    if (!own_place(box, place, room)) {
        give_pages_back(box, place, room);
        return 0;
    }
    box->top += (room + SLAB - 1) / SLAB * SLAB;
    return place;
}

/* Returns the place of a block, or 0; sets *room to its size. */
static uint64_t block_get(tempi_post_box *box, uint64_t bytes, uint64_t *room)
{
    *room = bytes;
    if (bytes > REGION / 2)
        return 0;
    const int class = class_of(room);
    if (box->free[class] != 0) {
        if (*room > SHORT)
            box->idle -= *room;
        return pop(box, &box->free[class], *room);
    }
    return *room > SHORT ? long_block(box, *room, &box->without[class]) : cut(box, *room);
}

static void block_put(tempi_post_box *box, uint64_t place, uint64_t room)
{
    uint64_t size = room;
    const int class = class_of(&size);
    uint64_t *list = &box->free[class], *memory = own_place(box, place, room);
    if (room > SHORT && box->idle + room > IDLE) {
        give_pages_back(box, place + page(), room - page());
        list = &box->without[class];
    } else if (room > SHORT) {
        box->idle += room;
    }
    *memory = *list;
    *list = place;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int64_t length_for(int members)
{
    return (int64_t)REGION * members;
}

bool tempi_post_create(const char *folder, int members, char name[TEMPI_SEGMENT_NAME])
{
    const int file = tempi_segment_make_file(folder, length_for(members), name);
    if (file >= 0)
        close(file);
    return file >= 0;
}

static bool take_arrays(tempi_post_box *box)
{
    const size_t n = (size_t)box->members;
    box->views = calloc(n, sizeof *box->views);
    box->next = calloc(n, sizeof *box->next);
    box->outboxes = calloc(n, sizeof *box->outboxes);
    return box->views && box->next && box->outboxes;
}

tempi_post_box *tempi_post_open(const char *folder, int members, int own, const char *name)
{
    tempi_post_box *box = calloc(1, sizeof *box);
    if (!box)
        return NULL;
    box->file = tempi_segment_open_file(folder, length_for(members), name);
    box->members = members;
    box->own = own;
    box->top = SLAB;
    box->at = (uint64_t)members * sizeof(head) + LEAST;
    box->end = box->at + FIRST;
    if (box->file < 0 || box->end > SLAB || !take_arrays(box) || !allocate(box, 0, box->end) ||
        !own_place(box, 0, 0)) {
        tempi_post_close(box);
        return NULL;
    }
    for (int i = 0; i < members; ++i) {
        const uint64_t first = (uint64_t)i * sizeof(head);
        box->outboxes[i] = (outbox){.oldest = first, .newest = first};
        box->next[i] = (uint64_t)own * sizeof(head); /* in the sender's region */
    }
    tempi_single_copy_offer(probe_of(box, own));
    return box;
}

void tempi_post_connect(tempi_post_box *box)
{
    for (int i = 0; i < box->members; ++i) {
        const tempi_probe *probe = i != box->own ? probe_of(box, i) : NULL;
        head *mine = probe ? head_of(box, i, box->own) : NULL;
        if (mine)
            __atomic_store_n(&mine->access, tempi_single_copy_access(probe), __ATOMIC_RELAXED);
    }
}

static void unmap(view *v)
{
    for (uint64_t i = 0; i < v->n; ++i)
        if (v->slabs[i].address)
            munmap(v->slabs[i].address, v->slabs[i].bytes);
    free(v->slabs);
}

void tempi_post_close(tempi_post_box *box)
{
    if (!box)
        return;
    for (int i = 0; box->views && i < box->members; ++i)
        unmap(&box->views[i]);
    if (box->file >= 0)
        close(box->file);
    free(box->views);
    free(box->next);
    free(box->outboxes);
    free(box);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void release(tempi_post_box *box, outbox *mine, tempi_post *post)
{
    if (post->room == 0)
        return;
    if (post->timed)
        tempi_copy_learn(&mine->choice, post->class, post->way, post->packing + post->unpacking,
                         post->bytes);
    block_put(box, post->data, post->room);
    post->room = 0;
}

/* Takes back what the receiver has read: the bytes of a message at once, the message itself when it
 * has gone on to the next one. */
static void sweep(tempi_post_box *box, int to)
{
    outbox *mine = &box->outboxes[to];
    const uint64_t first = (uint64_t)to * sizeof(head);
    const uint64_t passed = __atomic_load_n(&head_of(box, box->own, to)->passed, __ATOMIC_ACQUIRE);
    for (;;) {
        tempi_post *post = own_place(box, mine->oldest, 0);
        if (mine->oldest != first) {
            if (__atomic_load_n(&post->state, __ATOMIC_ACQUIRE) != TAKEN ||
                __atomic_load_n(&post->watched, __ATOMIC_ACQUIRE))
                return;
            release(box, mine, post);
        }
        if (mine->oldest == mine->newest || passed <= mine->index)
            return;
        const uint64_t place = mine->oldest;
        mine->oldest = post->next;
        ++mine->index;
        if (place != first)
            block_put(box, place, LEAST);
    }
}

unsigned tempi_post_access(tempi_post_box *box, int to)
{
    return __atomic_load_n(&head_of(box, box->own, to)->access, __ATOMIC_RELAXED);
}

/* Whether to offer its blocks; sets the way of the message. */
static bool offers(tempi_post_box *box, int to, const tempi_offer *offer, tempi_post *post)
{
    tempi_copy_choice *choice = &box->outboxes[to].choice;
    unsigned ways = 1 << TEMPI_COPY_TWICE | 1 << TEMPI_COPY_NONTEMPORAL;
    post->class = tempi_copy_class(post->bytes, offer ? offer->bytes : 0, offer ? offer->runs : 0);
    post->timed = post->class >= 0;
    if (!post->timed)
        return false;
    if (offer && offer->bytes == post->bytes && post->class >= TEMPI_COPY_OFFERED)
        ways |= 1u << (offer->mapped ? TEMPI_COPY_MAPPED : TEMPI_COPY_ONCE);
    post->way = tempi_copy_choose(choice, post->class, ways);
    post->patience = tempi_copy_packing(choice, post->class, post->bytes);
    return post->way == TEMPI_COPY_ONCE || post->way == TEMPI_COPY_MAPPED;
}

static uint64_t shapes_bytes(int n)
{
    return (uint64_t)n * sizeof(tempi_nest_shape);
}

/* But for the first page, where the list is. */
static void empty_class(tempi_post_box *box, int class, uint64_t room)
{
    for (uint64_t place; (place = pop(box, &box->free[class], room)) != 0;) {
        uint64_t *memory = own_place(box, place, room);
        give_pages_back(box, place + page(), room - page());
        box->idle -= room;
        *memory = box->without[class];
        box->without[class] = place;
    }
}

void tempi_post_give_back(tempi_post_box *box)
{
    for (int to = 0; to < box->members; ++to)
        if (to != box->own)
            sweep(box, to);
    for (int class = 0; class < CLASSES; ++class) {
        const int log = class / STEPS + LEAST_LOG;
        const uint64_t room = ((uint64_t)1 << (log - 2)) * (uint64_t)(class % STEPS + STEPS);
        if (room > SHORT)
            empty_class(box, class, room);
    }
}

/* A message with memory for so many bytes, which begin at *data. NULL: there is none. */
static tempi_post *put_down(tempi_post_box *box, int to, const tempi_post *made, uint64_t needs,
                            void **data)
{
    uint64_t room = 0, place = 0;
    const uint64_t at = block_get(box, sizeof(tempi_post), &room);
    if (at == 0)
        return NULL;
    if (needs > 0 && (place = block_get(box, needs, &room)) == 0) {
        block_put(box, at, LEAST);
        return NULL;
    }
    tempi_post *post = own_place(box, at, 0);
    *post = *made;
    post->data = place;
    post->room = place ? room : 0;
    *data = place ? own_place(box, place, room) : NULL;
    box->outboxes[to].unsent = at;
    return post;
}

tempi_post *tempi_post_new(tempi_post_box *box, int to, int64_t bytes, const tempi_offer *offer,
                           void **data)
{
    tempi_post made = {.bytes = bytes, .way = TEMPI_COPY_TWICE};
    sweep(box, to);
    if (bytes > 0 && offers(box, to, offer, &made)) {
        made.nshapes = offer->n;
        made.offers = made.watched = true;
    }
    const uint64_t needs = made.offers ? shapes_bytes(made.nshapes)
                           : bytes > 0 ? (uint64_t)bytes
                                       : 0;
    tempi_post *post = put_down(box, to, &made, needs, data);
    if (post && made.offers) {
        memcpy(*data, offer->shapes, shapes_bytes(made.nshapes));
        *data = NULL;
    }
    return post;
}

tempi_post *tempi_post_new_described(tempi_post_box *box, int to, int64_t bytes,
                                     const void *description, int64_t n, double patience)
{
    const tempi_post made = {.bytes = bytes,
                             .way = TEMPI_COPY_TWICE,
                             .offers = true,
                             .watched = true,
                             .described = (int32_t)n,
                             .patience = patience};
    void *data;
    sweep(box, to);
    tempi_post *post = put_down(box, to, &made, (uint64_t)n, &data);
    if (post)
        memcpy(data, description, (size_t)n);
    return post;
}

tempi_offer_pause *tempi_post_pause(tempi_post_box *box, int to)
{
    return &box->outboxes[to].pause;
}

void tempi_post_send(tempi_post_box *box, int to)
{
    outbox *mine = &box->outboxes[to];
    tempi_post *last = own_place(box, mine->newest, 0);
    mine->newest = mine->unsent;
    __atomic_store_n(&last->next, mine->unsent, __ATOMIC_RELEASE);
}

/* ---- offers ---------------------------------------------------------------------------------- */

/* By its sender. */
static bool is_packed(const tempi_post *post)
{
    return post->nshapes == 0 && post->described == 0;
}

bool tempi_post_is_over(const tempi_post *post)
{
    return is_packed(post) || __atomic_load_n(&post->state, __ATOMIC_ACQUIRE) == TAKEN;
}

bool tempi_post_is_claimed(const tempi_post *post)
{
    return __atomic_load_n(&post->state, __ATOMIC_ACQUIRE) == CLAIMED;
}

bool tempi_post_is_refused(const tempi_post *post)
{
    return __atomic_load_n(&post->state, __ATOMIC_ACQUIRE) == REFUSED;
}

/* Its bytes are packed, or it has become a failure: the receiver looks at it again. */
void tempi_post_withdrawn(tempi_post *post)
{
    post->nshapes = 0;
    __atomic_store_n(&post->described, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&post->state, SENT, __ATOMIC_RELEASE);
}

void tempi_post_failed(tempi_post *post)
{
    post->bytes = -1;
    post->timed = false;
    tempi_post_withdrawn(post);
}

/* Takes it back from the receiver; *before: SENT or REFUSED. */
static bool take_back(tempi_post *post, uint32_t *before)
{
    *before = SENT;
    return __atomic_compare_exchange_n(&post->state, before, WITHDRAWN, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_ACQUIRE) ||
           *before == REFUSED;
}

bool tempi_post_give_up(tempi_post *post)
{
    uint32_t before;
    if (!take_back(post, &before))
        return false;
    tempi_post_failed(post);
    return true;
}

bool tempi_post_withdraw(tempi_post_box *box, tempi_post *post, void **data)
{
    uint32_t before;
    uint64_t room = 0;
    if (!take_back(post, &before))
        return false;
    const uint64_t place = block_get(box, (uint64_t)post->bytes, &room);
    if (place == 0) {
        if (before == SENT) {
            __atomic_store_n(&post->state, SENT, __ATOMIC_RELEASE);
            return false;
        }
        tempi_post_failed(post);
        return false;
    }
    block_put(box, post->data, post->room);
    post->data = place;
    post->room = room;
    *data = own_place(box, place, room);
    return true;
}

void tempi_post_unwatch(tempi_post *post)
{
    __atomic_store_n(&post->watched, false, __ATOMIC_RELEASE);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* 0: there is none. */
static uint64_t next_place(tempi_post_box *box, int from)
{
    const tempi_post *last = (tempi_post *)(void *)at_place(box, from, box->next[from], 0);
    return last ? __atomic_load_n(&last->next, __ATOMIC_ACQUIRE) : 0;
}

bool tempi_post_waits(tempi_post_box *box, int from)
{
    return next_place(box, from) != 0;
}

tempi_post *tempi_post_next(tempi_post_box *box, int from)
{
    const uint64_t place = next_place(box, from);
    tempi_post *post = place ? (tempi_post *)(void *)at_place(box, from, place, 0) : NULL;
    if (!post)
        return NULL;
    box->next[from] = place;
    head *mine = head_of(box, from, box->own);
    __atomic_store_n(&mine->passed, mine->passed + 1, __ATOMIC_RELEASE);
    return post;
}

const void *tempi_post_data(tempi_post_box *box, int from, const tempi_post *post)
{
    return at_place(box, from, post->data, post->room);
}

tempi_post_kind tempi_post_claim(tempi_post *post, bool device)
{
    uint32_t sent = SENT;
    if (!post->offers)
        return TEMPI_POST_PACKED;
    if (!__atomic_compare_exchange_n(&post->state, &sent, CLAIMED, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED) &&
        !(sent == CLAIMED && is_packed(post)))
        return TEMPI_POST_LATER;
    if (post->described > 0 && !device) {
        __atomic_store_n(&post->state, SENT, __ATOMIC_RELEASE);
        return TEMPI_POST_LATER;
    }
    return is_packed(post) ? TEMPI_POST_PACKED : TEMPI_POST_OFFERED;
}

bool tempi_post_is_described(const tempi_post *post)
{
    return post->offers && __atomic_load_n(&post->state, __ATOMIC_ACQUIRE) == SENT &&
           __atomic_load_n(&post->described, __ATOMIC_RELAXED) > 0;
}

const void *tempi_post_description(tempi_post_box *box, int from, const tempi_post *post,
                                   int64_t *n)
{
    *n = post->described;
    return tempi_post_data(box, from, post);
}

void tempi_post_refuse(tempi_post *post)
{
    __atomic_store_n(&post->state, REFUSED, __ATOMIC_RELEASE);
}

bool tempi_post_read(tempi_post_box *box, int from, tempi_post *post, const tempi_op *blocks,
                     int64_t n)
{
    const tempi_nest_shape *shapes = tempi_post_data(box, from, post);
    const pid_t process = (pid_t)probe_of(box, from)->process;
    head *mine = head_of(box, from, box->own);
    int64_t bytes = post->bytes;
    for (int64_t i = 0; i < n; ++i)
        bytes -= blocks[i].n;
    const tempi_offer_result result = shapes && bytes == 0
                                          ? tempi_offer_read(process, mine->access, shapes,
                                                             post->nshapes, blocks, n)
                                          : TEMPI_OFFER_UNLIKE;
    if (result == TEMPI_OFFER_WAS_READ)
        return true;
    __atomic_store_n(&mine->access, tempi_offer_access_after(result, mine->access),
                     __ATOMIC_RELAXED);
    if (result == TEMPI_OFFER_NOT_MAPPED)
        return true;
    tempi_post_refuse(post);
    return false;
}

void tempi_post_take(tempi_post *post)
{
    __atomic_store_n(&post->state, TAKEN, __ATOMIC_RELEASE);
}
