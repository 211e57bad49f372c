/* Of a variable that calls read on their way to the library: it is this shared library's own, so
 * one instruction reads it. Without it the compiler reads its address first. */
#ifndef TEMPI_BASE_HIDDEN_H
#define TEMPI_BASE_HIDDEN_H

#define TEMPI_HIDDEN __attribute__((visibility("hidden")))

#endif
