#include "exchange/post_box.h"
#include "base/clock.h"
#include "base/copy_bytes.h"
#include "base/prefetch.h"
#include "exchange/far_copy.h"
#include "exchange/invitation.h"
#include "exchange/post_memory.h"
#include "exchange/single_copy.h"
#include "tempi.h"

#include <stdlib.h>
#include <string.h>

enum {
    LINE = 128,
    PART = 1 << 20,
    STREAMED = 256 << 10,
    SHORT = TEMPI_COPY_LEAST - 1, /* bytes: what is longer may be offered, or timed */
    /* Messages, and bytes set aside for long ones, with which the sender looks at what the receiver
     * has read. */
    UNSWEPT = 8,
    UNSWEPT_ROOM = 128 << 10,
    FETCHED = 16 /* cache lines of a short message's bytes, at most, that are fetched with it */
};

/* The lowest bits of the next message's place: how many of these lines it has, and whether the
 * receiver is to claim it. Places are multiples of a line. */
#define LINES  ((uint64_t)31)
#define CLAIM  ((uint64_t)32)
#define SIGNAL (LINES | CLAIM)

/* Bytes that long messages may have for all receivers: with more, pages are new each time (160 MiB
 * between two processes took 418 ms so, and 85 ms in parts; Zen 3). Of a part, and of one that is
 * to be unpacked while the next is packed. */
static struct {
    int64_t room, part, streamed;
} most = {TEMPI_POST_KEPT, PART, STREAMED};

void tempi_post_room_assume(int64_t bytes)
{
    most.room = bytes > 0 ? bytes : TEMPI_POST_KEPT;
    most.part = most.room / 2 < PART ? most.room / 2 : PART;
    most.streamed = most.part < STREAMED ? most.part : STREAMED;
}

/* The first message of a list, which nobody sent; how many the receiver has come to, and how many
 * of these it has taken without exception, so that the sender need not look at each; how it can get
 * at the sender's memory, in a line of its own: each message needs it. */
typedef struct head {
    tempi_post first;
    _Alignas(LINE) uint64_t passed;
    uint64_t taken;
    _Alignas(LINE) uint32_t access; /* TEMPI_ACCESS_* */
} head;

_Static_assert(sizeof(tempi_post) == LINE, "the receiver's part of a head has a line of its own");
_Static_assert(offsetof(tempi_post, block) == LINE / 2, "what the receiver reads is in one line");

/* The list of one receiver. */
typedef struct outbox {
    uint64_t oldest, newest;         /* places: of messages in use, or of `first` */
    uint64_t index;                  /* how many came before the oldest */
    uint64_t unsent;                 /* the place of the one that is being made */
    uint64_t used;                   /* bytes of memory for what long messages contain */
    unsigned unswept;                /* messages since it last looked for what was read */
    uint64_t released;               /* messages whose memory was taken back */
    tempi_copy_choice choice, alone; /* the latter of what is streamed */
    tempi_copy_lead heard;           /* how that process sends: its messages say so */
    tempi_offer_pause pause;         /* of descriptions for its devices */
    bool unstorable;                 /* its memory cannot be written */
} outbox;

/* What came from one sender. */
typedef struct inbox {
    uint64_t last; /* place of its message that was passed last */
    uint64_t open; /* messages that were passed, and not taken yet */
} inbox;

struct tempi_post_box {
    tempi_post_memory memory;
    double own;       /* seconds that the last call took for blocks of this process to itself */
    inbox *inboxes;   /* for each sender */
    outbox *outboxes; /* for each receiver */
};

static head *head_of(tempi_post_box *box, int from, int to)
{
    return tempi_post_place(&box->memory, from, (uint64_t)to * sizeof(head), 0);
}

/* After the heads: what others need to read that process's memory. */
static uint64_t place_of_probe(int members)
{
    return (uint64_t)members * sizeof(head);
}

