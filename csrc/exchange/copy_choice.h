/* Chooses how a flow is copied that is not short: through shared memory that has rested (rest.h),
 * with ordinary or with non-temporal stores, or through the same memory again; in one copy, by
 * reading the sender's memory, or memory that is mapped in both processes; or packed in memory of
 * the sender's own, which the receiver reads. Which one is fastest depends on the processor, on the
 * caches that two cores share, and on the kernel's cost of each run; so the sender times them on
 * the program's own calls, for each receiver, length of runs and size, and now and then a slower
 * one again: in three flows one after the other, of which the first two do not count. They warm
 * caches and pages, and may take memory whose lines the receiver does not hold yet, unlike those
 * that follow.
 *
 * The two flows of a pair should go the same way. A process that reads the memory of the other one
 * does not pack meanwhile: in unlike ways the two wait for each other in turn, for twice as long.
 * So one of them leads, and the other one follows what it last chose. */
#ifndef TEMPI_EXCHANGE_COPY_CHOICE_H
#define TEMPI_EXCHANGE_COPY_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tempi_copy_way {
    TEMPI_COPY_TWICE,       /* through shared memory */
    TEMPI_COPY_NONTEMPORAL, /* the same with non-temporal stores (block_bytes.h) */
    TEMPI_COPY_PACKED,      /* the receiver reads packed bytes */
    TEMPI_COPY_ONCE,        /* the receiver reads blocks; not for short runs */
    TEMPI_COPY_STORED,      /* the sender stores blocks in the receiver's memory (invitation.h) */
    TEMPI_COPY_MAPPED,      /* the receiver reads blocks of memory that it has mapped (mapped.h) */
    TEMPI_COPY_REUSED,      /* as TWICE, through the memory that was read last */
    TEMPI_COPY_WAYS
} tempi_copy_way;

enum {
    TEMPI_COPY_TRIALS = 4, /* flows of a way, one after the other, at first */
    TEMPI_COPY_SIZES = 5,  /* classes for each length of runs */
    TEMPI_COPY_CLASSES = 7 * TEMPI_COPY_SIZES,
    TEMPI_COPY_OFFERED = TEMPI_COPY_SIZES, /* the first class of flows with blocks to offer */
    TEMPI_COPY_LEAST = 4 << 10, /* bytes; a shorter flow ends sooner than a call of the kernel */
    /* The kernel takes as long for a shorter run as to copy it twice. */
    TEMPI_COPY_RUN_LEAST = 512
};

/* How a receiver can get at the sender's memory; bit mask. */
enum {
    TEMPI_ACCESS_READ = 1,  /* through the kernel (single_copy.h) */
    TEMPI_ACCESS_MAP = 2,   /* where it is mapped */
    TEMPI_ACCESS_ATTACH = 4 /* all of it, by XPMEM (xpmem.h) */
};

/* How a flow goes, and whether it is to be timed, and learned from. */
typedef struct tempi_chosen_way {
    tempi_copy_way way;
    bool timed;
} tempi_chosen_way;

/* Zero at first. Of one sender for one receiver, while their cores share a cache, or do not. */
typedef struct tempi_copy_choice {
    struct tempi_copy_known {
        float cost[TEMPI_COPY_WAYS];      /* seconds per byte */
        float level, settled;             /* of recent flows by the best way; the same at last */
        uint8_t samples[TEMPI_COPY_WAYS]; /* or more */
        int8_t trying;                    /* a way; -1: it knows enough of all */
        uint8_t latest;                   /* way of the flows that have ended */
        uint8_t row;                      /* how many of them, one after the other; or more */
        uint8_t noted;                    /* samples of the level since they began; or more */
        uint8_t best;                     /* taken, unless another one is tried */
        uint8_t former;                   /* one that was the best for long before */
        bool looks;                       /* at that again */
        uint32_t flows, since;            /* since when it is not, in flows */
        uint32_t heard; /* the leader's last word, and own flows since it changed */
        uint32_t silent;
        uint32_t untold;          /* flows since it learned of one */
        int64_t cold;             /* bytes that warm memory that rests, from now on */
        int64_t until;            /* bytes until it is warmed again */
        bool changed;             /* the level has, since it was warmed */
        tempi_chosen_way planned; /* of the next flow */
        bool plans;
    } classes[TEMPI_COPY_CLASSES];
} tempi_copy_choice;

/* What a process has chosen for each class: last, in shared memory, or for its next flow, as its
 * messages say. Zero at first. */
typedef struct tempi_copy_lead {
    uint32_t chosen[TEMPI_COPY_CLASSES];
} tempi_copy_lead;

/* The class of a flow of `bytes`, of which `offered` are in blocks to offer with so many runs; -1:
 * it is too short. */
int tempi_copy_class(int64_t bytes, int64_t offered, int64_t runs);
/* The way of a flow of that class, one of `ways` (bit mask), which is told in *own, unless that is
 * NULL. `leader`: what the other process of the pair has chosen; NULL: this one leads. `turn`:
 * another number in each call. A leader that sends no such flows any more is not followed, and a
 * follower learns nothing. */
tempi_chosen_way tempi_copy_choose(tempi_copy_choice *choice, int class, unsigned ways,
                                   const tempi_copy_lead *leader, uint64_t turn,
                                   tempi_copy_lead *own);
/* The same of a leader whose flows say which way its next one goes, *next: so the two go the same
 * way also when it changes. */
tempi_chosen_way tempi_copy_plan(tempi_copy_choice *choice, int class, unsigned ways,
                                 tempi_copy_way *next);
/* It has chosen that way in that turn. */
void tempi_copy_tell(tempi_copy_lead *lead, int class, tempi_copy_way way, uint64_t turn);
/* What is known of that class in another choice is a first guess, if there is nothing here. */
void tempi_copy_guess(tempi_copy_choice *choice, int class, const tempi_copy_choice *other);
/* Both processes together, or the longer one, took so many seconds for a flow of that class. Counts
 * if the two learned before went the same way. */
void tempi_copy_learn(tempi_copy_choice *choice, int class, tempi_copy_way way, double seconds,
                      int64_t bytes);
/* How a sender should store such a flow that it must pack: with non-temporal stores? */
bool tempi_copy_packs_nontemporal(const tempi_copy_choice *choice, int class);
/* About how long a sender packs such a flow, in seconds. */
double tempi_copy_packing(const tempi_copy_choice *choice, int class, int64_t bytes);

#endif
