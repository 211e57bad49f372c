#include "exchange/copy_choice.h"
#include "exchange/rest.h"
#include "tempi.h"

#include <math.h>
#include <string.h>

enum {
    RUN_SHORT = 32, /* bytes; the next classes begin at four times as many */
    BY_RUN_MOST = TEMPI_COPY_CLASSES / TEMPI_COPY_SIZES - 1,
    COLD = 2, /* flows of a way, one after the other, that do not count */
    /* Of each way at first: in two rounds, as all is still cold in the first one. */
    SAMPLES = 2 * (TEMPI_COPY_TRIALS - COLD),
    TRIED = COLD + 1, /* flows of a later trial */
    AGAIN = 128,      /* flows after which another way is tried again */
    AGAIN_FIRST = 24, /* more often at first */
    AGAIN_ALL = 3,    /* of so many times one is for ways that are far behind, too */
    FAR = 2,          /* times the best one */
    AGAIN_SETTLED = 16 * AGAIN_FIRST, /* flows from which on trials are rare */
    SOON = 12, /* flows after which a way that was the best is looked at again, and again */
    LATER = 60,
    SETTLING = 24,   /* samples of the level, from which on it is compared with what it was */
    LASTING = 16,    /* flows: some that others on these cores delay are no change */
    SILENT = 4,      /* flows of a follower after which a leader's last choice is old */
    SHORT_SIZES = 2, /* classes of flows that take only some times as long as to read the clocks */
    TIMED = 4,       /* of so many of these that go the best way one is timed */
    WARM_AGAIN = 64, /* times the bytes that rest: then it is warmed again */
    WARM_SOON = 8,   /* the same after the level has changed */
    WARM_FLOWS = 16, /* of which so many count as much as that, at least */
    UNTOLD = 128,    /* flows that end a trial if nothing is learned of them */
    WAY_BITS = 8
};

/* Within a class one way is seldom far from the best: the fixed costs of a way count for flows of
 * some KiB; those of 64 KiB stay in the caches of one core, of 512 KiB in those that cores share
 * with all else there is, of 2 MiB perhaps alone, longer ones in neither. Bytes, at which the next
 * class begins. */
static const int64_t sizes[TEMPI_COPY_SIZES - 1] = {32 << 10, 128 << 10, 1 << 20, 4 << 20};

/* If the level is so many times what it was, or was so many times what it is, other ways are tried
 * as often as at first. */
static const float CHANGED = 1.45F;
/* Of the first samples of the level: all is still cold, and other ways are tried. */
static const float FIRST_PART = 0.25F;
/* Times the level: a way's cost that rose in a few flows. */
static const float SUDDEN = 1.1F;
/* Times the best way's cost: of such a one it cannot be told whether it is better. To change the
 * way takes time: the two processes do so one after the other, and find other lines in their
 * caches. */
static const float NEAR = 1.05F;

static int size_class(int64_t bytes)
{
    int class = 0;
    while (class < TEMPI_COPY_SIZES - 1 && bytes >= sizes[class])
        ++class;
    return class;
}

int tempi_copy_class(int64_t bytes, int64_t offered, int64_t runs)
{
    int by_run = 0;
    if (bytes < TEMPI_COPY_LEAST)
        return -1;
    if (offered >= TEMPI_COPY_LEAST && runs > 0) {
        by_run = TEMPI_COPY_OFFERED / TEMPI_COPY_SIZES;
        for (int64_t run = offered / runs; run >= RUN_SHORT && by_run < BY_RUN_MOST; run /= 4)
            ++by_run;
    }
    return TEMPI_COPY_SIZES * by_run + size_class(bytes);
}

typedef struct tempi_copy_known knowledge;

static bool is_among(unsigned ways, tempi_copy_way way)
{
    return (ways >> way & 1) != 0;
}

/* The n-th of them, beginning again after the last. */
static tempi_copy_way in_turn(unsigned ways, uint32_t n)
{
    for (n %= (uint32_t)__builtin_popcount(ways); n > 0; --n)
        ways &= ways - 1; /* without its lowest */
    return (tempi_copy_way)__builtin_ctz(ways);
}

/* Those of the ways that cost no more. */
static unsigned within(const float *cost, unsigned ways, float most)
{
    for (tempi_copy_way way = 0; way < TEMPI_COPY_WAYS; ++way)
        if (cost[way] > most)
            ways &= ~(1u << way);
    return ways;
}

static tempi_copy_way best_of(const float *cost, unsigned ways)
{
    tempi_copy_way best = in_turn(ways, 0);
    for (tempi_copy_way way = best + 1; way < TEMPI_COPY_WAYS; ++way)
        if (is_among(ways, way) && cost[way] < cost[best])
            best = way;
    return best;
}

