/* A ring of bytes in shared memory, from one process to another.
 *
 *   data   |....#########........|      head - tail bytes are unread, at most the capacity
 *               tail     head           both count all bytes since the start
 *
 * Only the sender writes `head`, only the receiver `tail`, each in cache lines of its own: two, as
 * some processors fetch lines in pairs.
 *
 * A long ring's memory rests (rest.h). So there is a short one beside it for the bytes of flows
 * that go faster through memory that was read last; their headers take the long one. */
#ifndef TEMPI_EXCHANGE_RING_H
#define TEMPI_EXCHANGE_RING_H

#include "base/llc_samples.h"
#include "exchange/brief.h"
#include "exchange/copy_choice.h"
#include "exchange/invitation.h"
#include "exchange/offer_pause.h"

#include <string.h>

enum {
    TEMPI_RING_ALIGN = 128,
    TEMPI_RING_TIMED = 2 /* a receiver may tell its time after the sender's next call */
};

typedef struct tempi_ring {
    _Alignas(128) uint64_t head;
    tempi_brief brief;
    _Alignas(128) tempi_copy_lead lead; /* of the sender */
    _Alignas(128) uint64_t beat;        /* of the sender, for the receiver to time its way */
    _Alignas(128) uint64_t tail;
    /* By the receiver, too, about flows whose memory it reads itself (exchange.c). */
    uint32_t access; /* how it can: TEMPI_ACCESS_* */
    uint64_t answer; /* to the last such flow */
    struct {
        uint64_t call; /* of a long flow that has ended */
        float seconds;
        int32_t latency; /* nanoseconds that the beat took; -1: the sender did not ask for it */
    } timed[TEMPI_RING_TIMED];                 /* the last ones */
    _Alignas(128) tempi_invitation invitation; /* the sender of short flows never reads it */
    _Alignas(128) char data[];
} tempi_ring;

/* The short one: the same in small. */
typedef struct tempi_short_ring {
    _Alignas(128) uint64_t head;
    _Alignas(128) uint64_t tail;
    _Alignas(128) char data[];
} tempi_short_ring;
_Static_assert(sizeof(uint64_t) + sizeof(tempi_brief) == 64, "they are in one line");
_Static_assert(TEMPI_COPY_CLASSES <= 64, "a sender has one bit for each class");

/* One end of a ring's bytes, in memory of the process that uses it. */
typedef struct tempi_ring_bytes {
    char *data; /* NULL: there are none */
    uint64_t *head, *tail;
    uint64_t capacity; /* a power of two */
    uint64_t own;      /* *head at the sender's end, *tail at the receiver's */
    uint64_t seen;     /* the other one, when it was last read */
} tempi_ring_bytes;

/* Of a ring: with those of the short one, if there is one. */
typedef struct tempi_ring_end {
    tempi_ring *ring;
    tempi_ring_bytes bytes, reused;
    /* Once for a receiver whose core shares the last-level cache, and once for another one; the
     * second of flows that are gathered, or go one way. */
    tempi_copy_choice choice[2], alone[2];
    bool other_llc; /* the receiver's core has another one, by these: */
    tempi_llc_samples latencies;
    int64_t until;     /* flows to the next one (llc_samples.h) */
    uint64_t storable; /* classes (bit mask) of flows that the receiver last let be stored */
    bool unstorable;   /* the receiver's memory, by this process */
    const tempi_copy_lead *leader; /* the receiver's, if that chooses for both; or NULL */
    tempi_offer_pause pause;       /* of offers to the receiver's device */
    /* By calls, as above: long flows of which the receiver has yet to tell something. */
    struct tempi_timed_flow {
        uint64_t call; /* 0: none */
        int64_t bytes;
        double seconds; /* of the sender */
        int class;
        tempi_copy_way way;
        bool learns; /* else the receiver tells the latency alone */
        bool gathers;
        bool one_way;
        bool other_llc;
    } last[TEMPI_RING_TIMED];
} tempi_ring_end;

/* Begins an end of so many bytes, a power of two. `beside`: NULL, or a short ring of so many. */
static inline void tempi_ring_begin(tempi_ring_end *end, tempi_ring *ring, uint64_t capacity,
                                    tempi_short_ring *beside, uint64_t reused)
{
    memset(end, 0, sizeof *end);
    end->ring = ring;
    end->bytes = (tempi_ring_bytes){
        .data = ring->data, .head = &ring->head, .tail = &ring->tail, .capacity = capacity};
    if (beside)
        end->reused = (tempi_ring_bytes){
            .data = beside->data, .head = &beside->head, .tail = &beside->tail, .capacity = reused};
}

/* Both return a pointer to contiguous memory and its size in *n: free for the sender, unread for
 * the receiver. */
char *tempi_ring_free(tempi_ring_bytes *end, int64_t *n);
const char *tempi_ring_unread(tempi_ring_bytes *end, int64_t *n);

/* Bytes free, or unread, in all: also beyond the end of the memory. */
int64_t tempi_ring_room(tempi_ring_bytes *end);
int64_t tempi_ring_waiting(tempi_ring_bytes *end);
/* Copies n bytes that fit into the ring, or are unread, without passing them on. */
void tempi_ring_put(tempi_ring_bytes *end, const void *bytes, int64_t n);
void tempi_ring_take(tempi_ring_bytes *end, void *bytes, int64_t n);

/* Passes on, with n bytes more, all that was put or taken before. */
static inline void tempi_ring_written(tempi_ring_bytes *end, int64_t n)
{
    end->own += (uint64_t)n;
    __atomic_store_n(end->head, end->own, __ATOMIC_RELEASE);
}

static inline void tempi_ring_read(tempi_ring_bytes *end, int64_t n)
{
    end->own += (uint64_t)n;
    __atomic_store_n(end->tail, end->own, __ATOMIC_RELEASE);
}

#endif
