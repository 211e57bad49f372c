#include "choose/rule.h"
#include "choose/processor.h"
#include "choose/shape.h"

#include <string.h>

static const tempi_window never = {.first = 1, .last = 0};
static const tempi_window always = {.first = 1, .last = INT64_MAX};

static tempi_window from_to(int64_t first, int64_t last)
{
    return (tempi_window){.first = first, .last = last};
}

enum { KIB = 1 << 10, MIB = 1 << 20 };

/* This many runs a power of two apart map to few sets of the first-level cache and evict one
 * another, but still fit in some cache: there tempi stores and loads less at a time
 * (pack/isolated.inc), which no library does. */
enum { STORED_FIRST = 256, LOADED_FIRST = 1024, COMPETING_LAST = 8192 };

static tempi_window of_stores(tempi_shape s)
{
    return from_to(STORED_FIRST * s.run, (s.run < 16 ? 128 * s.run : COMPETING_LAST) * s.run);
}

static tempi_window of_loads(tempi_shape s)
{
    return from_to(LOADED_FIRST * s.run, COMPETING_LAST * s.run);
}

/* MPICH 5.0.2 packs regular types at about half of the machine's rate if the runs are near one
 * another, and vectors of bytes at a tenth of it. With each run on a page of its own and more of
 * them than the caches hold, both are memory-bound, and MPICH is slightly ahead. In a transpose
 * many runs share each line, which MPICH does not exploit. */
static tempi_window mpich_pack(tempi_shape s, tempi_operation operation)
{
    if (s.stride < 4096 || s.run >= 128 || s.transposed)
        return always;
    if (operation == TEMPI_OP_PACK)
        return from_to(1, COMPETING_LAST * s.run);
    tempi_window window = always;
    if (s.run > 16) {
        window.gap = 2 * COMPETING_LAST * s.run + 1;
        window.resume = 8 * MIB;
    }
    return window;
}

/* In messages above its cell size MPICH packs piece by piece and searches its position anew for
 * each: 1.2 to 50 times slower, and from memory of small pages (transfer/slab.h). It is ahead, or
 * was on one of the machines measured:
 *
 * - where every few bytes lie on a page of their own: then packing and unpacking take all the
 *   time, and its pieces overlap them (Zen 4: 0.85 of tempi's time with 4 KiB in runs of 8);
 * - with long runs, up to 1024 of which the kernel copies straight from memory to memory (CMA):
 *   0.3 us a run, less than two more copies of a KiB take (Zen 4 across LLCs: 0.5 of tempi's
 *   time; Zen 5: 2 times);
 * - with long runs above some MiB, whose pieces overlap while tempi packs all first (Sapphire
 *   Rapids: 0.53 of tempi's time at 16 MiB; Zen 4 and Zen 5: 1.8 to 2.6 times), or with runs of
 *   lines near one another (Granite Rapids: 0.86, Zen 3: 0.84 without CMA; Zen 4: 1.6 to 2);
 * - with one short run an element, from some KiB on (Sapphire Rapids and Zen 4: 0.67 to 0.9;
 *   Zen 5: 1.3 to 1.5). */
enum {
    CELL = 16 * KIB,
    CMA_RUNS = 1024,
    CMA_RUN = 1024,
    PIECES_RUN = 256,
    PIECES_RUN_OF_LINES = 64,
    PIECES_FIRST = 4 * MIB
};

static bool mpich_has_cma(void)
{
    enum { UNKNOWN, NO, YES };
    static int known;
    int state = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (state == UNKNOWN) {
        state = tempi_processor_single_copy("MPICH") != TEMPI_SINGLE_COPY_NONE ? YES : NO;
        __atomic_store_n(&known, state, __ATOMIC_RELAXED);
    }
    return state == YES;
}

static tempi_window mpich_pieces(tempi_shape s, bool single_copy)
{
    if (s.stride == 0 || s.transposed)
        return always;
    if (s.single_run && s.run <= 16)
        return from_to(1, CELL);
    if (s.run <= 16 && s.stride >= 4096)
        return s.run <= 8 ? never : from_to(1, 256 * KIB);
    const bool apart = s.stride >= 4096 && single_copy;
    if (s.run < (apart ? PIECES_RUN : PIECES_RUN_OF_LINES))
        return always;
    tempi_window window = from_to(1, PIECES_FIRST);
    if (s.run >= CMA_RUN) {
        window.gap = CELL + 1;
        window.resume = CMA_RUNS * s.run + 1;
    }
    return window;
}

