#include "choose/message_trials.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/stats.h"
#include "choose/contest.h"
#include "choose/message_probe.h"
#include "choose/message_watch.h"
#include "choose/trial_lease.h"

#include <stdlib.h>

/* Messages before the first trial of a key; rounds, and nanoseconds, at least between two, and as
 * many times that after some with the same end, as in a trial each short message takes longer and
 * the next moment says little new; how much longer the rounds until the next trial must take than
 * the last one lost; how much longer than the last trial on the node takes until one is repeated.
 */
enum {
    FIRST = 8,
    BETWEEN = 512,
    BETWEEN_TIME = 10000000,
    BETWEEN_USUAL = 16,
    BETWEEN_MOST = 1 << 20,
    WORTH = 100,
    WORTH_CHANGED = 10,
    REST = 10
};
/* Nanoseconds without a round after which another process may begin a trial. */
#define PATIENCE INT64_C(2000000000)
/* Each LOOKS messages that it examines a process looks whether trials go on. Its own does not after
 * STALLED times its longest round and STALLED_LEAST (ns), as a program does other things in
 * between. One pause makes the longest round a hundred times as long as the others: so neither
 * after OTHERS messages of other keys in PASSED times the shortest round. Nor before its first one
 * after FIRST_WITHIN messages. */
enum { LOOKS = 16, STALLED = 16, STALLED_LEAST = 10000000, FIRST_WITHIN = 256 };
enum { OTHERS = 64, PASSED = 64 };
/* Nanoseconds that examining a message takes on each side. In a trial all are examined; once it is
 * over those that are left and repeated pass by without (shim/p2p/message.h:
 * tempi_message_is_left). Of a round at most the EXAMINED_SHARE-th part counts as that. */
enum { EXAMINED = 40, EXAMINED_SHARE = 8 };
/* Messages of other keys after which a key is no longer used. */
enum { UNUSED = 1 << 16 };
/* Messages that follow a word until its leader counts as gone, and until it has a method. */
enum { FOLLOWED_MOST = 1 << 17, FOLLOWED_FIRST = 1 << 10 };
/* If the time of the rounds changes after a trial (message_watch.h), a new one finds out whether
 * the method should change too. At least AGAIN rounds later, and WORTH_CHANGED times what the last
 * one lost; twice as many each time that it was needless, up to AGAIN_MOST, or as many as take
 * AGAIN_TIME (ns). */
enum { WATCHED = TEMPI_MESSAGE_WATCHED, AGAIN = 64, AGAIN_MOST = 1024, AGAIN_TIME = 20000000 };
/* That finds no change in which another method gains alone. So each PROBED rounds, and PROBED_TIME
 * (ns), one of them has a probe, and if that promises a gain a new trial begins. Later, if it loses
 * more than the WORTH-th part; and the other methods have at most the PROBES_REST-th part of a
 * process's time for it. */
enum { PROBED = 128, PROBED_TIME = 2000000, PROBES_REST = 32, NO_PROBES = -1 };

typedef struct trial {
    uint64_t key;   /* 0: another process leads */
    uint8_t method; /* that is settled, or usual */
    bool settled;
    bool streams;       /* whether TEMPI_MESSAGE_STREAMED is tried */
    bool receives;      /* receives begin rounds and are watched, or sends */
    bool repeats;       /* the last message was one that passes by when it is left */
    uint64_t published; /* the word */
    int64_t most;       /* nanoseconds that a message takes, or fewer */
    uint32_t a_round;   /* messages in a round of the last trial; at first 1 */
    uint32_t used;      /* `posts` at its last message */
    uint32_t waits;     /* messages until the next trial */
    uint32_t between;   /* rounds from the last trial to the next one */
    /* While it waits: */
    tempi_message_watch watch;
    uint32_t again;         /* messages before a change counts */
    uint32_t needless;      /* the same in rounds, at first */
    bool watchful, delayed; /* the running trial is due to a change, or the next one */
    int32_t probe_waits;    /* messages until the next probe, or NO_PROBES */
    uint8_t probed;         /* the other method of the last one */
    uint32_t followed;      /* messages by another process's word */
    /* While it runs: */
    bool runs;
    bool probes; /* it is no trial, but a probe */
    tempi_message_probe probe;
    tempi_contest contest;
    uint32_t completions;   /* when this round began */
    int64_t last;           /* when this round began */
    int64_t longest;        /* round of this trial; 0: none yet */
    int64_t shortest;       /* the same */
    int64_t rounds, posted; /* since the trial began, and messages in them */
} trial;

