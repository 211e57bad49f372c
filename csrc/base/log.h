/* Messages to stderr. One write(2) a line, nothing is allocated; usable at any time in a process's
 * life. Warnings are few and said once per place; info and debug are off unless TEMPI_LOG asks. */
#ifndef TEMPI_BASE_LOG_H
#define TEMPI_BASE_LOG_H

enum { TEMPI_LOG_ERROR = 0, TEMPI_LOG_WARN = 1, TEMPI_LOG_INFO = 2, TEMPI_LOG_DEBUG = 3 };

extern int tempi_log_level;

void tempi_log_write(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define TEMPI_LOG(level, ...)                      \
    do {                                           \
        if ((level) <= tempi_log_level)            \
            tempi_log_write((level), __VA_ARGS__); \
    } while (0)

/* At most one line per place and process. */
#define TEMPI_WARN_ONCE(...)                                             \
    do {                                                                 \
        static int said_;                                                \
        if (!said_ && !__atomic_exchange_n(&said_, 1, __ATOMIC_RELAXED)) \
            TEMPI_LOG(TEMPI_LOG_WARN, __VA_ARGS__);                      \
    } while (0)

#endif
