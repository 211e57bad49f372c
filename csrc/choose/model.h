/* The calibrated model: which method is predicted to be faster for a message of host memory.
 *
 *   T_library = the library's message with the datatype
 *   T_host    = pack + message of packed bytes + unpack + twice the cost of the decision itself
 *
 * tempi acts where T_host is at least TEMPI_MODEL_MARGIN below T_library. Without tables for a
 * shape or a peer nothing is predicted and the built-in rule (choose/rule.h) stands. */
#ifndef TEMPI_MODEL_MODEL_H
#define TEMPI_MODEL_MODEL_H

#include "choose/rule.h"
#include "choose/table_file.h"
#include "tempi.h"

#include <stdbool.h>

/* The choice for messages of host memory of one type, operation and peer class: two steps an octave
 * of packed size, each decided when its first message comes.
 *
 * What else a message has does not change what is predicted for it, so it is no part of the key:
 * host kernels take any alignment, the mode of a send (standard, synchronous, ready, buffered) is
 * the library's part of both ways, and whether the library takes device addresses is of no meaning
 * here. A type that is freed takes its choices with it. */
typedef struct tempi_choices {
    uint64_t known;
    uint64_t ours;
    /* Only while the tables are corrected (choose/online_tuning.h): */
    uint64_t decided; /* chosen before, perhaps otherwise */
    uint64_t open;    /* the other way is worth a try */
    uint32_t epoch;   /* of the biases by which `known` was chosen */
    uint32_t looks;
} tempi_choices;

/* Reads the tables for this machine and the given MPI, as TEMPI_MODEL says; tells of a file that is
 * refused if `tells`. `version`: what the MPI library says of itself. */
void tempi_model_start(const char *version, bool tells);

/* Whether the tables in force came with tempi, and were not measured here. */
bool tempi_model_is_shipped(void);

/* For which operations and peers tables choose: bit TEMPI_MODEL_BIT. */
#define TEMPI_MODEL_BIT(operation, peer) (1u << (TEMPI_PEERS * (int)(operation) + (peer)))
unsigned tempi_model_covers(const tempi_layout *layout);

/* Steps of packed size: [2^k, 1.5 * 2^k) and [1.5 * 2^k, 2^(k+1)). */
static inline int tempi_choice_step(int64_t bytes)
{
    const int octave = 63 - __builtin_clzll((unsigned long long)bytes | 1);
    const int half = octave > 0 ? (int)(bytes >> (octave - 1) & 1) : 0;
    return octave > 31 ? 63 : 2 * octave + half;
}

/* The packed size that stands for a step: its geometric middle. */
int64_t tempi_choice_middle(int step);

/* The choice for that step; noted in `cache`. `rule`: what the built-in rule says, from which a
 * shipped calibration departs only where it is sure (TEMPI_SHIPPED_MARGIN). */
bool tempi_model_choose(const tempi_layout *layout, tempi_operation operation, int peer, int step,
                        bool rule, tempi_choices *cache);

static inline bool tempi_model_acts(const tempi_layout *layout, tempi_operation operation, int peer,
                                    int64_t bytes, bool rule, tempi_choices *cache)
{
    const int step = tempi_choice_step(bytes);
    if (__atomic_load_n(&cache->known, __ATOMIC_ACQUIRE) >> step & 1)
        return __atomic_load_n(&cache->ours, __ATOMIC_RELAXED) >> step & 1;
    return tempi_model_choose(layout, operation, peer, step, rule, cache);
}

#endif