/* The best one, or the one that was, if it is near. One that was the best for long may have had
 * only some slow flows, as of a processor that had other work. */
static tempi_copy_way take_best(knowledge *known, unsigned ways, uint32_t flow)
{
    const float *cost = known->cost;
    const tempi_copy_way best = best_of(cost, ways), last = known->best;
    if (is_among(ways, last) && cost[last] <= NEAR * cost[best])
        return last;
    if (flow - known->since > LATER) {
        known->looks = cost[last] > SUDDEN * known->level;
        known->former = (uint8_t)last;
        known->since = flow;
    }
    return known->best = (uint8_t)best;
}

/* What was known of such a way is forgotten soon after it was replaced, and once again later. */
static void forget_slow_flows(knowledge *known, uint32_t flow)
{
    const uint32_t since = flow - known->since;
    if (!known->looks || (since != SOON && since != LATER))
        return;
    known->samples[known->former] = 0;
    known->cost[known->former] = known->cost[known->best]; /* not too far behind to be tried */
}

/* Ways through memory that rests, beside one through memory that does not. What they cost shows
 * when all of that memory has been used a short time ago: before, it is in no cache (128 KiB each
 * way took 40 us then, 9 later, and 4.5 through the same memory again; Zen 3). */
static const unsigned resting = 1 << TEMPI_COPY_TWICE | 1 << TEMPI_COPY_NONTEMPORAL;

/* At first, and now and then, unless the program's flows warm it. */
static bool is_to_be_warmed(const knowledge *known, unsigned ways)
{
    const int64_t early = known->changed ? (WARM_AGAIN - WARM_SOON) * tempi_rest_bytes() : 0;
    return is_among(ways, TEMPI_COPY_TWICE) && is_among(ways, TEMPI_COPY_REUSED) &&
           known->until <= early && known->flows % TEMPI_COPY_TRIALS == 0 &&
           (known->flows == 0 || !is_among(resting, known->best));
}

/* Then they, and the one through memory that does not, are tried as at first: which of them is the
 * fastest depends on where the two cores are. */
static void begin_to_warm(knowledge *known)
{
    const unsigned through = resting | 1 << TEMPI_COPY_REUSED;
    known->cold = tempi_rest_bytes();
    known->until = WARM_AGAIN * known->cold;
    known->changed = false;
    for (tempi_copy_way way = 0; way < TEMPI_COPY_WAYS; ++way) {
        if (!is_among(through, way))
            continue;
        known->samples[way] = 0;
        known->cost[way] = known->cost[known->best]; /* not too far behind to be tried */
    }
}

/* Other ways to try now and then: not those that would seem slow. */
static unsigned others_than(tempi_copy_way best, unsigned ways)
{
    return ways & ~(1u << best) & ~(best == TEMPI_COPY_REUSED ? resting : 0);
}

/* The best way, or now and then another one. */
static tempi_chosen_way again(knowledge *known, unsigned ways, int class, uint32_t flow)
{
    const float *cost = known->cost;
    const tempi_copy_way best = take_best(known, ways, flow);
    const uint32_t every = flow < 8 * AGAIN_FIRST ? AGAIN_FIRST
                           : flow < AGAIN_SETTLED ? 2 * AGAIN_FIRST
                                                  : AGAIN,
                   times = flow / every;
    const unsigned others = others_than(best, ways),
                   rivals = times % AGAIN_ALL == 0 ? others
                                                   : within(cost, others, FAR * cost[best]);
    if (rivals && flow % every < TRIED)
        return (tempi_chosen_way){
            in_turn(rivals, times % AGAIN_ALL == 0 ? times / AGAIN_ALL : times), true};
    return (tempi_chosen_way){best, class % TEMPI_COPY_SIZES >= SHORT_SIZES || flow % TIMED == 0};
}

/* Of the ways with too few samples the one with the fewest; -1: there is none. One that is far
 * behind in the first round has no second one. */
static int untried(const float *cost, const uint8_t *samples, unsigned ways)
{
    float least = HUGE_VALF;
    int found = -1;
    for (tempi_copy_way way = 0; way < TEMPI_COPY_WAYS; ++way)
        if (is_among(ways, way) && samples[way] > 0 && cost[way] < least)
            least = cost[way];
    for (tempi_copy_way way = 0; way < TEMPI_COPY_WAYS; ++way)
        if (is_among(ways, way) && samples[way] < SAMPLES && cost[way] <= FAR * least &&
            (found < 0 || samples[way] < samples[found]))
            found = (int)way;
    return found;
}

