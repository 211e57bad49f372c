/* The calibrated model: predicts the faster method for a message of host memory.
 *
 *   T_library = the library's message with the datatype
 *   T_host    = pack + message of packed bytes + unpack + twice the cost of the decision itself
 *
 * tempi takes the message if T_host is at least TEMPI_MODEL_MARGIN below T_library. Without tables
 * for a shape or a peer the built-in rule (choose/rule.h) applies. */
#ifndef TEMPI_CHOOSE_MODEL_H
#define TEMPI_CHOOSE_MODEL_H

#include "choose/rule.h"
#include "choose/table_file.h"
#include "tempi.h"

#include <stdbool.h>

/* The choices for host-memory messages of one type, operation and peer class: two steps an octave
 * of packed size, each decided for the size of its first message: a program mostly sends one size
 * of a type, and times jump within a step (an eager limit).
 *
 * Other properties of a message do not change its prediction, so they are not in the key: host
 * kernels take any alignment, the send mode (standard, synchronous, ready, buffered) is handled by
 * the library in both ways, and CUDA-awareness is irrelevant here. The choices are freed with their
 * type. */
typedef struct tempi_choices {
    uint64_t known;
    uint64_t ours;
    /* Used only with online tuning (choose/online_tuning.h): */
    uint64_t decided; /* chosen before; the choice may have changed */
    uint64_t open;    /* the other way is worth exploring */
    uint32_t epoch;   /* of the corrections that `known` is based on */
    uint32_t queries; /* schedules exploration */
} tempi_choices;

/* Loads the tables for this machine and MPI, as TEMPI_MODEL says; `log_refused`: warn of a refused
 * file. `version`: the MPI library's version string. */
void tempi_model_start(const char *version, bool log_refused);

/* Whether the tables in use are shipped ones, not measured on this machine. */
bool tempi_model_is_shipped(void);

/* The operations and peer classes covered by tables, as TEMPI_MODEL_BITs. */
#define TEMPI_MODEL_BIT(operation, peer) (1u << (TEMPI_PEERS * (int)(operation) + (peer)))
unsigned tempi_model_covers(const tempi_layout *layout);

/* Steps of packed size: [2^k, 1.5 * 2^k) and [1.5 * 2^k, 2^(k+1)). */
static inline int tempi_choice_step(int64_t bytes)
{
    const int octave = 63 - __builtin_clzll((unsigned long long)bytes | 1);
    const int half = octave > 0 ? (int)(bytes >> (octave - 1) & 1) : 0;
    return octave > 31 ? 63 : 2 * octave + half;
}

/* The packed size that represents a step where no message does: its geometric middle. */
int64_t tempi_choice_middle(int step);

/* Makes the choice for the step of that size and stores it in `cache`. `rule`: the built-in rule's
 * choice, which tables measured elsewhere override only by TEMPI_FOREIGN_MARGIN. */
bool tempi_model_choose(const tempi_layout *layout, tempi_operation operation, int peer,
                        int64_t bytes, bool rule, tempi_choices *cache);

static inline bool tempi_model_acts(const tempi_layout *layout, tempi_operation operation, int peer,
                                    int64_t bytes, bool rule, tempi_choices *cache)
{
    const int step = tempi_choice_step(bytes);
    if (__atomic_load_n(&cache->known, __ATOMIC_ACQUIRE) >> step & 1)
        return __atomic_load_n(&cache->ours, __ATOMIC_RELAXED) >> step & 1;
    return tempi_model_choose(layout, operation, peer, bytes, rule, cache);
}

#endif