/* To another node it packs all first, as tempi does (by TCP between emulated hosts, Zen 4: 1.6 to
 * 2.8 times slower). */
static tempi_window mpich_message(tempi_shape s, bool single_copy)
{
    tempi_window window = mpich_pieces(s, single_copy);
    window.peer = TEMPI_PEER_OTHER;
    window.peer_first = 1;
    window.peer_last = INT64_MAX;
    return window;
}

/* Open MPI copies long runs at the machine's rate. tempi is faster where Open MPI works run by run
 * (short runs near one another or a few to a row, runs of about a line, irregular and transposed
 * types), where lines compete for cache sets, in short calls, and by non-temporal stores for data
 * larger than the cache. Open MPI is faster with a few runs of a line. */
static tempi_window openmpi_pack(tempi_shape s, int64_t element, tempi_operation operation)
{
    const bool unpack = operation == TEMPI_OP_UNPACK;
    const tempi_window ours = from_to(s.run < 24 ? 1 : KIB, INT64_MAX);
    if (s.stride == 0 || s.transposed)
        return always;
    if (s.run < 64 && s.row > 0 && s.row < 4 * s.run)
        return ours;
    if (s.run < 32 && s.stride < 256)
        return ours;
    if (unpack && s.stride < 1024 && s.run % 32 == 0 && s.run <= 8 * element)
        /* In the gap Open MPI's loops are as good as tempi's. */
        return (tempi_window){KIB, INT64_MAX, .gap = 32 * KIB + 1, .resume = 12 * MIB};
    if (s.run >= 32 && s.run <= 128 && s.stride < 1024)
        return ours;
    if (s.run > 64 && s.run < 192 && s.stride % 4096 != 0)
        return ours;
    if (!unpack && s.run <= 8 && s.stride % 512 != 0)
        return from_to(s.stride < 1024 ? 1 : 2 * KIB, 512 * KIB);
    if (s.run < 32 && s.stride < 1024)
        return from_to(1, unpack ? 128 * KIB : 8 * KIB);
    if (unpack && s.stride % (s.run > 32 ? 2 * KIB : KIB) == 0 && s.run <= 64 && s.run % 4 == 0)
        return of_stores(s);
    if (!unpack && s.stride % (2 * KIB) == 0 && s.run >= 8 && s.run <= 32 && s.run % 4 == 0)
        return of_loads(s);
    if (unpack && s.run >= 64)
        return from_to(12 * MIB, INT64_MAX);
    return never;
}

enum { CALLED_LAST = 2 * MIB };

/* Open MPI calls memcpy for each run of more than 8 elements, twice as slow as loops if the run is
 * short. */
static bool called_for_each(tempi_shape s, int64_t element)
{
    return s.run > 8 * element && s.run < 24 && element > 0;
}

/* Open MPI packs, sends and unpacks a message in overlapping pieces, which one message of packed
 * bytes cannot; but it copies between small pages where tempi's staging has huge ones
 * (transfer/slab.h). Which effect is larger depends on the locality of the two processes' cores:
 * from 12 KiB on, vectors were measured to be 1.5 times faster across LLCs, and 1.6 times slower
 * within one. In this window tempi is faster in both cases. It ends where memory and packed bytes
 * no longer fit in the caches: Zen 3 takes 1.5 times the library's time from 4 MiB on, with one
 * short run an element from 2 MiB on, where Zen 4 and Zen 5 are still ahead. */
static tempi_window openmpi_pieces(tempi_shape s, int64_t element)
{
    if (s.transposed)
        return never;
    if (s.stride == 0)
        return from_to(12 * KIB, INT64_MAX);
    if (called_for_each(s, element))
        return from_to(32 * KIB, CALLED_LAST);
    if (s.single_run && s.run <= 16)
        return from_to(4 * KIB, MIB);
    return never;
}

/* Across LLCs every piece crosses between caches twice, while the kernel copies packed bytes once:
 * up to the size where packing, sending and unpacking in sequence take longer than the overlapping
 * pieces. In this window tempi was faster on each machine measured, by a tenth or more on Zen 4 and
 * Zen 5, by 0 to 0.2 on Zen 3. There runs further apart, and longer ones, took tempi 1.1 to 1.5
 * times as long as the library; on Zen 4 and Zen 5 it was ahead up to runs of 64 every 4096. */
