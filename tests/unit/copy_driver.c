/* copy_driver.c: csrc/exchange/copy_choice.c, for test_copy_choice.py.
 *
 *     class RUN BYTES                prints the class of such a flow, and how many there are
 *     force FLOWS                    prints, for each way, how many of so many flows go that way if
 *                                    it is forced, and how many of those that cannot
 *     settle ROUNDS SEED FIRST       prints what the trials of simulated ways cost
 *     unsteady FLOWS SEED CLASS      prints how many of a thousand flows go a way of steady cost,
 *                                    not one that costs 0.55 or 2.2 times as much, by chance
 *     others FLOWS SEED CLASS        prints how many of a thousand flows go the best way, after
 *                                    so many in which all ways took longer and another one was best
 *     equals FLOWS SEED CLASS        prints how often of a thousand flows the way changes, of two
 *                                    that cost as much
 *     warming FLOWS SEED CLASS       prints how many of a thousand flows go the best way, not one
 *                                    whose second flow in a row is faster than those that follow
 *     late FLOWS SEED CLASS          after a hundred flows that are chosen before one of them has
 *                                    ended: prints how many of a thousand go the best way
 *     burst FLOWS SEED CLASS         after so many flows the best way is slow in some; prints in
 *                                    how many of the next thousand, by 300 of them, it is taken
 *     rested FLOWS COST CLASS        prints how many of a thousand flows go through memory that
 *                                    rests, which costs three times as much in the first ones, then
 *                                    COST, beside the same memory again at 1; and how many when
 *                                    COST has become 0.6
 *     phases FLOWS CLASS             the same of memory that rests and always costs 1.5, while all
 *                                    flows take longer and shorter in turn
 *     apart FLOWS CLASS              the same in 700 flows after so many, in which memory that
 *                                    rests costs 1, before 2, and the same again 1.6, before 1
 *     untold FLOWS COST CLASS        prints how many of a thousand flows go the best way: one copy,
 *                                    which costs COST, or the same memory again, 2, not memory that
 *                                    rests, 3; of all but one copy nothing is learned since memory
 *                                    is warmed after the first FLOWS
 *     guess CLASS                    prints the way of a flow of which nothing is known but in
 *                                    another choice, before and after that is the first guess, then
 *                                    of one of which more is known; whether this is still known
 *                                    when its trials begin again; and how many samples there are of
 *                                    a way that was about to be tried
 *     parts FOLDER                   prints what is learned of messages in two parts
 *     alike FOLDER TURNS SEED        prints in how many turns both messages of a pair went the same
 *                                    way, and in how many they were offered; then, of as many turns
 *                                    in which the second process alone sends, in how many it
 *                                    offered
 */
#include "dice.h"
#include "exchange/post_box.h"
#include "no_layouts.h"

#include <string.h>

/* ---- classes --------------------------------------------------------------------------------- */

/* RUN BYTES: the class of a flow of so many bytes in runs of that length, all of them offered; 0:
 * none is. */
