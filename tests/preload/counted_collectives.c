/* The counter for programs in Fortran. */
#include "counted.h"

long counted_collectives(void)
{
    return counted("collectives");
}
