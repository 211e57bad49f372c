/* Locks for short critical sections. A lock costs nothing in a program that asked MPI for less than
 * MPI_THREAD_MULTIPLE: the standard then forbids two threads inside MPI at once. */
#ifndef TEMPI_BASE_LOCK_H
#define TEMPI_BASE_LOCK_H

#include "base/passing.h"

#include <sched.h>
#include <stdbool.h>

typedef struct tempi_lock {
    int held;
} tempi_lock;

static inline bool tempi_lock_try(tempi_lock *lock)
{
    return !tempi_threads_are_shared() || !__atomic_exchange_n(&lock->held, 1, __ATOMIC_ACQUIRE);
}

static inline void tempi_lock_acquire(tempi_lock *lock)
{
    for (int spins = 0; !tempi_lock_try(lock); ++spins) {
        while (__atomic_load_n(&lock->held, __ATOMIC_RELAXED)) {
            /* Threads may outnumber the cores: yield to the holder. */
            if (++spins > 64)
                sched_yield();
        }
    }
}

static inline void tempi_lock_release(tempi_lock *lock)
{
    __atomic_store_n(&lock->held, 0, __ATOMIC_RELEASE);
}

#endif
