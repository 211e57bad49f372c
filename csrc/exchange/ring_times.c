#include "exchange/ring_times.h"
#include "base/clock.h"

static tempi_copy_choice *choice_of(tempi_ring_end *end, bool alone, bool other_llc)
{
    return alone ? &end->alone[other_llc] : &end->choice[other_llc];
}

tempi_copy_choice *tempi_ring_choice(tempi_ring_end *end, bool alone, int class)
{
    tempi_copy_choice *choice = choice_of(end, alone, end->other_llc);
    tempi_copy_guess(choice, class, choice_of(end, alone, !end->other_llc));
    return choice;
}

static void learn_latency(tempi_ring_end *end, int32_t latency)
{
    if (latency < 0)
        return;
    tempi_llc_add(&end->latencies, latency);
    end->other_llc = tempi_llc_is_other(&end->latencies, end->other_llc);
}

static bool is_alone(const struct tempi_timed_flow *flow)
{
    return flow->gathers || flow->one_way;
}

/* Of a flow that goes alone the two processes do their parts at the same time, if the receiver does
 * not wait for all of it. */
static double seconds_of(const struct tempi_timed_flow *flow, double other)
{
    const bool together = flow->gathers || (flow->one_way && flow->way != TEMPI_COPY_PACKED);
    return !together ? flow->seconds + other : flow->seconds > other ? flow->seconds : other;
}

/* The oldest first. */
void tempi_ring_learn(tempi_ring_end *end, uint64_t call)
{
    for (uint64_t i = 0; i < TEMPI_RING_TIMED; ++i) {
        const uint64_t k = (call + i) % TEMPI_RING_TIMED;
        struct tempi_timed_flow *last = &end->last[k];
        if (last->call == 0 ||
            __atomic_load_n(&end->ring->timed[k].call, __ATOMIC_ACQUIRE) != last->call)
            continue;
        const double seconds = seconds_of(last, (double)end->ring->timed[k].seconds);
        if (last->learns)
            tempi_copy_learn(choice_of(end, is_alone(last), last->other_llc), last->class,
                             last->way, seconds, last->bytes);
        learn_latency(end, end->ring->timed[k].latency);
        last->call = 0;
    }
}

bool tempi_ring_beat(tempi_ring_end *end, uint64_t call, int64_t bytes)
{
    end->until -= tempi_llc_weight(bytes);
    if (end->until >= 0)
        return false;
    end->until = tempi_llc_interval(&end->latencies);
    __atomic_store_n(&end->ring->beat, call, __ATOMIC_RELAXED);
    return true;
}

/* The time of the clock itself is taken each time: no process has to measure it before. */
int32_t tempi_ring_time_beat(const tempi_ring *ring)
{
    const int64_t start = tempi_clock_ns();
    const uint64_t beat = __atomic_load_n(&ring->beat, __ATOMIC_RELAXED);
    __asm__ volatile("" ::"r"(beat)); /* it is loaded before the clock is read again */
    const int64_t end = tempi_clock_ns(), idle = tempi_clock_ns() - end, taken = end - start - idle;
    return taken < 0 ? 0 : taken < INT32_MAX ? (int32_t)taken : INT32_MAX;
}

void tempi_ring_report(tempi_ring *ring, uint64_t call, double seconds, int32_t latency)
{
    const uint64_t k = call % TEMPI_RING_TIMED;
    ring->timed[k].seconds = (float)seconds;
    ring->timed[k].latency = latency;
    __atomic_store_n(&ring->timed[k].call, call, __ATOMIC_RELEASE);
}
