#ifndef TEMPI_FAKE_PLAN_H
#define TEMPI_FAKE_PLAN_H
#include <stdint.h>
/* What the fake driver runs when it is told to launch something. */
void fake_kernel(uint64_t *params);
#endif
