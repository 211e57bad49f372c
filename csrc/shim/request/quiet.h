/* Whether only its datatype can make tempi act in a call: nothing is deferred, and no buffer can be
 * device memory. Most calls go on to the library after a look at this alone. */
#ifndef TEMPI_SHIM_QUIET_H
#define TEMPI_SHIM_QUIET_H

#include "base/hidden.h"
#include "base/passing.h"
#include "base/published.h"

#include <stdbool.h>
#include <stdint.h>

/* What is pending (deferred_sends.h), and one more where a buffer can be device memory. */
extern TEMPI_HIDDEN int64_t tempi_unquiet;

void tempi_unquiet_add(int64_t amount);

static inline bool tempi_quiet(void)
{
    return TEMPI_GLANCE(tempi_unquiet) == 0;
}

extern TEMPI_HIDDEN tempi_completing_state tempi_entries_completing;

/* Whether the library alone has to complete requests, or to look at them. */
static inline bool tempi_completions_pass(void)
{
    return (TEMPI_GLANCE(tempi_unquiet) | TEMPI_GLANCE(tempi_entries_completing.records) |
            TEMPI_GLANCE(tempi_entries_completing.trials)) == 0;
}

/* Before the first entry is called. */
void tempi_quiet_start(void);

/* For calls that look something up, too: a table of pointers. While it is not quiet, and before
 * there is one, all of them lead to tempi_nothing, which is zeros. So one load does for both. */
enum { TEMPI_QUIET_TABLE = 512, TEMPI_NOTHING_BYTES = 256 };
extern TEMPI_HIDDEN void *const *tempi_quiet_table;
extern TEMPI_HIDDEN char tempi_nothing[TEMPI_NOTHING_BYTES];

#define TEMPI_FOUR_TIMES(one) one, one, one, one
#define TEMPI_NOTHINGS                                                                      \
    {TEMPI_FOUR_TIMES(TEMPI_FOUR_TIMES(TEMPI_FOUR_TIMES(TEMPI_FOUR_TIMES(tempi_nothing)))), \
     TEMPI_FOUR_TIMES(TEMPI_FOUR_TIMES(TEMPI_FOUR_TIMES(TEMPI_FOUR_TIMES(tempi_nothing))))}

/* The table; NULL: there is none any more. */
void tempi_quiet_use(void *const *table);

#endif
