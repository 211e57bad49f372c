#include "model/rule.h"

/* What the rule looks at: one number for each thing that the measurements depend on. */
typedef struct shape {
    int64_t run;    /* bytes of the typical run */
    int64_t stride; /* bytes between neighbouring runs; 0: not regular */
    bool lone;      /* one run an element: only the message's count makes more of them */
    bool transposed; /* the fastest dimension of the packed stream is not that of the memory */
} shape;

static int64_t size_of(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

static shape shape_of(const tempi_layout *layout)
{
    const tempi_box *box = layout->boxes;
    shape s = {.run = layout->runs > 0 ? layout->size / layout->runs : 0};
    if (layout->nboxes != 1 || box->table)
        return s;
    s.lone = box->ndims == 0;
    s.stride = size_of(s.lone ? layout->extent : box->dims[box->ndims - 1].stride);
    s.transposed = box->ndims > 1 && size_of(box->dims[box->ndims - 2].stride) < s.stride;
    return s;
}

static const tempi_window never = {1, 0};
static const tempi_window always = {1, INT64_MAX};
enum { KIB = 1 << 10, MIB = 1 << 20 };

/* MPICH 5.0.2 packs regular types at about half of the machine's rate where the runs are near one
 * another, and vectors of bytes at a tenth of it; where each run is on a line of its own both are bound by
 * the memory, and it is a little ahead when it packs runs of up to a line that lie pages apart. */
static tempi_window mpich_pack(shape s, tempi_operation operation)
{
    if (s.stride >= 4096 && s.run < 128)
        return operation == TEMPI_OP_PACK ? never : (tempi_window){16 * KIB, INT64_MAX};
    return always;
}

/* In messages above its cell size MPICH packs piece by piece and searches its place anew for each:
 * 1.2 to 16 times slower. It is faster where tempi's extra copy costs more than that search: long runs,
 * types of one run that are repeated by the count, and short messages whose every run is a page away.
 * How long a run must be depends on how fast the two processes' cores exchange lines, which on the
 * machine of the measurements is not always the same: the bounds are where neither answer loses much. */
static tempi_window mpich_message(shape s)
{
    if (s.stride == 0 || s.transposed)
        return always;
    if (s.lone)
        return (tempi_window){1, 12 * KIB};
    if (s.run >= 4096)
        return (tempi_window){8 * MIB, INT64_MAX};
    if (s.run >= 1024 || (s.run >= 512 && s.stride - s.run >= s.run / 2))
        return (tempi_window){256 * KIB, INT64_MAX};
    if (s.run <= 16 && s.stride >= 4096)
        return (tempi_window){16 * KIB, INT64_MAX};
    return always;
}

/* Open MPI copies long runs at the machine's rate. tempi wins where it goes run by run: short runs
 * near one another, irregular and transposed types; and by storing past the cache what is too large
 * for it. */
static tempi_window openmpi_pack(shape s, tempi_operation operation)
{
    if (s.stride == 0 || s.transposed)
        return always;
    if (s.run < 32 && s.stride < 256)
        return always;
    if (operation == TEMPI_OP_UNPACK && s.run >= 64)
        return (tempi_window){12 * MIB, INT64_MAX};
    if (s.run >= 32 && s.run <= 128 && s.stride < 1024)
        return (tempi_window){512 * KIB, INT64_MAX};
    return never;
}

/* Open MPI packs, sends and unpacks a message in overlapping pieces, which one message of packed
 * bytes cannot: tempi wins only where its packing is slow enough. */
static tempi_window openmpi_message(shape s)
{
    if (s.transposed)
        return never;
    if (s.stride == 0)
        return (tempi_window){2 * KIB, INT64_MAX};
    if (s.lone && s.run <= 16)
        return (tempi_window){2 * KIB, INT64_MAX};
    if (s.run > 8 && s.run < 32 && s.stride < 256)
        return (tempi_window){32 * KIB, INT64_MAX};
    if (s.run > 8 && s.run < 32 && s.stride < 1024)
        return (tempi_window){32 * KIB, 128 * KIB};
    if (s.run >= 32 && s.stride <= 2 * s.run)
        return (tempi_window){768 * KIB, 4 * MIB};
    return never;
}

tempi_window tempi_rule_window(const tempi_layout *layout, tempi_library library,
                               tempi_operation operation)
{
    if (layout->dense || layout->size == 0)
        return never;
    const shape s = shape_of(layout);
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
