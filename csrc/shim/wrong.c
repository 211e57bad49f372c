#include "shim/wrong.h"

static bool backwards_by_one(const tempi_traits *traits, const tempi_layout *layout)
{
    (void)layout;
    return traits->stride_minus_1;
}

static bool complex_with_gaps(const tempi_traits *traits, const tempi_layout *layout)
{
    return traits->complex && layout->runs > 1;
}

static bool repeated_negative_extent(const tempi_traits *traits, const tempi_layout *layout)
{
    (void)layout;
    return traits->negative_extent;
}

enum {
    IN_MPICH = 1 << TEMPI_LIBRARY_MPICH,
    IN_OPENMPI4 = 1 << TEMPI_LIBRARY_OPENMPI4,
    IN_OPENMPI5 = 1 << TEMPI_LIBRARY_OPENMPI5
};

/* The table. Each class has its failing type by name in tests/mpi/test_known_wrong.py. Later
 * versions are taken to be no better until they are tried. */
static const struct {
    int libraries;
    bool (*matches)(const tempi_traits *, const tempi_layout *);
} classes[] = {
    /* Open MPI 4.1.4 and 5.0.11: hvector(3, 1, -1, BYTE) is packed forwards. */
    {IN_OPENMPI4 | IN_OPENMPI5, backwards_by_one},
    /* Open MPI 5.0.11: hvector(6, 1, 12, f90_complex(6, 37)) and others where a gap is half an
     * element. Which other gaps are safe is not known, so all that have gaps count. */
    {IN_OPENMPI5, complex_with_gaps},
    /* MPICH 5.0.2: two of contiguous(5, resized(0, -3, contiguous(3, SHORT))). */
    {IN_MPICH, repeated_negative_extent},
};

bool tempi_wrong_class(const tempi_traits *traits, const tempi_layout *layout, tempi_library library)
{
    for (unsigned i = 0; i < sizeof classes / sizeof classes[0]; ++i)
        if ((classes[i].libraries & 1 << library) && classes[i].matches(traits, layout))
            return true;
    return false;
}
