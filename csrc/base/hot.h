/* What a call reads that goes on to the library at once, as the library's own calls of a
 * microsecond leave little of it in the caches: together, so that it lies in two or three pages and
 * not in one a variable, and hidden, so that one instruction reads it. */
#ifndef TEMPI_BASE_HOT_H
#define TEMPI_BASE_HOT_H

#define TEMPI_HOT __attribute__((section("tempi_hot"), aligned(64), visibility("hidden")))

#endif
