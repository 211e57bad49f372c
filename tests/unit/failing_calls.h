/* Calls of the system that fail, from a call on and for so many. Link with -Wl,--wrap of each. */
#ifndef FAILING_CALLS_H
#define FAILING_CALLS_H

#include "members.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/uio.h>

typedef enum faulty { FALLOCATE, MMAP, REALLOC, FAULTY } faulty;

static struct {
    faulty which;
    int from, n; /* the calls from that one on, so many */
    int seen[FAULTY];
    bool interrupts; /* every second call */
    bool shares; /* the mappings of one place have one address: else TSan takes them for several */
} calls = {.which = FAULTY};

static bool fails(faulty which)
{
    const int number = calls.seen[which]++;
    return which == calls.which && number >= calls.from && number - calls.from < calls.n;
}

int __real_posix_fallocate(int file, off_t at, off_t bytes);
int __wrap_posix_fallocate(int file, off_t at, off_t bytes);
int __wrap_posix_fallocate(int file, off_t at, off_t bytes)
{
    if (calls.interrupts && calls.seen[FALLOCATE]++ % 2 == 0)
        return EINTR;
    return calls.which != FAULTY && fails(FALLOCATE) ? ENOSPC
                                                     : __real_posix_fallocate(file, at, bytes);
}

void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes)
{
    return calls.which != FAULTY && fails(REALLOC) ? NULL : __real_realloc(memory, bytes);
}

void *__real_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t at);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t at);
int __real_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes);

static void *shared(size_t bytes, int file, off_t at)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        off_t at;
        void *memory;
    } places[1 << 14];
    static int n;
    void *memory = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n && !memory; ++i)
        memory = places[i].at == at ? places[i].memory : NULL;
    if (!memory) {
        memory = __real_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, at);
        places[n].at = at;
        places[n++].memory = memory;
    }
    pthread_mutex_unlock(&lock);
    return memory;
}

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t at)
{
    if (calls.shares)
        return shared(bytes, file, at);
    return calls.which != FAULTY && fails(MMAP)
               ? MAP_FAILED
               : __real_mmap(address, bytes, protection, flags, file, at);
}

int __wrap_munmap(void *address, size_t bytes)
{
    return calls.shares ? 0 : __real_munmap(address, bytes);
}

static _Thread_local dice *reading; /* a part of the calls fails, if it is set */

ssize_t __wrap_process_vm_readv(pid_t process, const struct iovec *here, unsigned long nhere,
                                const struct iovec *there, unsigned long nthere,
                                unsigned long flags)
{
    return reading && draw(reading, 0, 3) == 0
               ? -1
               : __real_process_vm_readv(process, here, nhere, there, nthere, flags);
}

#endif
