#include "model/rule.h"
#include "model/shape.h"

#include <string.h>

static const tempi_window never = {1, 0};
static const tempi_window always = {1, INT64_MAX};
enum { KIB = 1 << 10, MIB = 1 << 20 };

/* MPICH 5.0.2 packs regular types at about half of the machine's rate where the runs are near one
 * another, and vectors of bytes at a tenth of it; where each run is on a line of its own both are bound by
 * the memory, and it is a little ahead with runs of up to a line that lie pages apart. */
static tempi_window mpich_pack(tempi_shape s, tempi_operation operation)
{
    if (s.stride < 4096 || s.run >= 128)
        return always;
    if (operation == TEMPI_OP_PACK)
        return never;
    return (tempi_window){s.run > 16 ? 8 * MIB : 16 * KIB, INT64_MAX};
}

/* In messages above its cell size MPICH packs piece by piece and searches its place anew for each: 1.2 to
 * 50 times slower, and from memory of small pages (transfer/slab.h). It is ahead only where every few bytes
 * lie on a page of their own: then the packing takes all the time, and it packs a little faster. */
static tempi_window mpich_message(tempi_shape s)
{
    if (s.stride == 0 || s.transposed)
        return always;
    if (s.lone && s.run <= 16)
        return (tempi_window){1, 2 * MIB};
    if (s.run <= 16 && s.stride >= 4096)
        return s.run <= 8 ? never : (tempi_window){512 * KIB, INT64_MAX};
    return s.run >= 4096 ? (tempi_window){2 * MIB, INT64_MAX} : always;
}

/* Open MPI copies long runs at the machine's rate. tempi wins where it goes run by run: short runs near one
 * another, those of about a line, irregular and transposed types; in short calls, and by storing past the
 * cache what is too large for it. */
static tempi_window openmpi_pack(tempi_shape s, tempi_operation operation)
{
    if (s.stride == 0 || s.transposed)
        return always;
    if (s.run < 32 && s.stride < 256)
        return always;
    if (s.run >= 32 && s.run <= 128 && s.stride < 1024)
        return always;
    if (s.run < 32 && s.stride < 1024)
        return (tempi_window){1, operation == TEMPI_OP_UNPACK ? 128 * KIB : 8 * KIB};
    if (operation == TEMPI_OP_UNPACK && s.run >= 64)
        return (tempi_window){12 * MIB, INT64_MAX};
    return never;
}

/* Open MPI packs, sends and unpacks a message in overlapping pieces, which one message of packed bytes
 * cannot; but it copies between small pages where tempi's staging has huge ones (transfer/slab.h). Which of the
 * two counts for more depends on how fast the two processes' cores exchange lines: from 32 KiB on, vectors
 * were measured to be 1.5 times faster in one state of the machine and 1.6 times slower in the other.
 * So the rule takes only what wins in both, and leaves the rest to a calibration of the machine. */
static tempi_window openmpi_message(tempi_shape s)
{
    if (s.transposed)
        return never;
    if (s.stride == 0)
        return (tempi_window){8 * KIB, INT64_MAX};
    if (s.lone && s.run <= 16)
        return (tempi_window){8 * KIB, 8 * MIB};
    return never;
}

tempi_library tempi_library_of(const char *version)
{
    if (strstr(version, "Open MPI v4"))
        return TEMPI_LIBRARY_OPENMPI4;
    if (strstr(version, "Open MPI v"))
        return TEMPI_LIBRARY_OPENMPI5;
    return strstr(version, "MPICH") ? TEMPI_LIBRARY_MPICH : TEMPI_LIBRARY_UNKNOWN;
}

int tempi_rule_choice(const char *version, const tempi_layout *layout, int64_t bytes, int operation)
{
    if (!version || !layout || operation < 0 || operation >= TEMPI_OPERATIONS)
        return 0;
    return tempi_window_has(tempi_rule_window(layout, tempi_library_of(version), (tempi_operation)operation), bytes);
}

tempi_window tempi_rule_window(const tempi_layout *layout, tempi_library library,
                               tempi_operation operation)
{
    if (layout->dense || layout->size == 0)
        return never;
    const tempi_shape s = tempi_shape_of(layout);
    const bool message = operation == TEMPI_OP_SEND || operation == TEMPI_OP_RECV;
    switch (library) {
    case TEMPI_LIBRARY_OPENMPI4:
    case TEMPI_LIBRARY_OPENMPI5:
        return message ? openmpi_message(s) : openmpi_pack(s, operation);
    case TEMPI_LIBRARY_MPICH:
    case TEMPI_LIBRARY_UNKNOWN:
        break;
    }
    return message ? mpich_message(s) : mpich_pack(s, operation);
}