enum { OTHER_LLC_FIRST = 12 * KIB };

static int64_t openmpi_other_llc_last(tempi_shape s, int64_t element)
{
    if (called_for_each(s, element))
        return CALLED_LAST;
    if (s.stride == 0 || s.transposed || s.run < 16 || s.run >= 32 || s.stride > 2 * s.run)
        return 0;
    return MIB;
}

/* Up to its eager limit, 4 KiB with a header in shared memory, a message is one piece and nothing
 * overlaps: there tempi is ahead once the library's time for the runs exceeds that of two decisions
 * and two more copies: with runs of 8 bytes from 100 bytes on, 2 to 9 times by 3 KiB. With runs of
 * a line Zen 4 and Zen 5 are ahead from 250 bytes on, Zen 3 from 1.5 KiB on (0.85 of the library's
 * speed at 256 bytes). A message to the rank itself takes the library half of that time, and tempi
 * longer, because of the gap (shim/p2p/wire.h): there the library is always ahead. */
enum { EAGER_FIRST = 128, EAGER_FIRST_OF_HALVES = 768, EAGER_FIRST_OF_LINES = 1536 };
enum { EAGER_LAST = 3584 };

static int64_t openmpi_eager_first(int64_t run)
{
    if (run <= 16)
        return EAGER_FIRST;
    return run <= 32 ? EAGER_FIRST_OF_HALVES : EAGER_FIRST_OF_LINES;
}

static tempi_window openmpi_message(tempi_shape s, int64_t element)
{
    tempi_window window = openmpi_pieces(s, element);
    window.peer = TEMPI_PEER_OTHER_LLC;
    window.peer_first = OTHER_LLC_FIRST;
    window.peer_last = openmpi_other_llc_last(s, element);
    if (s.run > 64 || (s.stride >= 4096 && !s.transposed))
        return window;
    const int64_t first = openmpi_eager_first(s.run);
    window.to_self = EAGER_LAST + 1;
    if (window.first > window.last) {
        window.first = first;
        window.last = EAGER_LAST;
        return window;
    }
    window.gap = EAGER_LAST + 1;
    window.resume = window.first;
    window.first = first;
    return window;
}

tempi_library tempi_library_of(const char *version)
{
    if (strstr(version, "Open MPI v4"))
        return TEMPI_LIBRARY_OPENMPI4;
    if (strstr(version, "Open MPI v"))
        return TEMPI_LIBRARY_OPENMPI5;
    if (strstr(version, "Intel(R) MPI"))
        return TEMPI_LIBRARY_INTEL;
    return strstr(version, "MPICH") ? TEMPI_LIBRARY_MPICH : TEMPI_LIBRARY_UNKNOWN;
}

int tempi_rule_choice(const char *version, const tempi_layout *layout, int64_t bytes, int operation,
                      int peer)
{
    if (!version || !layout || operation < 0 || operation >= TEMPI_OPERATIONS)
        return 0;
    const tempi_window window = tempi_rule_window(layout, 0, tempi_library_of(version),
                                                  (tempi_operation)operation);
    return tempi_window_has(window, bytes) ||
           (peer == window.peer && tempi_window_has_peer(window, bytes));
}

static bool is_openmpi(tempi_library library)
{
    return library == TEMPI_LIBRARY_OPENMPI4 || library == TEMPI_LIBRARY_OPENMPI5;
}

bool tempi_rule_is_beyond_tables(const tempi_layout *layout, int64_t element, tempi_library library)
{
    return is_openmpi(library) && !layout->dense && layout->size > 0 &&
           called_for_each(tempi_shape_of(layout), element);
}

tempi_window tempi_rule_window(const tempi_layout *layout, int64_t element, tempi_library library,
                               tempi_operation operation)
{
    if (layout->dense || layout->size == 0)
        return never;
    const tempi_shape s = tempi_shape_of(layout);
    const bool message = operation == TEMPI_OP_SEND || operation == TEMPI_OP_RECV;
    if (is_openmpi(library))
        return message ? openmpi_message(s, element) : openmpi_pack(s, element, operation);
    const bool single_copy = library != TEMPI_LIBRARY_INTEL && mpich_has_cma();
    return message ? mpich_message(s, single_copy) : mpich_pack(s, operation);
}
