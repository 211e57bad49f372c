#include "exchange/segment.h"
#include "exchange/rest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* ---- files ----------------------------------------------------------------------------------- */

/* The name of a file without a folder: the path of its maker's descriptor, ":", a number, as that
 * descriptor may be another file's later, ":", and the number of the file, as that path may be
 * another file's in another container. */
static bool is_path(const char *name)
{
    return name[0] == '/';
}

static bool path_of(const char *folder, const char *name, char *out, size_t size)
{
    const int n = is_path(name) ? snprintf(out, size, "%.*s", (int)strcspn(name, ":"), name)
                                : snprintf(out, size, "%s/%s", folder, name);
    return n > 0 && (size_t)n < size;
}

/* No other one of this process has it. */
static unsigned long new_number(void)
{
    static unsigned long made;
    return __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
}

static void make_name(char name[TEMPI_SEGMENT_NAME])
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    /* With the prefix by which the node registry clears up after crashes. */
    snprintf(name, TEMPI_SEGMENT_NAME, "tempi-%lu-%x%x%x-%lx", (unsigned long)geteuid(),
             (unsigned)getpid(), (unsigned)now.tv_sec, (unsigned)now.tv_nsec, new_number());
}

/* Beyond this limit the system does not refuse but ends the process, by SIGXFSZ. */
static bool is_permitted(int64_t bytes)
{
    struct rlimit most;
    return getrlimit(RLIMIT_FSIZE, &most) == 0 &&
           (most.rlim_cur == RLIM_INFINITY || most.rlim_cur >= (rlim_t)bytes);
}

/* Its descriptor stays open until tempi_segment_unlink. */
static int make_without_folder(int64_t bytes, char name[TEMPI_SEGMENT_NAME])
{
    struct stat about;
    const int named = memfd_create("tempi-messages", MFD_CLOEXEC);
    int file = -1;
    if (named >= 0 && ftruncate(named, (off_t)bytes) == 0 && fstat(named, &about) == 0)
        file = fcntl(named, F_DUPFD_CLOEXEC, 0);
    if (file >= 0)
        snprintf(name, TEMPI_SEGMENT_NAME, "/proc/%ld/fd/%d:%lx:%llx", (long)getpid(), named,
                 new_number(), (unsigned long long)about.st_ino);
    else if (named >= 0)
        close(named);
    return file;
}

int tempi_segment_make_file(const char *folder, int64_t bytes, char name[TEMPI_SEGMENT_NAME])
{
    char path[256];
    if (!is_permitted(bytes))
        return -1;
    if (!folder)
        return make_without_folder(bytes, name);
    make_name(name);
    if (!path_of(folder, name, path, sizeof path))
        return -1;
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes) == 0)
        return file;
    close(file);
    unlink(path);
    return -1;
}

static bool is_named(const char *name, const struct stat *about)
{
    const char *number = strrchr(name, ':');
    return !is_path(name) ||
           (number && strtoull(number + 1, NULL, 16) == (unsigned long long)about->st_ino);
}

int tempi_segment_open_file(const char *folder, int64_t bytes, const char *name)
{
    char path[256];
    struct stat about;
    if (!path_of(folder, name, path, sizeof path))
        return -1;
    const int file = open(path, O_RDWR | O_CLOEXEC |
                                    (is_path(name) ? O_NONBLOCK | O_NOCTTY : O_NOFOLLOW));
    if (file < 0)
        return -1;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
        about.st_size == (off_t)bytes && is_named(name, &about))
        return file;
    close(file);
    return -1;
}