static tempi_probe *probe_of(tempi_post_box *box, int member)
{
    return tempi_post_place(&box->memory, member, place_of_probe(box->memory.members), 0);
}

/* ---- opening --------------------------------------------------------------------------------- */

bool tempi_post_create(const char *folder, int members, char name[TEMPI_SEGMENT_NAME])
{
    return tempi_post_memory_create(folder, members, name);
}

tempi_post_box *tempi_post_open(const char *folder, int members, int own, const char *name)
{
    enum { PROBE = 256 };
    _Static_assert(sizeof(tempi_probe) <= PROBE, "it has room");
    tempi_post_box *box = calloc(1, sizeof *box);
    if (!box)
        return NULL;
    box->inboxes = calloc((size_t)members, sizeof *box->inboxes);
    box->outboxes = calloc((size_t)members, sizeof *box->outboxes);
    if (!tempi_post_memory_open(&box->memory, folder, members, own, name,
                                place_of_probe(members) + PROBE) ||
        !box->inboxes || !box->outboxes) {
        tempi_post_close(box);
        return NULL;
    }
    for (int i = 0; i < members; ++i) {
        const uint64_t first = (uint64_t)i * sizeof(head);
        box->outboxes[i] = (outbox){.oldest = first, .newest = first};
        box->inboxes[i].last = (uint64_t)own * sizeof(head); /* in the sender's region */
    }
    tempi_single_copy_offer(probe_of(box, own));
    return box;
}

void tempi_post_connect(tempi_post_box *box)
{
    for (int i = 0; i < box->memory.members; ++i) {
        const tempi_probe *probe = i != box->memory.own ? probe_of(box, i) : NULL;
        head *mine = probe ? head_of(box, i, box->memory.own) : NULL;
        box->outboxes[i].unstorable = false;
        if (mine)
            __atomic_store_n(&mine->access, tempi_single_copy_access(probe), __ATOMIC_RELAXED);
    }
}

