/* Asks for a line that is to be written. */
#ifndef TEMPI_BASE_PREFETCH_H
#define TEMPI_BASE_PREFETCH_H

/* (The compiler's own needs a flag of newer processors; older ones ignore the instruction.) */
static inline __attribute__((always_inline)) void tempi_prefetch_to_write(const void *line)
{
#ifdef __x86_64__
    __asm__ volatile("prefetchw %0" ::"m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

#endif
