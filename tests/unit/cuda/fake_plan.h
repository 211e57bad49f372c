#ifndef TEMPI_FAKE_PLAN_H
#define TEMPI_FAKE_PLAN_H
#include <stdint.h>
/* Runs a launch on the fake driver. */
void fake_kernel(uint64_t *params);
#endif