void tempi_post_close(tempi_post_box *box)
{
    if (!box)
        return;
    tempi_post_memory_close(&box->memory);
    free(box->inboxes);
    free(box->outboxes);
    free(box);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* What it has set aside. */
static void free_room(tempi_post_box *box, outbox *mine, tempi_post *post)
{
    if (post->room > 0)
        tempi_post_block_put(&box->memory, post->block, post->reused, post->room);
    mine->used -= post->room;
    post->room = 0;
}

/* A way is learned when the last part was read. Two processes that send as much to each other take
 * the sum; of what is streamed, the longer one of the two, with all else that it does. */
static double taken_by(const tempi_post_box *box, const tempi_post *post)
{
    double own;
    __atomic_load(&box->own, &own, __ATOMIC_RELAXED);
    const double sending = post->packing + own;
    return !post->course.streamed      ? post->packing + post->unpacking
           : sending > post->unpacking ? sending
                                       : post->unpacking;
}

static tempi_copy_choice *choice_of(outbox *mine, bool streamed)
{
    return streamed ? &mine->alone : &mine->choice;
}

static void release(tempi_post_box *box, outbox *mine, tempi_post *post)
{
    if (post->room == 0 && !post->course.timed)
        return;
    if (post->course.timed && post->offset + post->bytes == post->whole)
        tempi_copy_learn(choice_of(mine, post->course.streamed), post->course.class,
                         post->course.way, taken_by(box, post), post->whole);
    free_room(box, mine, post);
    ++mine->released;
    post->course.timed = false;
}

/* Whether the receiver has read the oldest message, of which the sender has nothing to look at. */
static bool is_done(const outbox *mine, const tempi_post *oldest, uint64_t taken)
{
    return (mine->index <= taken ||
            __atomic_load_n(&oldest->state, __ATOMIC_ACQUIRE) == TEMPI_POST_TAKEN) &&
           !__atomic_load_n(&oldest->watched, __ATOMIC_ACQUIRE);
}

/* Takes back what the receiver has read: the bytes of a long message at once, the message itself
 * when it has gone on to the next one. */
static void sweep(tempi_post_box *box, int to)
{
    outbox *mine = &box->outboxes[to];
    const uint64_t first = (uint64_t)to * sizeof(head);
    const head *theirs = head_of(box, box->memory.own, to);
    const uint64_t taken = __atomic_load_n(&theirs->taken, __ATOMIC_ACQUIRE),
                   passed = __atomic_load_n(&theirs->passed, __ATOMIC_ACQUIRE);
    mine->unswept = 0;
    for (;;) {
        tempi_post *post = tempi_post_own_place(&box->memory, mine->oldest, 0);
        if (mine->oldest != first) {
            if (!is_done(mine, post, taken))
                return;
            release(box, mine, post);
        }
        if (mine->oldest == mine->newest || passed <= mine->index)
            return;
        const uint64_t place = mine->oldest, size = post->size;
        mine->oldest = post->next & ~SIGNAL;
        ++mine->index;
        if (place != first)
            tempi_post_block_put(&box->memory, place, false, size);
    }
}

unsigned tempi_post_access(tempi_post_box *box, int to)
{
    return __atomic_load_n(&head_of(box, box->memory.own, to)->access, __ATOMIC_RELAXED);
}

/* Whether this process could store it, if the receiver does not rather read it. Not what has no
 * gaps: to read that the receiver need not wait for the sender (256 KiB took 1.2 times as long to
 * store, 2 MiB 1.3 times; Zen 3). Not what is streamed: a root with a block of its own tells where
 * only after that (gathers of tiles of 2048^2 took 4.1 ms so, and 3.4 packed; Granite Rapids). */
static bool is_storable(const outbox *mine, const tempi_offer *offer, bool streamed)
{
    return offer->n == 1 && offer->runs > 1 && offer->bytes >= TEMPI_INVITED_LEAST &&
           !offer->mapped && !streamed && !__atomic_load_n(&mine->unstorable, __ATOMIC_RELAXED);
}

static bool is_to_be_stored(const tempi_post *post)
{
    return post->offers && post->course.way == TEMPI_COPY_STORED;
}

/* Sets the way of a message; of two processes that send to each other the first one leads. */
static void choose(tempi_post_box *box, int to, int class, unsigned ways, tempi_post *post)
{
    outbox *mine = &box->outboxes[to];
    const bool streamed = post->course.streamed;
    tempi_copy_choice *choice = choice_of(mine, streamed);
    tempi_copy_way next = TEMPI_COPY_TWICE; /* a follower's is not used */
    const tempi_chosen_way chosen = streamed || to < box->memory.own
                                        ? tempi_copy_choose(choice, class, ways,
                                                            streamed ? NULL : &mine->heard, 0, NULL)
                                        : tempi_copy_plan(choice, class, ways, &next);
    post->course = (tempi_post_course){.class = (int8_t)class,
                                       .way = (uint8_t)chosen.way,
                                       .next = (uint8_t)next,
                                       .timed = chosen.timed,
                                       .streamed = streamed};
    post->patience = tempi_copy_packing(choice, class, post->bytes);
}

/* Whether to offer its blocks; sets the way of the message. */
static bool offers(tempi_post_box *box, int to, const tempi_offer *offer, tempi_post *post)
{
    const int class = tempi_copy_class(post->bytes, offer ? offer->bytes : 0,
                                       offer ? offer->runs : 0);
    const unsigned packs = 1 << TEMPI_COPY_TWICE | 1 << TEMPI_COPY_REUSED |
                           1 << TEMPI_COPY_NONTEMPORAL;
    unsigned ways = packs;
    if (class < 0)
        return false;
    if (offer && offer->bytes == post->bytes && class >= TEMPI_COPY_OFFERED) {
        ways |= 1u << (offer->mapped ? TEMPI_COPY_MAPPED : TEMPI_COPY_ONCE);
        if (is_storable(&box->outboxes[to], offer, post->course.streamed))
            ways |= 1u << TEMPI_COPY_STORED;
    }
    choose(box, to, class, ways, post);
    return (packs >> post->course.way & 1) == 0;
}

static uint64_t shapes_bytes(int n)
{
    return (uint64_t)n * sizeof(tempi_nest_shape);
}

bool tempi_post_packs_nontemporal(tempi_post_box *box, int to, const tempi_post *post)
{
    return post->course.class >= 0 &&
           tempi_copy_packs_nontemporal(choice_of(&box->outboxes[to], post->course.streamed),
                                        post->course.class);
}

void tempi_post_give_back(tempi_post_box *box)
{
    for (int to = 0; to < box->memory.members; ++to)
        if (to != box->memory.own)
            sweep(box, to);
    tempi_post_memory_give_back(&box->memory);
}

/* A message with so many bytes behind it. NULL: there is no memory. */
static tempi_post *put_down_with(tempi_post_box *box, int to, const tempi_post *made,
                                 uint64_t behind, void **data)
{
    uint64_t size = 0;
    const uint64_t at = tempi_post_block_get(&box->memory, sizeof(tempi_post) + behind, 0, false,
                                             &size);
    if (at == 0)
        return NULL;
    tempi_post *post = tempi_post_own_place(&box->memory, at, 0);
    *post = *made;
    post->data = at + sizeof *post;
    post->size = (uint32_t)size;
    *data = post + 1;
    box->outboxes[to].unsent = at;
    return post;
}

/* Where packed bytes begin in a block, which may begin at a page: so neither the sender's copies
 * nor the receiver's collide if their arrays begin at a page, or 16 or 32 bytes behind one, as
 * malloc's do (base/copy_bytes.h). */
static uint64_t shift_of(uint64_t bytes)
{
    return 2 * (uint64_t)tempi_copy_shift((int64_t)bytes);
}

/* Gives the message a block for so many bytes, which begin at *data. False: there is none. */
static bool set_aside(tempi_post_box *box, int to, tempi_post *post, uint64_t bytes, void **data)
{
    const uint64_t shift = shift_of(bytes);
    uint64_t room = 0;
    const uint64_t block = tempi_post_block_get(&box->memory, bytes, shift, post->reused, &room);
    if (block == 0)
        return false;
    box->outboxes[to].used += room;
    post->block = block;
    post->data = block + shift;
    post->room = room;
    *data = (char *)tempi_post_own_place(&box->memory, block, room) + shift;
    return true;
}

/* A message with memory for so many bytes, which begin at *data. NULL: there is none. */
static tempi_post *put_down(tempi_post_box *box, int to, const tempi_post *made, uint64_t needs,
                            void **data)
{
    tempi_post *post = put_down_with(box, to, made, 0, data);
    if (!post || set_aside(box, to, post, needs, data))
        return post;
    tempi_post_block_put(&box->memory, box->outboxes[to].unsent, false, post->size);
    return NULL;
}

/* In all cases for two parts. */
static bool fits(const tempi_post_box *box, int to, int64_t bytes)
{
    const int others = box->memory.members - 1;
    const int64_t share = most.room / (others > 0 ? others : 1);
    return (int64_t)box->outboxes[to].used + bytes <=
           (share > 2 * most.part ? share : 2 * most.part);
}

uint64_t tempi_post_released(const tempi_post_box *box, int to)
{
    return box->outboxes[to].released;
}

bool tempi_post_has_room(tempi_post_box *box, int to, int64_t bytes)
{
    if (!fits(box, to, bytes))
        sweep(box, to);
    return fits(box, to, bytes);
}

int64_t tempi_post_whole_most(void)
{
    return most.streamed;
}

int64_t tempi_post_part(tempi_post_box *box, int to, int64_t bytes, bool streamed)
{
    const int64_t part = streamed ? most.streamed : most.part;
    return bytes <= part || (!streamed && tempi_post_has_room(box, to, bytes)) ? bytes : part;
}

tempi_post *tempi_post_new_part(tempi_post_box *box, int to, int64_t offset, int64_t bytes,
                                int64_t whole, bool reused, void **data)
{
    const tempi_post made = {
        .bytes = bytes, .offset = offset, .whole = whole, .course.class = -1, .reused = reused};
    return put_down(box, to, &made, (uint64_t)bytes, data);
}

tempi_post *tempi_post_new(tempi_post_box *box, int to, int64_t bytes, const tempi_offer *offer,
                           int64_t part, bool streamed, void **data)
{
    tempi_post made = {
        .bytes = bytes, .whole = bytes, .course = {.class = -1, .streamed = streamed}};
    if (bytes <= SHORT)
        return put_down_with(box, to, &made, bytes > 0 ? (uint64_t)bytes : 0, data);
    if (bytes > most.streamed) /* else when it is sent: to look is to fetch lines of another core */
        sweep(box, to);
    if (!offers(box, to, offer, &made)) {
        made.bytes = part;
        made.reused = made.course.class >= 0 && made.course.way == TEMPI_COPY_REUSED;
        return put_down(box, to, &made, (uint64_t)part, data);
    }
    made.nshapes = offer->n;
    made.offers = made.watched = true;
    const int shapes = offer->n + is_to_be_stored(&made); /* the receiver adds one */
    tempi_post *post = put_down_with(box, to, &made, shapes_bytes(shapes), data);
    if (post)
        memcpy(*data, offer->shapes, shapes_bytes(offer->n));
    *data = NULL;
    return post;
}

tempi_post *tempi_post_new_described(tempi_post_box *box, int to, int64_t bytes,
                                     const void *description, int64_t n, double patience)
{
    const tempi_post made = {.bytes = bytes,
                             .whole = bytes,
                             .course.class = -1,
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

void tempi_post_took_own(tempi_post_box *box, double seconds)
{
    __atomic_store(&box->own, &seconds, __ATOMIC_RELAXED);
}

tempi_offer_pause *tempi_post_pause(tempi_post_box *box, int to)
{
    return &box->outboxes[to].pause;
}

/* What the receiver fetches together with the message, each line of which comes from this core: in
 * turn they would take a short one twice as long. */
static uint64_t signal_of(const tempi_post *post)
{
    const uint64_t behind = post->room > 0      ? 0
                            : post->nshapes > 0 ? shapes_bytes(post->nshapes)
                            : post->bytes > 0   ? (uint64_t)post->bytes
                                                : 0;
    const uint64_t lines = (behind + 63) / 64;
    return (lines < FETCHED ? lines : FETCHED) | (post->offers ? CLAIM : 0);
}

void tempi_post_send(tempi_post_box *box, int to)
{
    outbox *mine = &box->outboxes[to];
    tempi_post *last = tempi_post_own_place(&box->memory, mine->newest, 0);
    const tempi_post *post = tempi_post_own_place(&box->memory, mine->unsent, 0);
    mine->newest = mine->unsent;
    __atomic_store_n(&last->next, mine->unsent | signal_of(post), __ATOMIC_RELEASE);
    if (++mine->unswept >= UNSWEPT || mine->used >= UNSWEPT_ROOM)
        sweep(box, to); /* now that it is sent: the receiver waits for it */
}

bool tempi_post_withdraw(tempi_post_box *box, int to, tempi_post *post, int64_t bytes, void **data)
{
    uint32_t before;
    const uint64_t block = post->block, room = post->room;
    if (!tempi_post_take_back(post, &before))
        return false;
    if (!set_aside(box, to, post, (uint64_t)bytes, data)) {
        if (before != TEMPI_POST_REFUSED) {
            __atomic_store_n(&post->state, TEMPI_POST_SENT, __ATOMIC_RELEASE);
            return false;
        }
        tempi_post_failed(post);
        return false;
    }
    if (room > 0)
        tempi_post_block_put(&box->memory, block, false, room);
    box->outboxes[to].used -= room;
    post->bytes = bytes;
    return true;
}

bool tempi_post_store(tempi_post_box *box, int to, tempi_post *post, const tempi_op *blocks)
{
    if (!is_to_be_stored(post) || !tempi_post_begin_store(post))
        return false;
    const double start = tempi_clock();
    /* behind the message: another thread may send, and so find its place anew */
    const tempi_nest_shape *shapes = (const tempi_nest_shape *)(const void *)(post + 1),
                           place = shapes[1];
    const tempi_op *block = &blocks[shapes[0].block];
    const tempi_probe *receiver = probe_of(box, to);
    const bool stored = receiver && block->n == place.run * place.runs &&
                        tempi_far_store(receiver, &place, block);
    if (!stored)
        __atomic_store_n(&box->outboxes[to].unstorable, true, __ATOMIC_RELAXED);
    post->packing = tempi_clock() - start;
    tempi_post_end_store(post, stored);
    return stored;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Its place and lines; 0: there is none. */
static uint64_t next_word(tempi_post_box *box, int from)
{
    const tempi_post *last = tempi_post_place(&box->memory, from, box->inboxes[from].last, 0);
    return last ? __atomic_load_n(&last->next, __ATOMIC_ACQUIRE) : 0;
}

tempi_post *tempi_post_next(tempi_post_box *box, int from)
{
    const uint64_t word = next_word(box, from);
    if (word == 0)
        return NULL;
    tempi_post *post = tempi_post_place(&box->memory, from, word & ~SIGNAL, 0);
    if (post && (word & CLAIM))
        tempi_prefetch_to_write(&post->block); /* the line that the receiver claims */
    for (uint64_t i = 0; post && i < (word & LINES); ++i)
        __builtin_prefetch((const char *)(post + 1) + 64 * i);
    return post;
}

void tempi_post_pass(tempi_post_box *box, int from)
{
    inbox *its = &box->inboxes[from];
    head *mine = head_of(box, from, box->memory.own);
    its->last = next_word(box, from) & ~SIGNAL;
    ++its->open;
    __atomic_store_n(&mine->passed, mine->passed + 1, __ATOMIC_RELEASE);
}

const void *tempi_post_data(tempi_post_box *box, int from, const tempi_post *post)
{
    return tempi_post_place(&box->memory, from, post->data, post->room);
}

const void *tempi_post_description(tempi_post_box *box, int from, const tempi_post *post,
                                   int64_t *n)
{
    *n = post->described;
    return tempi_post_data(box, from, post);
}

bool tempi_post_invite_to(tempi_post_box *box, int from, tempi_post *post, const tempi_op *blocks,
                          int64_t n)
{
    tempi_nest_shape own, *shapes = tempi_post_place(&box->memory, from, post->data, 0);
    if (!shapes || !is_to_be_stored(post) || !tempi_invitation_place(blocks, n, &own) ||
        blocks[0].n != post->bytes)
        return false;
    shapes[1] = own;
    tempi_post_invite(post);
    return true;
}

bool tempi_post_read(tempi_post_box *box, int from, tempi_post *post, const tempi_op *blocks,
                     int64_t n)
{
    const tempi_nest_shape *shapes = tempi_post_data(box, from, post);
    const pid_t process = (pid_t)probe_of(box, from)->process;
    head *mine = head_of(box, from, box->memory.own);
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

void tempi_post_take(tempi_post_box *box, int from, tempi_post *post)
{
    inbox *its = &box->inboxes[from];
    head *mine = head_of(box, from, box->memory.own);
    if (post->course.class >= 0)
        tempi_copy_tell(&box->outboxes[from].heard, post->course.class, post->course.next,
                        mine->passed);
    if (--its->open > 0 || post->offers)
        __atomic_store_n(&post->state, TEMPI_POST_TAKEN, __ATOMIC_RELEASE);
    if (its->open == 0)
        __atomic_store_n(&mine->taken, mine->passed, __ATOMIC_RELEASE);
}