/* A sender that need not wait may run ahead of its receiver, which tells the time of the last flows
 * alone: a trial of such a way would never end. */
static void end_untold_trial(knowledge *known)
{
    known->cold = 0;
    known->trying = -1;
    for (tempi_copy_way way = 0; way < TEMPI_COPY_WAYS; ++way) {
        if (known->samples[way] == 0 && way != known->best)
            known->cost[way] = FAR * known->cost[known->best];
        if (known->samples[way] < SAMPLES)
            known->samples[way] = SAMPLES;
    }
}

static tempi_chosen_way measured(tempi_copy_choice *choice, int class, unsigned ways)
{
    knowledge *known = &choice->classes[class];
    const float *cost = known->cost;
    int8_t *trying = &known->trying;
    if (++known->untold > UNTOLD && known->level > 0 && (known->cold > 0 || *trying >= 0))
        end_untold_trial(known);
    if (is_to_be_warmed(known, ways))
        begin_to_warm(known);
    if (known->cold > 0 && is_among(ways, TEMPI_COPY_TWICE))
        return (tempi_chosen_way){TEMPI_COPY_TWICE, true};
    const uint32_t flow = known->flows++;
    forget_slow_flows(known, flow);
    if (flow % TEMPI_COPY_TRIALS == 0)
        *trying = (int8_t)untried(cost, known->samples, ways);
    return *trying >= 0 && is_among(ways, (tempi_copy_way)*trying)
               ? (tempi_chosen_way){(tempi_copy_way)*trying, true}
               : again(known, ways, class, flow);
}

/* What the leader chose last, as long as it goes on to send flows of that class. */
static bool follow(tempi_copy_choice *choice, const tempi_copy_lead *leader, int class,
                   unsigned ways, tempi_copy_way *way)
{
    const uint32_t chosen = __atomic_load_n(&leader->chosen[class], __ATOMIC_RELAXED);
    uint32_t *silent = &choice->classes[class].silent;
    *silent = chosen != choice->classes[class].heard ? 0 : *silent + 1;
    choice->classes[class].heard = chosen;
    *way = (tempi_copy_way)(chosen & ((1u << WAY_BITS) - 1));
    return chosen != 0 && is_among(ways, *way) && *silent <= SILENT;
}

static int forced = -1;

const char *tempi_copy_way_name(int way)
{
    static const char *const names[TEMPI_COPY_WAYS] = {
        [TEMPI_COPY_TWICE] = "twice",   [TEMPI_COPY_NONTEMPORAL] = "nontemporal",
        [TEMPI_COPY_PACKED] = "packed", [TEMPI_COPY_ONCE] = "once",
        [TEMPI_COPY_STORED] = "stored", [TEMPI_COPY_MAPPED] = "mapped",
        [TEMPI_COPY_REUSED] = "reused"};
    return way >= 0 && way < TEMPI_COPY_WAYS ? names[way] : NULL;
}

void tempi_copy_way_force(int way)
{
    __atomic_store_n(&forced, way, __ATOMIC_RELAXED);
}

/* -1: none of these. */
static int forced_of(unsigned ways)
{
    const int way = __atomic_load_n(&forced, __ATOMIC_RELAXED);
    return way >= 0 && is_among(ways, (tempi_copy_way)way) ? way : -1;
}

void tempi_copy_tell(tempi_copy_lead *lead, int class, tempi_copy_way way, uint64_t turn)
{
    __atomic_store_n(&lead->chosen[class], (uint32_t)turn << WAY_BITS | (uint32_t)way,
                     __ATOMIC_RELAXED);
}

tempi_chosen_way tempi_copy_choose(tempi_copy_choice *choice, int class, unsigned ways,
                                   const tempi_copy_lead *leader, uint64_t turn,
                                   tempi_copy_lead *own)
{
    tempi_chosen_way chosen = {.timed = false};
    const int wanted = forced_of(ways);
    if (wanted >= 0)
        return (tempi_chosen_way){(tempi_copy_way)wanted, false};
    if (!leader || !follow(choice, leader, class, ways, &chosen.way))
        chosen = measured(choice, class, ways);
    if (own)
        tempi_copy_tell(own, class, chosen.way, turn);
    return chosen;
}

