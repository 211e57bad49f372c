/* What a user without a calibration is told. */
#include "choose/rule.h"
#include "tempi.h"

/* The figures are those of docs/benchmarks.md: the mean of messages as installed, and after. */
#define ADVICE(gain)                                                                   \
    "run `tempi calibrate` (two and a half minutes at most) to choose by measurement " \
    "from the first call on, not only after trials (" gain ")"

const char *tempi_calibration_advice(const char *version)
{
    switch (version ? tempi_library_of(version) : TEMPI_LIBRARY_UNKNOWN) {
    case TEMPI_LIBRARY_MPICH:
        return ADVICE(
            "messages over MPICH 5, EPYC Zen 3: 2.1 times the library's speed before and after");
    case TEMPI_LIBRARY_OPENMPI4:
    case TEMPI_LIBRARY_OPENMPI5:
        return ADVICE(
            "messages over Open MPI 5, EPYC Zen 3: 1.2 times the library's speed before and after");
    case TEMPI_LIBRARY_INTEL:
        return ADVICE(
            "messages over Intel MPI, EPYC Zen 3: 2.2 times the library's speed before, 2.5 after");
    default: return ADVICE("what that gains over this library is not measured");
    }
}
