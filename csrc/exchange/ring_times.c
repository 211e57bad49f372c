#include "exchange/ring_times.h"
#include "base/clock.h"

static tempi_copy_choice *choice_of(tempi_ring_end *end, bool gathers, bool other_llc)
{
    return gathers ? &end->gathered[other_llc] : &end->choice[other_llc];
}

tempi_copy_choice *tempi_ring_choice(tempi_ring_end *end, bool gathers)
{
    return choice_of(end, gathers, end->other_llc);
}

static void learn_latency(tempi_ring_end *end, int32_t latency)
{
    if (latency < 0)
        return;
    tempi_llc_add(&end->latencies, latency);
    end->other_llc = tempi_llc_is_other(&end->latencies, end->other_llc);
}

/* Whether the receiver unpacks the flow's pieces while the sender packs the next, and neither has
 * much else to do. */
static bool is_streamed(const struct tempi_timed_flow *flow)
{
    return flow->one_way && (flow->way == TEMPI_COPY_TWICE || flow->way == TEMPI_COPY_NONTEMPORAL);
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
        const double own = last->seconds, other = (double)end->ring->timed[k].seconds;
        const double longer = own > other ? own : other;
        const double both = last->gathers || is_streamed(last) ? longer : own + other;
        if (last->learns)
            tempi_copy_learn(choice_of(end, last->gathers, last->other_llc), last->class, last->way,
                             both, last->bytes);
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
