#include "shim/report/job_report.h"
#include "base/config.h"
#include "base/fallback.h"
#include "base/stats.h"
#include "choose/fast_math.h"
#include "choose/online_tuning.h"
#include "shim/abi.h"
#include "tempi.h"

#include <inttypes.h>
#include <stdio.h>

/* With at most this many ranks each prints its own line. */
enum { LINES = 16 };

static uint64_t left(const uint64_t *c)
{
    return c[TEMPI_STAT_fallback_rule] + c[TEMPI_STAT_fallback_disabled] +
           c[TEMPI_STAT_fallback_stage] + c[TEMPI_STAT_fallback_memory] +
           c[TEMPI_STAT_fallback_type] + c[TEMPI_STAT_fallback_first] +
           c[TEMPI_STAT_fallback_argument] + c[TEMPI_STAT_fallback_function];
}

static void print_rank(int rank, const uint64_t *c)
{
    fprintf(stderr,
            "tempi: rank %d: %" PRIu64 " sends (%" PRIu64 " B), %" PRIu64 " receives (%" PRIu64
            " B), %" PRIu64 " packs, %" PRIu64 " unpacks; %" PRIu64 " calls left to the library\n",
            rank, c[TEMPI_STAT_sends], c[TEMPI_STAT_sent_bytes], c[TEMPI_STAT_recvs],
            c[TEMPI_STAT_recv_bytes], c[TEMPI_STAT_packs], c[TEMPI_STAT_unpacks], left(c));
}

/* Not inlined: the version takes 8 KiB of the stack. */
__attribute__((noinline)) static void print_advice(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    const bool known = tempi_lib.Get_library_version &&
                       tempi_lib.Get_library_version(version, &length) == MPI_SUCCESS;
    fprintf(stderr, "tempi: this machine is not calibrated: %s\n",
            tempi_calibration_advice(known ? version : NULL));
}

static void print_sum(int size, const uint64_t *sum)
{
    const char *model = tempi_model_in_use();
    fprintf(stderr, "tempi: chosen by %s\n", model ? model : "the built-in rule");
    if (!model || tempi_model_is_shipped())
        print_advice();
    fprintf(stderr, "tempi: over %d ranks:\n", size);
    for (int i = 0; i < TEMPI_STATS_COUNT; ++i)
        if (sum[i] != 0)
            fprintf(stderr, "tempi: %16" PRIu64 "  %s: %s\n", sum[i], tempi_stats_name(i),
                    tempi_stats_help(i));
}

/* Calls that tempi does not handle, by function. */
static void print_fallbacks(const tempi_fallback *sum)
{
    for (int i = 0; i < TEMPI_FUNCTION_COUNT; ++i)
        if (sum[i].calls != 0)
            fprintf(stderr,
                    "tempi: left to the library: %" PRIu64 " calls of %s with %" PRIu64
                    " B of derived datatypes\n",
                    sum[i].calls, tempi_fallback_name(i), sum[i].bytes);
}

static int gather_fallbacks(MPI_Comm world, tempi_fallback *sum)
{
    tempi_fallback own[TEMPI_FUNCTION_COUNT];
    for (int i = 0; i < TEMPI_FUNCTION_COUNT; ++i)
        own[i] = (tempi_fallback){tempi_fallback_calls(i), tempi_fallback_bytes(i)};
    return tempi_lib.Reduce(own, sum, 2 * TEMPI_FUNCTION_COUNT, MPI_UINT64_T, MPI_SUM, 0, world);
}

enum { LEARNED = TEMPI_QUANTITY_STAGE_UNPACK + 1 };

/* Over all ranks, for each quantity: number of samples, sum of their logarithms; maximum and
 * (negated) minimum over the classes. */
typedef struct learned {
    double sums[LEARNED][2], ends[LEARNED][2];
} learned;

/* All ranks take part, whether or not online tuning is on. */
static int gather_learned(MPI_Comm world, learned *out)
{
    learned own;
    for (int q = 0; q < LEARNED; ++q) {
        const tempi_tuned about = tempi_tuning_about((tempi_quantity)q);
        own.sums[q][0] = about.samples;
        own.sums[q][1] = about.logarithms;
        own.ends[q][0] = about.most;
        own.ends[q][1] = -about.least;
    }
    const int rc = tempi_lib.Reduce(own.sums, out->sums, 2 * LEARNED, MPI_DOUBLE, MPI_SUM, 0,
                                    world);
    return rc == MPI_SUCCESS
               ? tempi_lib.Reduce(own.ends, out->ends, 2 * LEARNED, MPI_DOUBLE, MPI_MAX, 0, world)
               : rc;
}

/* Ratio of measured to predicted time of each quantity that has samples. */
static void print_learned(const learned *all)
{
    static const char *const names[LEARNED] = {
        "MPI_Pack by the library", "MPI_Unpack by the library", "MPI_Pack by tempi",
        "MPI_Unpack by tempi",     "packs of messages",         "unpacks of messages"};
    for (int q = 0; q < LEARNED; ++q) {
        const double samples = all->sums[q][0];
        if (samples > 0)
            fprintf(stderr,
                    "tempi: %s took %.2f times the predicted time (%.2f to %.2f; %.0f samples)\n",
                    names[q], tempi_fast_exp(all->sums[q][1] / samples),
                    tempi_fast_exp(-all->ends[q][1]), tempi_fast_exp(all->ends[q][0]), samples);
    }
}

void tempi_report(void)
{
    int rank, size;
    uint64_t own[TEMPI_STATS_COUNT], sum[TEMPI_STATS_COUNT], most[TEMPI_STATS_COUNT];
    tempi_fallback fallbacks[TEMPI_FUNCTION_COUNT];
    learned all;
    const MPI_Comm world = MPI_COMM_WORLD;
    if (tempi_lib.Comm_rank(world, &rank) != MPI_SUCCESS ||
        tempi_lib.Comm_size(world, &size) != MPI_SUCCESS)
        return;
    for (int i = 0; i < TEMPI_STATS_COUNT; ++i)
        own[i] = tempi_stats_value(i);
    if (tempi_config.stats && size <= LINES)
        print_rank(rank, own);
    if (tempi_lib.Reduce(own, sum, TEMPI_STATS_COUNT, MPI_UINT64_T, MPI_SUM, 0, world) !=
            MPI_SUCCESS ||
        tempi_lib.Reduce(own, most, TEMPI_STATS_COUNT, MPI_UINT64_T, MPI_MAX, 0, world) !=
            MPI_SUCCESS ||
        gather_learned(world, &all) != MPI_SUCCESS ||
        gather_fallbacks(world, fallbacks) != MPI_SUCCESS || rank != 0)
        return;
    sum[TEMPI_STAT_stage_peak] = most[TEMPI_STAT_stage_peak]; /* a peak is not summed */
    if (tempi_config.stats) {
        print_sum(size, sum);
        print_fallbacks(fallbacks);
        print_learned(&all);
    }
    if (tempi_config.stats_file)
        tempi_report_write(tempi_config.stats_file, size, sum, most, fallbacks);
}
