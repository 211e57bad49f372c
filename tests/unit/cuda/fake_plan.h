#ifndef TEMPI_FAKE_PLAN_H
#define TEMPI_FAKE_PLAN_H
#include "cuda/kernels.h"

/* How many lists of operations were planned. */
extern int fake_plans;
/* Their launches, but for the parameters. */
extern tempi_launch fake_launch;
/* Runs a launch on the fake driver. */
void fake_kernel(uint64_t *params);
#endif
