/* Messages to stderr: one write(2) per line, no allocation, usable at any time in the life of a
 * process. Each place in the code warns once; info and debug are off unless TEMPI_LOG sets them. */
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

/* At most one line per place in the code and process. */
#define TEMPI_LOG_ONCE(level, ...)                                       \
    do {                                                                 \
        static int said_;                                                \
        if (!said_ && !__atomic_exchange_n(&said_, 1, __ATOMIC_RELAXED)) \
            TEMPI_LOG(level, __VA_ARGS__);                               \
    } while (0)

#define TEMPI_WARN_ONCE(...) TEMPI_LOG_ONCE(TEMPI_LOG_WARN, __VA_ARGS__)

#endif