uint32_t tempi_message_completions[2];

static struct {
    trial *of; /* by the index of the key's word */
    int busy;  /* one thread at a time leads */
    trial *running;
    uint32_t posts;      /* messages with a key */
    uint32_t looks;      /* messages */
    uint32_t waiting;    /* messages since the running trial's last round, to the next LOOKS */
    int64_t probes_rest; /* until then there are none */
} mine;

static const int64_t *pretended;

void tempi_message_trial_pretend(const int64_t *now)
{
    pretended = now;
}

static int64_t clock_now(void)
{
    return pretended ? *pretended : tempi_clock_ns();
}

void tempi_message_trials_start(tempi_message_words *words, int own)
{
    tempi_message_trials_stop();
    mine.of = calloc(TEMPI_MESSAGE_WORDS, sizeof *mine.of);
    tempi_trial_lease_start(own);
    if (mine.of)
        tempi_passing.trials = words;
}

uint64_t tempi_message_trial_key(uint32_t shape, int step, int class)
{
    const uint64_t mixed = tempi_hash_mix(tempi_hash((uint64_t)shape),
                                          (uint64_t)(uint32_t)(step << 4 | class));
    return (mixed >> TEMPI_MESSAGE_BITS | 1) << TEMPI_MESSAGE_BITS; /* never 0 */
}

static void set_running(trial *t)
{
    mine.running = t;
    mine.waiting = 0;
    __atomic_store_n(&tempi_passing.trial_runs, t != NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&tempi_completing->trials, t != NULL, __ATOMIC_RELAXED);
}

void tempi_message_trials_stop(void)
{
    if (tempi_passing.trials && mine.running)
        tempi_trial_lease_return();
    set_running(NULL);
    tempi_passing.trials = NULL;
    free(mine.of);
    mine.of = NULL;
    mine.probes_rest = 0;
}

/* ---- one trial ------------------------------------------------------------------------------- */

static int method_of(const trial *t)
{
    if (!t->runs)
        return t->method;
    if (t->probes)
        return t->probe.other ? t->probed : t->method;
    return tempi_contest_method(&t->contest);
}

