#include "shim/type/quirks.h"

/* A `layout` of NULL is unknown: returns whether the quirk is possible. */
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

/* The quirks of the libraries. For each class tests/mpi/test_quirks.py names a failing
 * type; tests/tools/find_quirks.py searched for them. Later versions are assumed to be no better
 * until tested. */
static const struct {
    int libraries;
    unsigned operations;
    bool (*matches)(const tempi_traits *, int64_t extent, const tempi_layout *);
} classes[] = {
    /* Open MPI 4.1.4 and 5.0.11: hvector(3, 1, -1, BYTE) is packed forwards. */
    {IN_OPENMPI4 | IN_OPENMPI5, EVERYWHERE, backwards_by_one},
    /* Open MPI 5.0.11: hvector(6, 1, 12, f90_complex(6, 37)) and others with a gap of half an
     * element. Which other gaps are safe is unknown, so all types with gaps count. */
    {IN_OPENMPI5, EVERYWHERE, complex_with_gaps},
    /* Open MPI 5.0.11: messages above the eager limit, which it packs and unpacks in pieces, of
     * types whose elements are not at multiples of their size from one another: 592 of
     * hindexed_block(4, [40, 57, 0], INT). Of 42,000 random types all that were carried wrong
     * are in this class or have a stride of -1 byte: 5% of the class, and 1% without the complex
     * ones. Which types and sizes fail depends on the ends of the pieces, so all count. */
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
