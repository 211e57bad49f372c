/* members.h: the members of a group as processes or threads; for exchange_driver.c and
 * post_driver.c. */
#ifndef TEMPI_TEST_MEMBERS_H
#define TEMPI_TEST_MEMBERS_H

#include "dice.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMBERS = 4 };

/* Each driver makes a part of these calls fail. */
ssize_t __real_process_vm_readv(pid_t process, const struct iovec *here, unsigned long nhere,
                                const struct iovec *there, unsigned long nthere,
                                unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t process, const struct iovec *here, unsigned long nhere,
                                const struct iovec *there, unsigned long nthere,
                                unsigned long flags);

/* Each member in a process of its own, by its element of an array. Returns whether one failed. */
static int in_processes(int n, void *(*run)(void *), void *members, size_t size)
{
    pid_t processes[MEMBERS];
    int bad = 0, status;
    for (int i = 0; i < n; ++i)
        if ((processes[i] = fork()) == 0) {
            run((char *)members + (size_t)i * size);
            exit(0);
        }
    while (wait(&status) > 0) {
        for (int i = 0; !bad && status != 0 && i < n; ++i)
            kill(processes[i], SIGKILL); /* the others wait for the one that failed */
        bad |= status != 0;
    }
    return bad;
}

static void in_threads(int n, void *(*run)(void *), void *members, size_t size)
{
    pthread_t threads[MEMBERS];
    for (int i = 0; i < n; ++i)
        pthread_create(&threads[i], NULL, run, (char *)members + (size_t)i * size);
    for (int i = 0; i < n; ++i)
        pthread_join(threads[i], NULL);
}

#endif
