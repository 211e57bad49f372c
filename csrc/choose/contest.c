#include "choose/contest.h"
#include "base/sorted.h"

#include <stddef.h>

/* Rounds of a turn that do not count, and that do: more of short ones, until they take LONG_TURN
 * (ns) without the other work that some contain, or UNSTEADY_TURN if their times differ by STEADY.
 * The first time a method allocates and touches its memory, on this side in the turn's first round,
 * on the other one in the second. */
enum {
    UNCOUNTED = 2,
    COUNTED = 4,
    COUNTED_IF_FAR = 2,
    LONG_TURN = 8000000,
    UNSTEADY_TURN = 32000000
};
#define STEADY 1.1
enum { CYCLES_IF_CLEAR = 3, CYCLES_UNTIL_HOPELESS = 3 };
/* By so much a rival must be faster than the method in use; the favoured one must only be faster at
 * all. */
#define MARGIN 0.03
/* Between two cycles the method in use goes on for so long (ns), or so many rounds: a machine's
 * speed may change every millisecond, and with it how the methods compare. */
#define SPREAD INT64_C(2000000)
enum { SPREAD_ROUNDS = 64 };
/* A change that gains less is one between equals, which the next contest may take back. */
#define SLIGHT 0.1
#define CLEAR  1.5
#define FAR    3.0
/* A method may gain so many times the stake. */
#define PLAUSIBLE 4.0

/* Of the cycles so far. */
static double least(const tempi_contest *c, const tempi_rival *r)
{
    double best = r->took[0];
    for (int i = 1; i <= c->cycle; ++i)
        best = r->took[i] < best ? r->took[i] : best;
    return best;
}

/* How long it takes, as a multiple of the method in use: the median of the cycles, as one may fall
 * into a quiet moment of one method, and the machine's speed may change between two. */
static double relative(const tempi_contest *c, const tempi_rival *r)
{
    double sorted[TEMPI_CONTEST_CYCLES];
    for (int i = 0; i <= c->cycle; ++i)
        tempi_sorted_add(sorted, i, r->took[i] / c->rivals[0].took[i]);
    return sorted[(c->cycle + 1) / 2];
}

int64_t tempi_contest_lost(const tempi_contest *c)
{
    const int64_t lost = c->tried - c->tries * c->usual;
    return lost > 0 ? lost : 0;
}

static bool is_favoured(const tempi_contest *c, const tempi_rival *r)
{
    return r->method == c->favoured;
}

/* The cycles in which it was faster than the method in use. */
static int cycles_won(const tempi_contest *c, const tempi_rival *r)
{
    const double limit = is_favoured(c, r) ? 1 : 1 - MARGIN;
    int won = 0;
    for (int i = 0; i <= c->cycle; ++i)
        won += r->took[i] < limit * c->rivals[0].took[i];
    return won;
}

/* How long it may take to win, as a multiple of the method in use; less strict once it has won. */
static double limit_of(const tempi_contest *c, const tempi_rival *r)
{
    return c->repeated || is_favoured(c, r) ? 1 : 1 - MARGIN;
}

/* How a rival stands against the method in use. */
typedef enum standing { HOPELESS, OPEN, BETTER, CLEARLY_BETTER } standing;

static standing standing_of(const tempi_contest *c, const tempi_rival *r, int64_t stake)
{
    const tempi_rival *used = &c->rivals[0];
    const int n = c->cycle + 1, won = cycles_won(c, r);
    const double other = relative(c, r);
    /* In its first turn a method may still fill its caches. */
    const double far = n == 1 ? FAR : CLEAR;
    if (least(c, r) > far * least(c, used) || (n >= CYCLES_UNTIL_HOPELESS && won == 0))
        return HOPELESS;
    if ((1 - other) * least(c, used) > PLAUSIBLE * (double)stake)
        return OPEN; /* a quiet moment of the program */
    if (n >= CYCLES_IF_CLEAR && won == n && CLEAR * other < 1)
        return CLEARLY_BETTER;
    return other < limit_of(c, r) ? BETTER : OPEN;
}

/* The fastest rival that is as good as that; NULL: none is. */
static const tempi_rival *fastest(const tempi_contest *c, standing at_least, int64_t stake)
{
    const tempi_rival *best = NULL;
    for (int i = 1; i < c->nrivals; ++i) {
        const tempi_rival *r = &c->rivals[i];
        if (standing_of(c, r, stake) >= at_least && (!best || relative(c, r) < relative(c, best)))
            best = r;
    }
    return best;
}