static int class_of(char **argv)
{
    const int64_t run = atoll(argv[2]), bytes = atoll(argv[3]);
    printf("%d of %d\n", tempi_copy_class(bytes, run ? bytes : 0, run ? bytes / run : 0),
           TEMPI_COPY_CLASSES);
    return 0;
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* A way of known costs: noise, and caches that warm with the first flows, and after each change. */
typedef struct simulation {
    dice dice;
    double cost[TEMPI_COPY_WAYS]; /* seconds */
    tempi_copy_choice choice;
    tempi_copy_lead lead;
    tempi_copy_way last;
    int in_last; /* flows */
    int flows, timed;
    int class;
} simulation;

static double noise(dice *d)
{
    return 1 + (double)draw(d, 0, 300) / 1000;
}

static double simulate_flow(simulation *s, unsigned ways)
{
    enum { BYTES = 1 << 20, WARM = 12 };
    const tempi_chosen_way chosen = tempi_copy_choose(&s->choice, s->class, ways, NULL,
                                                      (uint64_t)s->flows + 1, &s->lead);
    const tempi_copy_way way = chosen.way;
    s->in_last = way == s->last ? s->in_last + 1 : 0;
    s->last = way;
    const double cold = s->flows < WARM ? 1 + (WARM - s->flows) / 3.0 : 1,
                 seconds = s->cost[way] * noise(&s->dice) * cold * (s->in_last == 0 ? 3 : 1);
    ++s->flows;
    s->timed += chosen.timed;
    if (chosen.timed)
        tempi_copy_learn(&s->choice, s->class, way, seconds, BYTES);
    return seconds;
}

/* Over that of the best way, in thousandths. */
static int64_t excess(simulation *s, unsigned ways, int flows)
{
    double all = 0, best = 1;
    for (int i = 0; i < TEMPI_COPY_WAYS; ++i)
        if ((ways >> i & 1) && s->cost[i] < best)
            best = s->cost[i];
    for (int i = 0; i < flows; ++i)
        all += simulate_flow(s, ways);
    return (int64_t)(1000 * (all / (best * 1.15 * flows) - 1)); /* the mean noise */
}

/* Memory is read through the kernel or is mapped: no flow has a choice of both. */
static unsigned some_ways(dice *d)
{
    const unsigned either = 1 << TEMPI_COPY_ONCE | 1 << TEMPI_COPY_MAPPED,
                   ways = (unsigned)draw(d, 1, (1 << TEMPI_COPY_WAYS) - 1);
    return (ways & either) == either ? ways & ~(1u << TEMPI_COPY_MAPPED) : ways;
}

/* ROUNDS SEED FIRST CLASS: prints the mean excess in three periods: of so many first flows and,
 * twice after the costs have changed, of 2,000; and how many of all were timed, in thousandths. */
static int settle(int rounds, uint64_t seed, int first, int class)
{
    int64_t sum[3] = {0}, timed = 0;
    dice d = {seed * 0x9E3779B97F4A7C15u | 1};
    for (int round = 0; round < rounds; ++round) {
        simulation s = {.dice = d, .class = class};
        const unsigned ways = some_ways(&d);
        for (int period = 0; period < 3; ++period) {
            for (int i = 0; i < TEMPI_COPY_WAYS; ++i)
                s.cost[i] = 1e-4 * (double)draw(&d, 100, 400) / 100;
            sum[period] += excess(&s, ways, period == 0 ? first : 2000);
        }
        timed += 1000LL * s.timed / s.flows;
    }
    for (int period = 0; period < 3; ++period)
        printf("%d ", (int)(sum[period] / rounds));
    printf("%d\n", (int)(timed / rounds));
    return 0;
}

static int unsteady(int flows, uint64_t seed, int class)
{
    enum { BYTES = 1 << 20 };
    const unsigned ways = 1 << TEMPI_COPY_TWICE | 1 << TEMPI_COPY_NONTEMPORAL;
    dice d = {seed * 0x9E3779B97F4A7C15u | 1};
    tempi_copy_choice choice = {0};
    int steady = 0;
    for (int i = 0; i < flows; ++i) {
        const tempi_chosen_way chosen = tempi_copy_choose(&choice, class, ways, NULL, 0, NULL);
        const tempi_copy_way way = chosen.way;
        const double factor = way == TEMPI_COPY_NONTEMPORAL ? 1 : draw(&d, 0, 1) ? 0.55 : 2.2;
        steady += way == TEMPI_COPY_NONTEMPORAL;
        if (chosen.timed)
            tempi_copy_learn(&choice, class, way, 1e-4 * factor, BYTES);
    }
    printf("%d\n", (int)(1000LL * steady / flows));
    return 0;
}

/* By one of these ways; learns of it, and returns it. */
static tempi_copy_way flow_among(tempi_copy_choice *choice, int class, unsigned ways,
                                 const double *cost, int64_t bytes, dice *d)
{
    const tempi_chosen_way one = tempi_copy_choose(choice, class, ways, NULL, 0, NULL);
    if (one.timed)
        tempi_copy_learn(choice, class, one.way, 1e-4 * cost[one.way] * noise(d), bytes);
    return one.way;
}

/* The same by one of the first n. */
static tempi_copy_way one_flow(tempi_copy_choice *choice, int class, const double *cost, int n,
                               dice *d)
{
    return flow_among(choice, class, (1u << n) - 1, cost, 1 << 20, d);
}

static int others(int flows, uint64_t seed, int class)
{
    dice d = {seed * 0x9E3779B97F4A7C15u | 1};
    tempi_copy_choice choice = {0};
    const double before[] = {3.5, 2.8, 4.3, 3.3, 3.1}, after[] = {0.8, 1.1, 2.6, 2.6, 2.5};
    int best = 0;
    for (int i = 0; i < flows; ++i)
        (void)one_flow(&choice, class, before, 5, &d);
    for (int i = 0; i < flows; ++i)
        best += one_flow(&choice, class, after, 5, &d) == TEMPI_COPY_TWICE;
    printf("%d\n", (int)(1000LL * best / flows));
    return 0;
}

static int equals(int flows, uint64_t seed, int class)
{
    dice d = {seed * 0x9E3779B97F4A7C15u | 1};
    tempi_copy_choice choice = {0};
    const double cost[] = {1, 1};
    int changes = 0;
    tempi_copy_way last = TEMPI_COPY_TWICE;
    for (int i = 0; i < flows; ++i) {
        const tempi_copy_way way = one_flow(&choice, class, cost, 2, &d);
        changes += way != last;
        last = way;
    }
    printf("%d\n", (int)(1000LL * changes / flows));
    return 0;
}

/* The first flow of a way is slow, the second one may be fast, as it takes memory whose lines the
 * receiver does not hold. */
static int warming(int flows, uint64_t seed, int class)
{
    enum { BYTES = 1 << 20 };
    static const double cost[2][3] = {{3, 0.6, 1.3}, {3, 1, 1}};
    dice d = {seed * 0x9E3779B97F4A7C15u | 1};
    tempi_copy_choice choice = {0};
    int best = 0, row = 0, last = -1;
    for (int i = 0; i < flows; ++i) {
        const tempi_chosen_way one = tempi_copy_choose(&choice, class, 3, NULL, 0, NULL);
        row = (int)one.way == last ? row + 1 : 0;
        last = (int)one.way;
        best += last == 1;
        if (one.timed)
            tempi_copy_learn(&choice, class, one.way,
                             1e-4 * cost[last][row < 2 ? row : 2] * noise(&d), BYTES);
    }
    printf("%d\n", (int)(1000LL * best / flows));
    return 0;
}

/* Of which none ends before some are chosen. */
static int late(int flows, uint64_t seed, int class)
{
    enum { BYTES = 1 << 20, LATE = 100 };
    static const double cost[] = {2, 1.5, 1};
    dice d = {seed * 0x9E3779B97F4A7C15u | 1};
    tempi_copy_choice choice = {0};
    int best = 0;
    tempi_copy_way way[LATE];
    for (int i = 0; i < LATE; ++i)
        way[i] = tempi_copy_choose(&choice, class, 7, NULL, 0, NULL).way;
    for (int i = 0; i < LATE; ++i)
        tempi_copy_learn(&choice, class, way[i], 1e-4 * cost[way[i]] * noise(&d), BYTES);
    for (int i = 0; i < flows; ++i)
        best += one_flow(&choice, class, cost, 3, &d) == TEMPI_COPY_PACKED;
    printf("%d\n", 1000 * best / flows);
    return 0;
}

static int burst(int flows, uint64_t seed, int class)
{
    enum { SLOW = 20, AFTER = 300 };
    dice d = {seed * 0x9E3779B97F4A7C15u | 1};
    tempi_copy_choice choice = {0};
    const double cost[] = {1, 1.35, 1.7, 1.6}, slow[] = {3, 1.35, 1.7, 1.6};
    int best = 0;
    for (int i = 0; i < flows; ++i)
        (void)one_flow(&choice, class, cost, 4, &d);
    for (int i = 0; i < SLOW; ++i)
        (void)one_flow(&choice, class, slow, 4, &d);
    for (int i = 0; i < AFTER; ++i)
        best += one_flow(&choice, class, cost, 4, &d) == TEMPI_COPY_TWICE;
    printf("%d\n", 1000 * best / AFTER);
    return 0;
}

static const unsigned rests_or_not = 1 << TEMPI_COPY_TWICE | 1 << TEMPI_COPY_REUSED;

/* In the last half of as many flows again, it has. */
static int rested(int flows, double warm, int class)
{
    enum { BYTES = 128 << 10, WARM = (2 << 20) / BYTES, COLD = 40 };
    dice d = {5};
    tempi_copy_choice choice = {0};
    int used = 0, since = 0, count[2] = {0};
    for (int i = 0; i < 2 * flows; ++i) {
        const tempi_chosen_way one = tempi_copy_choose(&choice, class, rests_or_not, NULL, 0, NULL);
        const bool rests = one.way == TEMPI_COPY_TWICE;
        since = rests ? 0 : since + 1;
        used = rests ? used + 1 : since > COLD ? 0 : used;
        const double cost = !rests ? 1 : used <= WARM ? 3 : i < flows ? warm : 0.6;
        if (one.timed)
            tempi_copy_learn(&choice, class, one.way, 1e-5 * cost * noise(&d), BYTES);
        if (i < flows || i >= flows + flows / 2)
            count[i >= flows] += rests;
    }
    printf("%d %d\n", 1000 * count[0] / flows, 1000 * count[1] / (flows / 2));
    return 0;
}

static int phases(int flows, int class)
{
    enum { BYTES = 8 << 10, PHASE = 300 };
    static const double cost[2][TEMPI_COPY_WAYS] = {
        {[TEMPI_COPY_TWICE] = 0.015, [TEMPI_COPY_REUSED] = 0.01},
        {[TEMPI_COPY_TWICE] = 0.06, [TEMPI_COPY_REUSED] = 0.04}};
    dice d = {5};
    tempi_copy_choice choice = {0};
    int rests = 0;
    for (int i = 0; i < flows; ++i)
        rests += flow_among(&choice, class, rests_or_not, cost[i / PHASE % 2], BYTES, &d) ==
                 TEMPI_COPY_TWICE;
    printf("%d\n", 1000 * rests / flows);
    return 0;
}

static int apart(int flows, int class)
{
    enum { BYTES = 128 << 10, THEN = 700 };
    static const double cost[2][TEMPI_COPY_WAYS] = {
        {[TEMPI_COPY_TWICE] = 0.2, [TEMPI_COPY_REUSED] = 0.1},
        {[TEMPI_COPY_TWICE] = 0.1, [TEMPI_COPY_REUSED] = 0.16}};
    dice d = {5};
    tempi_copy_choice choice = {0};
    int rests = 0;
    for (int i = 0; i < flows; ++i)
        (void)flow_among(&choice, class, rests_or_not, cost[0], BYTES, &d);
    for (int i = 0; i < THEN; ++i)
        rests += flow_among(&choice, class, rests_or_not, cost[1], BYTES, &d) == TEMPI_COPY_TWICE;
    printf("%d\n", 1000 * rests / THEN);
    return 0;
}

static int untold(int flows, double once, int class)
{
    enum { BYTES = 128 << 10, THEN = 4000 };
    const unsigned ways = rests_or_not | 1 << TEMPI_COPY_ONCE;
    const double cost[TEMPI_COPY_WAYS] = {
        [TEMPI_COPY_TWICE] = 3, [TEMPI_COPY_ONCE] = once, [TEMPI_COPY_REUSED] = 2};
    const tempi_copy_way best = once < 2 ? TEMPI_COPY_ONCE : TEMPI_COPY_REUSED;
    dice d = {5};
    tempi_copy_choice choice = {0};
    int found = 0;
    for (int i = 0; i < flows || (i < 4 * flows && choice.classes[class].cold == 0); ++i)
        (void)flow_among(&choice, class, ways, cost, BYTES, &d);
    for (int i = 0; i < THEN; ++i) {
        const tempi_chosen_way one = tempi_copy_choose(&choice, class, ways, NULL, 0, NULL);
        if (one.timed && one.way == TEMPI_COPY_ONCE)
            tempi_copy_learn(&choice, class, one.way, 1e-4 * once * noise(&d), BYTES);
        found += one.way == best;
    }
    printf("%d\n", 1000 * found / THEN);
    return 0;
}

static int guess(int class)
{
    dice d = {1};
    tempi_copy_choice known = {0}, choice = {0};
    const double cost[] = {2, 1};
    for (int i = 0; i < 100; ++i)
        (void)one_flow(&known, class, cost, 2, &d);
    tempi_copy_choice none = choice;
    printf("%d ", one_flow(&none, class, cost, 2, &d));
    tempi_copy_guess(&choice, class, &known);
    for (int i = 0; i < 6; ++i) /* in the first three it tries another one */
        printf("%d ", one_flow(&choice, class, cost, 2, &d));
    for (int i = 0; i < 500; ++i)
        (void)one_flow(&none, class, (double[]){1, 2}, 2, &d);
    tempi_copy_guess(&none, class, &known); /* it knows more */
    printf("%d ", one_flow(&none, class, (double[]){1, 2}, 2, &d));
    none.classes[class].flows = 0; /* as if its trials began again */
    tempi_copy_guess(&none, class, &known);
    printf("%d ", none.classes[class].cost[0] < none.classes[class].cost[1]);
    tempi_copy_choice warms = {0};
    (void)tempi_copy_choose(&warms, class, rests_or_not, NULL, 0, NULL);
    tempi_copy_guess(&warms, class, &known);
    printf("%d\n", warms.classes[class].samples[TEMPI_COPY_TWICE]);
    return 0;
}

static int force(int flows)
{
    const unsigned all = (1 << TEMPI_COPY_WAYS) - 1;
    for (int way = 0; tempi_copy_way_name(way); ++way) {
        tempi_copy_choice choice = {0};
        tempi_copy_lead lead = {{0}};
        int can = 0, cannot = 0;
        tempi_copy_way_force(way);
        for (int i = 0; i < flows; ++i) {
            const tempi_chosen_way one = tempi_copy_choose(&choice, 0, all, NULL, 1, &lead),
                                   other = tempi_copy_choose(&choice, 0, all & ~(1u << way), NULL,
                                                             1, &lead);
            can += (int)one.way == way;
            cannot += (int)other.way == way;
            if (one.timed)
                fail("it learns from what is forced");
        }
        tempi_copy_way_force(-1);
        printf("%d %d ", can, cannot);
    }
    return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

enum { LONG = 256 << 10 };

/* What a process sends in a turn. */
static tempi_post *send_long(tempi_post_box *box, int to, char *memory)
{
    tempi_offer offer;
    void *packed;
    const tempi_op block = {.mem = memory, .n = LONG};
    tempi_offer_describe(&block, 1, tempi_post_access(box, to), &offer);
    tempi_post *post = tempi_post_new(box, to, LONG, &offer, LONG, false, &packed);
    if (!post)
        fail("no memory");
    tempi_post_send(box, to);
    return post;
}

/* Each process finds other costs than the other one. */
static void take_long(tempi_post_box *box, int from, tempi_post *sent, dice *d)
{
    tempi_post *post = tempi_post_next(box, from);
    if (!post || tempi_post_claim(post, false) == TEMPI_POST_LATER)
        fail("a message has not come");
    tempi_post_pass(box, from);
    post->packing = (double)draw(d, 1, 1000) * 1e-6;
    post->unpacking = (double)draw(d, 1, 1000) * 1e-6;
    tempi_post_take(box, from, post);
    if (sent->offers)
        tempi_post_unwatch(sent);
}

static void open_both(const char *folder, char *name, tempi_post_box **boxes)
{
    if (!tempi_post_create(folder, 2, name))
        fail("no file");
    for (int i = 0; i < 2; ++i)
        if (!(boxes[i] = tempi_post_open(folder, 2, i, name)))
            fail("cannot open it");
    for (int i = 0; i < 2; ++i)
        tempi_post_connect(boxes[i]);
}

static void close_both(const char *folder, const char *name, tempi_post_box *const *boxes)
{
    for (int i = 0; i < 2; ++i)
        tempi_post_close(boxes[i]);
    tempi_segment_unlink(folder, name);
}

static int alike(const char *folder, int turns, uint64_t seed)
{
    char name[TEMPI_SEGMENT_NAME], *memory = calloc(1, LONG);
    tempi_post_box *boxes[2];
    dice d = {seed * 0x9E3779B97F4A7C15u | 1};
    int found = 0, offered = 0, alone = 0;
    open_both(folder, name, boxes);
    for (int turn = 0; turn < turns; ++turn) {
        tempi_post *first = send_long(boxes[0], 1, memory),
                   *second = send_long(boxes[1], 0, memory);
        found += first->course.way == second->course.way;
        offered += first->offers;
        take_long(boxes[1], 0, first, &d);
        take_long(boxes[0], 1, second, &d);
    }
    for (int turn = 0; turn < turns; ++turn) {
        tempi_post *second = send_long(boxes[1], 0, memory);
        alone += second->offers;
        take_long(boxes[0], 1, second, &d);
    }
    close_both(folder, name, boxes);
    free(memory);
    printf("%d %d %d\n", found, offered, alone);
    return 0;
}

/* The next message from the box: it is sent, and read in so many seconds, earlier parts included.
 */
static void send_and_take(tempi_post_box *const *boxes, tempi_post *post, double packing,
                          double unpacking)
{
    if (!post)
        fail("no memory");
    post->packing = packing;
    tempi_post_send(boxes[0], 1);
    tempi_post *come = tempi_post_next(boxes[1], 0);
    if (!come || tempi_post_claim(come, false) != TEMPI_POST_PACKED)
        fail("a part has not come");
    tempi_post_pass(boxes[1], 0);
    come->unpacking = unpacking;
    tempi_post_take(boxes[1], 0, come);
}

/* Prints what two processes learn of packing in thousandths of a second, from messages in two parts
 * that are packed within 4 of them, where own blocks take another one, and unpacked within 3; and
 * of one that is not streamed. */
static int in_parts(const char *folder)
{
    enum { TURNS = 60, PART = LONG / 2 };
    char name[TEMPI_SEGMENT_NAME];
    tempi_post_box *boxes[2];
    double learned = 0;
    void *packed;
    open_both(folder, name, boxes);
    for (int turn = 0; turn < TURNS; ++turn) {
        tempi_post *first = tempi_post_new(boxes[0], 1, LONG, NULL, PART, true, &packed);
        if (!first)
            fail("no memory");
        learned = 2 * first->patience; /* half of it is packing */
        const tempi_post_course course = first->course;
        send_and_take(boxes, first, 1e-3, 2e-3);
        tempi_post *second = tempi_post_new_part(boxes[0], 1, PART, PART, LONG, false, &packed);
        if (!second)
            fail("no memory");
        second->course = course;
        send_and_take(boxes, second, 4e-3, 3e-3);
        tempi_post_took_own(boxes[0], 1e-3);
    }
    const tempi_post *mutual = tempi_post_new(boxes[0], 1, LONG, NULL, LONG, false, &packed);
    if (!mutual)
        fail("no memory");
    printf("%.2f %.2f\n", learned * 1e3, 2 * mutual->patience * 1e3);
    close_both(folder, name, boxes);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    if (argc == 3 && strcmp(what, "force") == 0)
        return force(atoi(argv[2]));
    if (argc == 5 && strcmp(what, "unsteady") == 0)
        return unsteady(atoi(argv[2]), strtoull(argv[3], NULL, 10), atoi(argv[4]));
    if (argc == 5 && strcmp(what, "others") == 0)
        return others(atoi(argv[2]), strtoull(argv[3], NULL, 10), atoi(argv[4]));
    if (argc == 5 && strcmp(what, "equals") == 0)
        return equals(atoi(argv[2]), strtoull(argv[3], NULL, 10), atoi(argv[4]));
    if (argc == 5 && strcmp(what, "warming") == 0)
        return warming(atoi(argv[2]), strtoull(argv[3], NULL, 10), atoi(argv[4]));
    if (argc == 5 && strcmp(what, "late") == 0)
        return late(atoi(argv[2]), strtoull(argv[3], NULL, 10), atoi(argv[4]));
    if (argc == 5 && strcmp(what, "burst") == 0)
        return burst(atoi(argv[2]), strtoull(argv[3], NULL, 10), atoi(argv[4]));
    if (argc == 5 && strcmp(what, "rested") == 0)
        return rested(atoi(argv[2]), atof(argv[3]), atoi(argv[4]));
    if (argc == 4 && strcmp(what, "phases") == 0)
        return phases(atoi(argv[2]), atoi(argv[3]));
    if (argc == 4 && strcmp(what, "apart") == 0)
        return apart(atoi(argv[2]), atoi(argv[3]));
    if (argc == 5 && strcmp(what, "untold") == 0)
        return untold(atoi(argv[2]), atof(argv[3]), atoi(argv[4]));
    if (argc == 3 && strcmp(what, "guess") == 0)
        return guess(atoi(argv[2]));
    if (argc == 4 && strcmp(what, "class") == 0)
        return class_of(argv);
    if (argc == 6 && strcmp(what, "settle") == 0)
        return settle(atoi(argv[2]), strtoull(argv[3], NULL, 10), atoi(argv[4]), atoi(argv[5]));
    if (argc == 3 && strcmp(what, "parts") == 0)
        return in_parts(argv[2]);
    if (argc == 5 && strcmp(what, "alike") == 0)
        return alike(argv[2], atoi(argv[3]), strtoull(argv[4], NULL, 10));
    return 2;
}
