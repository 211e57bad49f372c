#include "cuda/move_pairs.h"
#include "base/hash.h"
#include "cuda/op_list.h"
#include "datatype/layout.h"

#include <pthread.h>

enum { SETS = 128, WAYS = 4 };

typedef struct pair {
    const tempi_layout *from, *to; /* held; NULL: unused */
    int64_t from_count, to_count, n;
} pair;

static struct {
    pthread_mutex_t lock;
    pair all[SETS][WAYS];
    unsigned char next[SETS]; /* the way to replace */
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pair pair_of(const tempi_op *op)
{
    return (pair){op->layout, op->into->layout, op->count, op->into->count, op->n};
}

static unsigned set_of(const pair *p)
{
    const uint64_t mixed = tempi_hash_mix(tempi_hash_mix((uintptr_t)p->from, (uintptr_t)p->to),
                                          (uint64_t)p->n);
    return (unsigned)(mixed % SETS);
}

static bool same(const pair *a, const pair *b)
{
    return a->from == b->from && a->to == b->to && a->from_count == b->from_count &&
           a->to_count == b->to_count && a->n == b->n;
}

/* Caller holds the lock. */
static bool is_there(const pair *p, unsigned set)
{
    for (int way = 0; way < WAYS; ++way)
        if (same(&known.all[set][way], p))
            return true;
    return false;
}

bool tempi_move_pair_is_known(const tempi_op *op)
{
    const pair p = pair_of(op);
    pthread_mutex_lock(&known.lock);
    const bool found = is_there(&p, set_of(&p));
    pthread_mutex_unlock(&known.lock);
    return found;
}

static void let_go(const pair *p)
{
    tempi_layout_release(p->from);
    tempi_layout_release(p->to);
}

void tempi_move_pair_note(const tempi_op *op)
{
    const pair p = pair_of(op);
    const unsigned set = set_of(&p);
    if (!tempi_layout_is_lasting(p.from) || !tempi_layout_is_lasting(p.to))
        return;
    (void)tempi_layout_retain(p.from);
    (void)tempi_layout_retain(p.to);
    pthread_mutex_lock(&known.lock);
    pair gone = p;
    if (!is_there(&p, set)) {
        pair *place = &known.all[set][known.next[set]];
        known.next[set] = (unsigned char)((known.next[set] + 1) % WAYS);
        gone = *place;
        *place = p;
    }
    pthread_mutex_unlock(&known.lock);
    let_go(&gone);
}

void tempi_move_pairs_clear(void)
{
    pthread_mutex_lock(&known.lock);
    for (int set = 0; set < SETS; ++set)
        for (int way = 0; way < WAYS; ++way) {
            let_go(&known.all[set][way]);
            known.all[set][way] = (pair){.from = NULL};
        }
    pthread_mutex_unlock(&known.lock);
}
