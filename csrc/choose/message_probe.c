#include "choose/message_probe.h"
#include "base/sorted.h"

/* By so much the other method must be faster, as the trial will lose time. */
#define PROMISING 1.1

static void end_turn(tempi_message_probe *probe)
{
    const double took = probe->turn[1];
    *(probe->other ? &probe->taken : &probe->used) = took;
    probe->other = true;
    probe->rounds = 0;
}

bool tempi_message_probe_round(tempi_message_probe *probe, int64_t took)
{
    const int skips = probe->other ? TEMPI_MESSAGE_PROBE_SKIPS_OTHER
                                   : TEMPI_MESSAGE_PROBE_SKIPS_USED,
              counted = probe->rounds++ - skips;
    if (counted < 0)
        return false;
    tempi_sorted_add(probe->turn, counted, (double)took);
    if (counted + 1 < TEMPI_MESSAGE_PROBE_COUNTED)
        return false;
    end_turn(probe);
    return true;
}

bool tempi_message_probe_promises(const tempi_message_probe *probe)
{
    return PROMISING * probe->taken < probe->used;
}

int64_t tempi_message_probe_lost(const tempi_message_probe *probe)
{
    const double more = probe->taken - probe->used;
    return more > 0 ? (int64_t)(more * TEMPI_MESSAGE_PROBE_OTHER) : 0;
}
