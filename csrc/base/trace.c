#include "base/trace.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

bool tempi_trace_on;

static struct {
    pthread_mutex_t lock;
    FILE *file;
    int rank;
    pid_t owner; /* a forked child must not write into its parent's file */
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER};

void tempi_trace_open(const char *file, int rank)
{
    char path[4096];
    if (trace.file || snprintf(path, sizeof path, "%s.%d", file, rank) >= (int)sizeof path)
        return;
    trace.file = fopen(path, "w");
    if (!trace.file) {
        TEMPI_LOG(TEMPI_LOG_WARN, "TEMPI_TRACE: cannot write %s: %s", path, strerror(errno));
        return;
    }
    trace.rank = rank;
    trace.owner = getpid();
    fputs("[\n", trace.file); /* the closing bracket is optional in this format */
    tempi_trace_on = true;
}

void tempi_trace_close(void)
{
    tempi_trace_on = false;
    pthread_mutex_lock(&trace.lock);
    if (trace.file && trace.owner == getpid())
        fclose(trace.file);
    trace.file = NULL;
    pthread_mutex_unlock(&trace.lock);
}

void tempi_trace_write(double start, const char *what, const char *call, int64_t bytes)
{
    const double end = tempi_clock();
    if (trace.owner != getpid())
        return;
    pthread_mutex_lock(&trace.lock);
    if (trace.file)
        fprintf(trace.file,
                "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,"
                "\"tid\":%ld,\"args\":{\"bytes\":%lld}},\n",
                what, call, 1e6 * start, 1e6 * (end - start), trace.rank, (long)syscall(SYS_gettid),
                (long long)bytes);
    pthread_mutex_unlock(&trace.lock);
}