static void drop_hopeless(tempi_contest *c, int64_t stake)
{
    int n = 1;
    for (int i = 1; i < c->nrivals; ++i) {
        if (standing_of(c, &c->rivals[i], stake) != HOPELESS)
            c->rivals[n++] = c->rivals[i];
    }
    c->nrivals = (uint8_t)n;
}

static void end(tempi_contest *c, const tempi_rival *winner)
{
    c->over = true;
    c->winner = winner->method;
    c->same = relative(c, winner) > 1 - SLIGHT;
    c->usual = (int64_t)least(c, &c->rivals[0]) + 1; /* never 0 */
}

static void begin_turn(tempi_contest *c, int at)
{
    c->at = (uint8_t)at;
    c->rounds = c->counted = 0;
}

static void begin_cycle(tempi_contest *c, int cycle)
{
    c->cycle = (uint8_t)cycle;
    c->spread = SPREAD;
    begin_turn(c, 0);
}

/* Once more between the method in use and this one, which by the median is faster, but was not in
 * each cycle: where rounds vary much, the median of some is often that of few. */
static void repeat_with(tempi_contest *c, const tempi_rival *winner)
{
    c->repeated = true;
    c->rivals[1] = *winner;
    c->nrivals = 2;
    begin_cycle(c, 0);
}

/* After the turns of all. */
static void decide(tempi_contest *c, int64_t stake)
{
    drop_hopeless(c, stake);
    const bool last = c->cycle == TEMPI_CONTEST_CYCLES - 1;
    const tempi_rival *winner = fastest(c, last ? BETTER : CLEARLY_BETTER, stake);
    if (winner && !c->repeated && cycles_won(c, winner) <= c->cycle)
        repeat_with(c, winner);
    else if (winner || last || c->nrivals == 1)
        end(c, winner ? winner : &c->rivals[0]);
    else
        begin_cycle(c, c->cycle + 1);
}

/* Of a round: the lower quartile, as rounds may contain a pause of the program or other work, in
 * some programs every other one, and one may have begun late, as the first one after a barrier that
 * waited for the peer to unpack. */
static double turn_time(const tempi_contest *c)
{
    return c->turn[c->counted / 4];
}

static void end_turn(tempi_contest *c, int64_t stake)
{
    const double took = turn_time(c);
    c->rivals[c->at].took[c->cycle] = took;
    if (c->at > 0) { /* not the sum, for the same reason */
        c->tried += (int64_t)took * c->rounds;
        c->tries += c->rounds;
    }
    if (c->at == 0 && (double)stake < MARGIN * took)
        end(c, &c->rivals[0]); /* the rest of the round would decide */
    else if (c->at + 1 < c->nrivals)
        begin_turn(c, c->at + 1);
    else
        decide(c, stake);
}

void tempi_contest_begin(tempi_contest *c, int n, const uint8_t methods[], uint8_t favoured)
{
    *c = (tempi_contest){.nrivals = (uint8_t)n, .favoured = favoured};
    for (int i = 0; i < n; ++i)
        c->rivals[i].method = methods[i];
}

bool tempi_contest_round(tempi_contest *c, int64_t took, int64_t stake)
{
    if (c->spread > 0) {
        c->spread -= took > SPREAD / SPREAD_ROUNDS ? took : SPREAD / SPREAD_ROUNDS;
        return false;
    }
    /* One more in every other cycle: a program's period may be that of two turns. */
    if (++c->rounds <= UNCOUNTED + (c->cycle & 1))
        return false;
    tempi_sorted_add(c->turn, c->counted++, (double)took);
    const bool is_far = c->counted >= COUNTED_IF_FAR && c->at > 0 &&
                        c->turn[0] > FAR * c->rivals[0].took[c->cycle];
    const bool steady = turn_time(c) < STEADY * c->turn[0];
    const bool enough = c->counted >= COUNTED &&
                        c->counted * turn_time(c) >= (steady ? LONG_TURN : UNSTEADY_TURN);
    if (!enough && !is_far && c->counted < TEMPI_CONTEST_COUNTED)
        return false;
    end_turn(c, stake);
    return true;
}
