#include "shim/type/quirks.h"

/* `layout` is NULL where it is not known yet: then what may be. */
static bool backwards_by_one(const tempi_traits *traits, int64_t extent, const tempi_layout *layout)
{
    (void)extent;
    (void)layout;
    return traits->stride_minus_1;
}

static bool complex_with_gaps(const tempi_traits *traits, int64_t extent,
                              const tempi_layout *layout)
{
    (void)extent;
    return traits->complex && (!layout || layout->runs > 1);
}

static bool repeated_negative_extent(const tempi_traits *traits, int64_t extent,
                                     const tempi_layout *layout)
{
    (void)extent;
    (void)layout;
    return traits->negative_extent;
}

static bool elements_astray(const tempi_traits *traits, int64_t extent, const tempi_layout *layout)
{
    (void)layout;
    return tempi_traits_astray(traits, extent);
}

enum {
    IN_MPICH = 1 << TEMPI_LIBRARY_MPICH,
    IN_OPENMPI4 = 1 << TEMPI_LIBRARY_OPENMPI4,
    IN_OPENMPI5 = 1 << TEMPI_LIBRARY_OPENMPI5,

    MESSAGES = 1 << TEMPI_OP_SEND | 1 << TEMPI_OP_RECV,
    EVERYWHERE = MESSAGES | 1 << TEMPI_OP_PACK | 1 << TEMPI_OP_UNPACK
};

/* The table. Each class has its failing type by name in tests/mpi/test_quirks.py; what each
 * library is wrong with was searched by tests/tools/find_quirks.py. Later versions are taken to be
 * no better until they are tried. */
static const struct {
    int libraries;
    unsigned operations;
    bool (*matches)(const tempi_traits *, int64_t extent, const tempi_layout *);
} classes[] = {
    /* Open MPI 4.1.4 and 5.0.11: hvector(3, 1, -1, BYTE) is packed forwards. */
    {IN_OPENMPI4 | IN_OPENMPI5, EVERYWHERE, backwards_by_one},
    /* Open MPI 5.0.11: hvector(6, 1, 12, f90_complex(6, 37)) and others where a gap is half an
     * element. Which other gaps are safe is not known, so all that have gaps count. */
    {IN_OPENMPI5, EVERYWHERE, complex_with_gaps},
    /* Open MPI 5.0.11: messages above the eager limit, which it packs and unpacks piece by piece,
     * of types whose elements do not lie at multiples of their size from one another: 592 of
     * hindexed_block(4, [40, 57, 0], INT). All that were carried wrong of 42,000 random types are
     * of this class, or one byte backwards: 5% of it, and 1% without the complex ones. Which of the
     * types and sizes hangs on where the pieces end, so all count. */
    {IN_OPENMPI5, MESSAGES, elements_astray},
    /* MPICH 5.0.2: two of contiguous(5, resized(0, -3, contiguous(3, SHORT))). */
    {IN_MPICH, EVERYWHERE, repeated_negative_extent},
};

unsigned tempi_quirk_operations(const tempi_traits *traits, int64_t extent,
                                const tempi_layout *layout, tempi_library library)
{
    unsigned operations = 0;
    for (unsigned i = 0; i < sizeof classes / sizeof classes[0]; ++i)
        if ((classes[i].libraries & 1 << library) && classes[i].matches(traits, extent, layout))
            operations |= classes[i].operations;
    return operations;
}
