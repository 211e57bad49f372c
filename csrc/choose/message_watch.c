#include "choose/message_watch.h"

/* The times after a trial that are typical. */
enum { FIRST = 3 };
#define CHANGED 1.25

void tempi_message_watch_begin(tempi_message_watch *watch)
{
    *watch = (tempi_message_watch){.fresh = FIRST};
}

void tempi_message_watch_resume(tempi_message_watch *watch)
{
    watch->since = watch->seen = 0;
}

static void compare(tempi_message_watch *watch, double took)
{
    const double typical = (double)watch->typical;
    if (took > CHANGED * typical)
        watch->changed = watch->changed > 0 ? 2 : 1;
    else if (CHANGED * took < typical)
        watch->changed = watch->changed < 0 ? -2 : -1;
    else
        watch->changed = 0;
}

bool tempi_message_watch_time(tempi_message_watch *watch, int64_t now)
{
    const int64_t took = (now - watch->since) * TEMPI_MESSAGE_WATCHED / watch->seen;
    const bool first = watch->since == 0;
    watch->since = now;
    watch->seen = 0;
    if (first)
        return false;
    watch->recent = watch->before != 0 && watch->before < took ? watch->before : took;
    watch->before = took;
    if (watch->fresh > 0) {
        watch->typical = watch->typical == 0 || took < watch->typical ? took : watch->typical;
        --watch->fresh;
        return false;
    }
    compare(watch, (double)took);
    return watch->changed == 2 || watch->changed == -2;
}