/* In pieces: a signal takes back what the call that it interrupts has allocated. */
bool tempi_segment_allocate(int file, int64_t at, int64_t bytes)
{
    enum { PIECE = 1 << 20 };
    for (int64_t done = 0; done < bytes; done += PIECE) {
        const int64_t n = bytes - done < PIECE ? bytes - done : PIECE;
        int error;
        do
            error = posix_fallocate(file, (off_t)(at + done), (off_t)n);
        while (error == EINTR);
        if (error != 0)
            return false;
    }
    return true;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* None to itself. */
static int64_t rings_of(int members)
{
    return (int64_t)members * (members - 1);
}

/* Bytes of the short ring beside one of that length, which is itself as short, or longer. */
static int64_t reused_of(int64_t capacity)
{
    return capacity > TEMPI_SEGMENT_RING_ENOUGH ? TEMPI_SEGMENT_RING_ENOUGH : 0;
}

/* The most for so many members, if those of a process are to have `rest` bytes together. */
static int64_t capacity_for(int members, int64_t rest)
{
    const int64_t rings = rings_of(members);
    int64_t capacity = rest;
    while (capacity > TEMPI_SEGMENT_RING_ENOUGH && capacity * (members - 1) > rest)
        capacity /= 2;
    while (capacity > TEMPI_SEGMENT_RING_LEAST &&
           (capacity + reused_of(capacity)) * rings > TEMPI_SEGMENT_BYTES)
        capacity /= 2;
    return capacity;
}

static int64_t step_of(const tempi_segment *segment)
{
    const int64_t reused = reused_of(segment->capacity);
    return (int64_t)sizeof(tempi_ring) + segment->capacity +
           (reused > 0 ? (int64_t)sizeof(tempi_short_ring) + reused : 0);
}

/* They come first. */
static int64_t probes_bytes(int members)
{
    const int64_t bytes = (int64_t)sizeof(tempi_probe) * members;
    return (bytes + TEMPI_RING_ALIGN - 1) / TEMPI_RING_ALIGN * TEMPI_RING_ALIGN;
}

static tempi_segment sized(int members, int64_t capacity)
{
    tempi_segment segment = {.members = members, .capacity = capacity};
    segment.bytes = probes_bytes(members) + step_of(&segment) * rings_of(members);
    return segment;
}

/* The next smaller one to try; false: that would be too short. */
static bool shorten(tempi_segment *segment)
{
    const int64_t capacity = segment->capacity / 2;
    if (capacity < TEMPI_SEGMENT_RING_ENOUGH)
        return false;
    *segment = sized(segment->members, capacity);
    return true;
}

static void map(int file, tempi_segment *segment)
{
    void *memory = mmap(NULL, (size_t)segment->bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_POPULATE, file, 0);
    if (memory == MAP_FAILED)
        return;
    (void)madvise(memory, (size_t)segment->bytes, MADV_HUGEPAGE); /* if the system allows it */
    (void)madvise(memory, (size_t)segment->bytes, MADV_DONTFORK);
    segment->memory = memory;
}

/* Others need memory there, too: containers often have 64 MiB in all. */
static bool leaves_enough(int file, const tempi_segment *segment)
{
    struct statvfs about;
    return segment->capacity <= TEMPI_SEGMENT_RING_ENOUGH || fstatvfs(file, &about) != 0 ||
           (uint64_t)segment->bytes <=
               (uint64_t)about.f_bavail * about.f_frsize / TEMPI_SEGMENT_SHARE;
}

static void create(const char *folder, tempi_segment *segment, char name[TEMPI_SEGMENT_NAME])
{
    const int file = tempi_segment_make_file(folder, segment->bytes, name);
    if (file < 0)
        return;
    if (leaves_enough(file, segment) && tempi_segment_allocate(file, 0, segment->bytes))
        map(file, segment);
    close(file);
    if (!segment->memory)
        tempi_segment_unlink(folder, name);
}

tempi_segment tempi_segment_create(const char *folder, int members, char name[TEMPI_SEGMENT_NAME])
{
    tempi_segment segment = sized(members, capacity_for(members, tempi_rest_bytes()));
    do
        create(folder, &segment, name);
    while (!segment.memory && shorten(&segment));
    return segment;
}

/* The file's length tells how long the rings are. */
tempi_segment tempi_segment_open(const char *folder, int members, const char *name)
{
    tempi_segment segment = sized(members, capacity_for(members, TEMPI_REST_MOST));
    int file;
    do
        file = tempi_segment_open_file(folder, segment.bytes, name);
    while (file < 0 && shorten(&segment));
    if (file < 0)
        return segment;
    map(file, &segment);
    close(file);
    return segment;
}

void tempi_segment_unlink(const char *folder, const char *name)
{
    char path[256];
    int named;
    if (is_path(name) && sscanf(name, "/proc/%*d/fd/%d", &named) == 1)
        close(named);
    else if (path_of(folder, name, path, sizeof path))
        unlink(path);
}

void tempi_segment_close(tempi_segment *segment)
{
    if (segment->memory)
        munmap(segment->memory, (size_t)segment->bytes);
    segment->memory = NULL;
}

tempi_probe *tempi_segment_probe(const tempi_segment *segment, int member)
{
    return (tempi_probe *)(void *)segment->memory + member;
}

void tempi_segment_end(const tempi_segment *segment, int from, int to, tempi_ring_end *end)
{
    const int64_t index = (int64_t)from * (segment->members - 1) + to - (to > from ? 1 : 0);
    char *at = segment->memory + probes_bytes(segment->members) + index * step_of(segment);
    memset(end, 0, sizeof *end);
    if (from == to)
        return;
    tempi_ring *ring = (tempi_ring *)(void *)at;
    const int64_t reused = reused_of(segment->capacity);
    void *beside = reused > 0 ? ring->data + segment->capacity : NULL;
    tempi_ring_begin(end, ring, (uint64_t)segment->capacity, beside, (uint64_t)reused);
}
