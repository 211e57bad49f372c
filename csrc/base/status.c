#include "tempi.h"

#ifndef TEMPI_VERSION
#define TEMPI_VERSION "0.1.0"
#endif

const char *tempi_version(void)
{
    return TEMPI_VERSION;
}

const char *tempi_status_string(int status)
{
    switch (status) {
    case TEMPI_OK: return "success";
    case TEMPI_ERR_ARG: return "an argument is outside its domain";
    case TEMPI_ERR_MEMORY: return "out of memory";
    case TEMPI_ERR_UNSUPPORTED: return "not supported by this build or MPI library";
    case TEMPI_ERR_NO_MPI: return "no MPI library is loaded and initialized in this process";
    case TEMPI_ERR_OVERFLOW: return "a size or an address does not fit in 63 bits";
    case TEMPI_ERR_DEVICE: return "a GPU or its driver failed";
    default: return "unknown status";
    }
}
