#ifndef TEMPI_FAKE_PLAN_H
#define TEMPI_FAKE_PLAN_H
#include <stdint.h>
/* How many lists of operations were planned. */
extern int fake_plans;
/* Blocks of their launches with a thread for each word. */
extern unsigned fake_whole;
/* Runs a launch on the fake driver. */
void fake_kernel(uint64_t *params);
#endif