/* If the word has changed, another process leads from now on. */
static void publish(trial *t)
{
    const uint64_t way = (uint64_t)method_of(t) | (t->runs ? TEMPI_MESSAGE_ON_TRIAL : 0);
    uint64_t there = t->published;
    t->published = t->key | way;
    if (__atomic_compare_exchange_n(&tempi_passing.trials->ways[t - mine.of], &there, t->published,
                                    false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    t->key = 0;
    t->runs = false;
    if (mine.running != t)
        return;
    set_running(NULL);
    tempi_trial_lease_return();
}

/* So many messages as are in those rounds. */
static uint32_t in_rounds(const trial *t, uint32_t rounds)
{
    const int64_t messages = (int64_t)rounds * t->a_round;
    return messages < INT32_MAX ? (uint32_t)messages : INT32_MAX;
}

/* In a round; the last one posted has begun the next one, or the trial. */
static int64_t messages_of(const trial *t)
{
    return t->rounds > 0 ? t->posted / t->rounds + 1 : 1;
}

/* Nanoseconds that the messages take in a round, or fewer. */
static int64_t at_stake(const trial *t)
{
    int64_t most;
    return __builtin_mul_overflow(t->most, messages_of(t), &most) ? INT64_MAX : most;
}

/* Nanoseconds in a round for the examination of its messages. The two sides of a burst do theirs at
 * the same time. */
static int64_t examined_in(const trial *t)
{
    return EXAMINED * (messages_of(t) + 1);
}

/* A round without what only the trial adds to it, of messages that are left. */
static int64_t settled_time(const trial *t, int64_t took)
{
    const int64_t examined = examined_in(t), most = took / EXAMINED_SHARE;
    if (method_of(t) != TEMPI_MESSAGE_LIBRARY || !t->repeats)
        return took;
    return took - (examined < most ? examined : most);
}

static int64_t within(int64_t least, int64_t n, int64_t most)
{
    return n < least ? least : n < most ? n : most;
}

/* In rounds of `usual` (ns), at least so many. */
static int64_t rounds_in(int64_t time, int64_t usual, int64_t least)
{
    return within(least, time / usual, BETWEEN_MOST);
}

/* So that what it loses (ns) in its rounds is a small part of the time until then; `usual`: a round
 * of the method in use (ns). */
static void plan_probe(trial *t, int64_t lost, int64_t usual)
{
    const int64_t least = rounds_in(PROBED_TIME, usual, PROBED);
    const int64_t rounds = within(least, WORTH * (lost / usual), BETWEEN_MOST);
    t->probe_waits = (int32_t)in_rounds(t, (uint32_t)rounds);
}

/* So that what this trial lost is a small part of the time until the next one. */
static void plan_next(trial *t)
{
    const bool same = t->contest.same;
    const int64_t usual = t->contest.usual, tries = t->contest.tries;
    const int64_t time = tempi_contest_lost(&t->contest) + t->rounds * examined_in(t);
    const int64_t lost = time / usual; /* in rounds */
    const int64_t first = rounds_in(BETWEEN_TIME, usual, BETWEEN);
    const int64_t most = within(first, BETWEEN_USUAL * first, BETWEEN_MOST);
    const int64_t least = t->settled && same ? within(first, 2 * t->between, most) : first;
    t->between = (uint32_t)within(least, WORTH * lost, BETWEEN_MOST);
    t->waits = in_rounds(t, t->between);
    if (!t->settled || !same)
        t->needless = AGAIN;
    else if (t->watchful && (t->needless < AGAIN_MOST || t->needless * usual < AGAIN_TIME))
        t->needless *= 2;
    /* A change is worth a trial sooner. */
    t->again = in_rounds(t, (uint32_t)within(t->needless, WORTH_CHANGED * lost, BETWEEN_MOST));
    tempi_message_watch_begin(&t->watch);
    if (tries > 0)
        plan_probe(t, TEMPI_MESSAGE_PROBE_OTHER * tempi_contest_lost(&t->contest) / tries, usual);
    else
        t->probe_waits = NO_PROBES; /* its messages are too small a part of a round */
}

/* `lease`: this process still holds it. */
static void stop_running(trial *t, bool lease)
{
    t->runs = false;
    publish(t);
    set_running(NULL);
    if (lease)
        tempi_trial_lease_return();
}

static void end_trial(trial *t)
{
    const int64_t rest = REST * t->rounds * t->contest.usual;
    t->a_round = (uint32_t)messages_of(t);
    tempi_trial_rest_until(t->last + rest);
    plan_next(t);
    tempi_stat_add(TEMPI_STAT_messages_tuned, 1);
    if (t->contest.winner != t->method)
        tempi_stat_add(TEMPI_STAT_messages_changed, 1);
    t->settled = true;
    t->method = t->contest.winner;
    stop_running(t, true);
}

static void begin_trial(trial *t, bool watchful);

static void rest_from_probes(int64_t now, int64_t round)
{
    mine.probes_rest = now + PROBES_REST * TEMPI_MESSAGE_PROBE_OTHER * round;
}

/* Nanoseconds of a round, between probes. */
static int64_t recent_round(const trial *t)
{
    return t->watch.recent / WATCHED * t->a_round + 1;
}

static void end_probe(trial *t)
{
    const tempi_message_probe *probe = &t->probe;
    stop_running(t, true);
    plan_probe(t, tempi_message_probe_lost(probe), (int64_t)probe->used + 1);
    tempi_message_watch_resume(&t->watch);
    if (t->key != 0 && tempi_message_probe_promises(probe))
        begin_trial(t, true);
    rest_from_probes(t->last, (int64_t)probe->taken);
}

static void count_probe(trial *t, int64_t took)
{
    const bool other = t->probe.other;
    if (!tempi_message_probe_round(&t->probe, took))
        return;
    if (other)
        end_probe(t);
    else
        publish(t);
}

static void count_round(trial *t, int64_t took)
{
    if (t->probes) {
        count_probe(t, took);
        return;
    }
    if (!tempi_contest_round(&t->contest, took, at_stake(t)))
        return;
    if (t->contest.over)
        end_trial(t);
    else
        publish(t);
}

/* Keeps the method. */
static void abandon(trial *t, bool lease)
{
    if (!t->probes) {
        t->between = BETWEEN;
        t->waits = in_rounds(t, BETWEEN);
    }
    if (t->probe_waits != NO_PROBES)
        t->probe_waits = (int32_t)in_rounds(t, BETWEEN);
    if (t->probes)
        rest_from_probes(t->last, t->longest);
    tempi_message_watch_resume(&t->watch);
    stop_running(t, lease);
}

static uint32_t completions_of(const trial *t)
{
    return __atomic_load_n(&tempi_message_completions[t->receives], __ATOMIC_RELAXED);
}

/* The settled method first. */
static void enlist(trial *t)
{
    uint8_t methods[TEMPI_CONTEST_METHODS] = {t->method};
    int n = 1;
    for (int m = TEMPI_MESSAGE_LIBRARY; m <= TEMPI_MESSAGE_STREAMED; ++m) {
        if (m != t->method && (t->streams || m != TEMPI_MESSAGE_STREAMED))
            methods[n++] = (uint8_t)m;
    }
    tempi_contest_begin(&t->contest, n, methods, TEMPI_MESSAGE_LIBRARY);
}

/* After a probe sooner. */
static int64_t patience_of(const trial *t)
{
    const int64_t known = recent_round(t), longest = t->longest > known ? t->longest : known;
    return t->probes ? within(STALLED_LEAST, STALLED * longest, INT64_MAX) : PATIENCE;
}

/* False: another process's trial runs, or it must rest. */
static bool begin_rounds(trial *t, bool probes)
{
    const int64_t now = clock_now();
    if (probes ? now < mine.probes_rest : t->settled && tempi_trial_rests(now))
        return false;
    if (mine.running && mine.running->probes && !probes)
        abandon(mine.running, true); /* whose messages have ended, or will have another one */
    t->probes = probes;
    t->longest = 0;
    if (!tempi_trial_lease_take(now, patience_of(t)))
        return false;
    if (mine.running)
        abandon(mine.running, false);
    t->runs = true;
    t->rounds = t->posted = 0;
    t->last = now;
    t->completions = completions_of(t);
    set_running(t);
    return true;
}

static void begin_trial(trial *t, bool watchful)
{
    if (!begin_rounds(t, false)) {
        t->waits = in_rounds(t, WATCHED);
        t->delayed |= watchful;
        return;
    }
    t->watchful = watchful || t->delayed;
    t->delayed = false;
    enlist(t);
    publish(t);
}

/* The methods in turn. */
static void begin_probe(trial *t)
{
    if (!begin_rounds(t, true)) {
        t->probe_waits = (int32_t)in_rounds(t, WATCHED);
        return;
    }
    t->probe = (tempi_message_probe){0};
    do
        t->probed = t->probed < TEMPI_MESSAGE_STREAMED ? t->probed + 1 : TEMPI_MESSAGE_LIBRARY;
    while (t->probed == t->method || (t->probed == TEMPI_MESSAGE_STREAMED && !t->streams));
    publish(t);
}

static void continue_trial(trial *t)
{
    const uint32_t completions = completions_of(t);
    if (completions == t->completions)
        return;
    t->completions = completions;
    const int64_t now = clock_now(), took = now - t->last;
    t->last = now;
    t->longest = took > t->longest ? took : t->longest;
    t->shortest = t->rounds == 0 || took < t->shortest ? took : t->shortest;
    ++t->rounds;
    mine.waiting = 0;
    if (!tempi_trial_lease_renew(now, patience_of(t)))
        abandon(t, false);
    else
        count_round(t, settled_time(t, took > 0 ? took : 1));
}

/* The running trial's key is no longer used as it was. */
static bool is_stalled(const trial *t, int64_t now)
{
    const int64_t since = now - t->last;
    if (t->rounds == 0)
        return mine.waiting > FIRST_WITHIN;
    return since > STALLED_LEAST && (since > STALLED * t->longest ||
                                     (mine.waiting > OTHERS && since > PASSED * t->shortest));
}

/* Ends the own trial if it does not go on, or the lease of a process that has left it. */
static void look(void)
{
    const int64_t now = clock_now();
    mine.waiting += LOOKS;
    if (mine.running && is_stalled(mine.running, now))
        abandon(mine.running, true);
    else if (!mine.running)
        tempi_trial_lease_look(now);
}

static bool enter(void)
{
    return !__atomic_exchange_n(&mine.busy, 1, __ATOMIC_ACQUIRE);
}

static void leave(void)
{
    __atomic_store_n(&mine.busy, 0, __ATOMIC_RELEASE);
}

void tempi_message_trial_look(void)
{
    if (!tempi_passing.trials || (!tempi_passing.trial_runs && !tempi_trial_lease_is_held()) ||
        __atomic_add_fetch(&mine.looks, 1, __ATOMIC_RELAXED) % LOOKS != 0 || !enter())
        return;
    look();
    leave();
}

/* ---- between trials -------------------------------------------------------------------------- */

/* Whether a change is worth a trial. */
static bool has_changed(trial *t)
{
    const uint32_t seen = t->watch.seen;
    const bool changed = tempi_message_watch_time(&t->watch, clock_now());
    t->again = t->again > seen ? t->again - seen : 0;
    return changed && t->again == 0 && t->settled;
}

static void wait_for_trial(trial *t, const tempi_message_post *post)
{
    if (t->receives != post->receives)
        return;
    t->waits = t->waits > post->messages ? t->waits - post->messages : 0;
    t->watch.seen += post->messages;
    if (t->probe_waits > 0)
        t->probe_waits -= (int64_t)post->messages < t->probe_waits ? (int32_t)post->messages
                                                                   : t->probe_waits;
    if (t->waits == 0)
        begin_trial(t, false);
    else if (t->watch.seen >= in_rounds(t, WATCHED) && has_changed(t))
        begin_trial(t, true);
    else if (t->settled && t->probe_waits == 0 && t->watch.recent > 0 && t->again == 0)
        begin_probe(t);
}

int tempi_message_settled(const uint64_t *word)
{
    const uint64_t now = word ? __atomic_load_n(word, __ATOMIC_RELAXED) : 0;
    return now & TEMPI_MESSAGE_ON_TRIAL ? TEMPI_MESSAGE_USUAL : (int)(now & TEMPI_MESSAGE_METHOD);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* What a key may replace in a place: nothing, or a key of this process that is no longer used. */
static uint64_t replaceable(const uint64_t *word)
{
    const trial *t = &mine.of[word - tempi_passing.trials->ways];
    return t->key != 0 && !t->runs && mine.posts - t->used > UNUSED ? t->published : 0;
}

/* Leads the trials of a key that nobody leads, if one of its places is free. */
static trial *lead(const tempi_message_post *post)
{
    for (int i = 0; i < TEMPI_MESSAGE_PLACES; ++i) {
        uint64_t *word = tempi_message_place(post->key, i), there = replaceable(word);
        if (__atomic_compare_exchange_n(word, &there, post->key, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            trial *t = &mine.of[word - tempi_passing.trials->ways];
            *t = (trial){.key = post->key,
                         .published = post->key,
                         .method = post->usual,
                         .streams = post->streams,
                         .receives = post->receives,
                         .most = post->most,
                         .a_round = 1,
                         .waits = FIRST};
            return t;
        }
        if ((there ^ post->key) >> TEMPI_MESSAGE_BITS == 0)
            return NULL; /* another process was faster */
    }
    return NULL;
}

/* Of messages that follow another process: whether it has left its word, on trial or for long
 * without a new one. Then another process may lead. */
static bool is_left(uint64_t *word, trial *follower, uint32_t messages)
{
    uint64_t there = __atomic_load_n(word, __ATOMIC_RELAXED);
    if (follower->published != there) {
        follower->published = there;
        follower->followed = 0;
    }
    const uint32_t before = follower->followed, n = follower->followed += messages;
    const bool methodless = (there & TEMPI_MESSAGE_METHOD) == TEMPI_MESSAGE_USUAL;
    const bool left = there & TEMPI_MESSAGE_ON_TRIAL
                          ? n / LOOKS != before / LOOKS && tempi_trial_lease_is_over(clock_now())
                          : n > (uint32_t)(methodless ? FOLLOWED_FIRST : FOLLOWED_MOST);
    return left &&
           __atomic_compare_exchange_n(word, &there, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* The method of a message whose trials this process leads. */
static int go_on(trial *t, const tempi_message_post *post)
{
    t->used = mine.posts;
    t->repeats = post->repeats;
    if (!t->runs)
        wait_for_trial(t, post);
    else if (t->receives == post->receives) {
        const int64_t rounds = t->rounds;
        continue_trial(t);
        if (t->rounds >= rounds) /* else it has begun the next trial */
            t->posted += post->messages;
    }
    return t->runs || t->settled ? method_of(t) : post->usual;
}

static int post_message(const tempi_message_post *post)
{
    ++mine.posts;
    trial *t = post->word ? &mine.of[post->word - tempi_passing.trials->ways] : NULL;
    if (t && t->key != post->key && !is_left(post->word, t, post->messages))
        return post->usual;
    if (!t || t->key != post->key)
        t = lead(post);
    return t ? go_on(t, post) : post->usual;
}

int tempi_message_trial_post(const tempi_message_post *post)
{
    if (!enter())
        return post->usual; /* another thread is here */
    const int method = post_message(post);
    leave();
    return method;
}