tempi_chosen_way tempi_copy_plan(tempi_copy_choice *choice, int class, unsigned ways,
                                 tempi_copy_way *next)
{
    tempi_chosen_way *planned = &choice->classes[class].planned;
    bool *plans = &choice->classes[class].plans;
    const int wanted = forced_of(ways);
    if (wanted >= 0)
        return (tempi_chosen_way){*next = (tempi_copy_way)wanted, false};
    const tempi_chosen_way now = *plans && is_among(ways, planned->way)
                                     ? *planned
                                     : measured(choice, class, ways);
    *planned = measured(choice, class, ways);
    *plans = true;
    *next = planned->way;
    return now;
}

static float less(float a, float b)
{
    return a < b ? a : b;
}

/* `rare`: of a trial, which has one sample. */
static void take_sample(float *known, int samples, float cost, bool rare)
{
    if (samples == 1)
        *known = cost;
    else if (samples <= SAMPLES)
        *known = less(cost, *known);
    else /* of more than twice as much a process may have lost its core meanwhile */
        *known += (less(cost, 2 * *known) - *known) / (rare ? 1.5F : 6);
}

/* Whether enough flows before this one have gone the same way. */
static bool is_warm(knowledge *known, tempi_copy_way way)
{
    known->row = (uint8_t)(known->latest == way ? known->row + (known->row <= COLD) : 1);
    known->latest = (uint8_t)way;
    return known->row > COLD;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Whether a flow still only warms memory that rests. */
static bool is_warming(knowledge *known, tempi_copy_way way, int64_t bytes)
{
    const bool cold = known->cold > 0;
    if (cold && way == TEMPI_COPY_TWICE)
        known->cold -= bytes;
    return cold;
}

static void begin_again(knowledge *known)
{
    known->noted = 0;
    known->since -= known->flows; /* as long ago as before */
    known->flows = 0;
    known->changed = true;
}

/* What is known of the others is of the time before: they will have changed likewise. */
static void scale_others(knowledge *known, float times)
{
    for (tempi_copy_way way = 0; way < TEMPI_COPY_WAYS; ++way)
        if (way != known->best)
            known->cost[way] *= times;
}

/* A flow took so much by the best way. If that lasts, the flows have changed, or the machine. */
static void note_level(knowledge *known, float cost)
{
    float *level = &known->level, *settled = &known->settled;
    const bool first = known->noted == 0, settles = known->noted < SETTLING;
    const float part = known->noted < LASTING ? FIRST_PART : 1.0F / LASTING;
    *level = first ? cost : *level + part * (less(cost, 2 * *level) - *level);
    if (settles) {
        ++known->noted;
        *settled = *level;
    } else if (*level > CHANGED * *settled || *settled > CHANGED * *level) {
        scale_others(known, known->cost[known->best] / *settled);
        begin_again(known);
    }
}

void tempi_copy_learn(tempi_copy_choice *choice, int class, tempi_copy_way way, double seconds,
                      int64_t bytes)
{
    knowledge *known = &choice->classes[class];
    uint8_t *samples = &known->samples[way];
    const float cost = (float)(seconds / (double)bytes);
    const bool best = known->best == way;
    known->untold = 0;
    known->until -= least(bytes, tempi_rest_bytes() / WARM_FLOWS);
    if (!is_warm(known, way) || is_warming(known, way, bytes))
        return;
    *samples = (uint8_t)(*samples + (*samples <= SAMPLES));
    take_sample(&known->cost[way], *samples, cost, !best);
    if (best)
        note_level(known, cost);
}

void tempi_copy_guess(tempi_copy_choice *choice, int class, const tempi_copy_choice *other)
{
    const knowledge *from = &other->classes[class];
    knowledge *to = &choice->classes[class];
    if (to->flows > 0 || to->until > 0 || to->level > 0 || from->level == 0)
        return;
    memcpy(to->cost, from->cost, sizeof to->cost);
    memcpy(to->samples, from->samples, sizeof to->samples);
    to->level = to->settled = from->level;
    to->best = from->best;
}

bool tempi_copy_packs_nontemporal(const tempi_copy_choice *choice, int class)
{
    const float *cost = choice->classes[class].cost;
    return cost[TEMPI_COPY_NONTEMPORAL] > 0 &&
           cost[TEMPI_COPY_NONTEMPORAL] < cost[TEMPI_COPY_TWICE];
}

double tempi_copy_packing(const tempi_copy_choice *choice, int class, int64_t bytes)
{
    const double unknown = 1e-10; /* seconds a byte */
    const double least = choice->classes[class].cost[tempi_copy_packs_nontemporal(choice, class)
                                                         ? TEMPI_COPY_NONTEMPORAL
                                                         : TEMPI_COPY_TWICE];
    return (least > 0 ? least / 2 : unknown) * (double)bytes;
}
