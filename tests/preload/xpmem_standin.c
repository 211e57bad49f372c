/* A stand-in for libxpmem on systems without the kernel module: the same four functions, for memory
 * that the owner has mapped from a file (memfd_create) of which it keeps the descriptor. Other
 * memory is copied when it is attached, so it must not change. XPMEM_STANDIN_FAIL=make|get|attach
 * fails there, `attach` in memory of files only. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

struct xpmem_addr {
    int64_t apid;
    off_t offset;
};

enum { ATTACHED = 256 };
static struct {
    void *memory;
    size_t bytes;
} attached[ATTACHED];

static int fails(const char *where)
{
    const char *wanted = getenv("XPMEM_STANDIN_FAIL");
    return wanted && strcmp(wanted, where) == 0;
}

int64_t xpmem_make(void *first, size_t bytes, int permit_type, void *permit)
{
    return fails("make") || first || bytes != (size_t)-1 || permit_type != 1 || !permit ? -1
                                                                                        : getpid();
}

int64_t xpmem_get(int64_t segment, int flags, int permit_type, void *permit)
{
    return fails("get") || flags != 2 || permit_type != 1 || permit ? -1 : segment + 1000000;
}

typedef struct region {
    uint64_t first, end, offset;
    char access[5];
    unsigned major, minor;
    uint64_t inode;
} region;

static int find_region(int64_t process, uint64_t first, uint64_t end, region *out)
{
    char line[512];
    int found = 0;
    snprintf(line, sizeof line, "/proc/%" PRId64 "/maps", process);
    FILE *maps = fopen(line, "r");
    while (maps && !found && fgets(line, sizeof line, maps))
        found = sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &out->first,
                       &out->end, out->access, &out->offset, &out->major, &out->minor,
                       &out->inode) == 7 &&
                first >= out->first && end <= out->end;
    if (maps)
        fclose(maps);
    return found;
}

static int open_file(int64_t process, const region *r)
{
    char folder[64], path[400];
    int file = -1;
    struct stat about;
    snprintf(folder, sizeof folder, "/proc/%" PRId64 "/fd", process);
    DIR *descriptors = opendir(folder);
    for (struct dirent *d; descriptors && file < 0 && (d = readdir(descriptors));) {
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        if (stat(path, &about) == 0 && S_ISREG(about.st_mode) && about.st_ino == r->inode &&
            major(about.st_dev) == r->major && minor(about.st_dev) == r->minor)
            file = open(path, O_RDONLY);
    }
    if (descriptors)
        closedir(descriptors);
    return file;
}

static void *copied(int64_t process, uint64_t first, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec here = {memory, bytes}, there = {(void *)(uintptr_t)first, bytes};
    if (memory == MAP_FAILED ||
        process_vm_readv((pid_t)process, &here, 1, &there, 1, 0) != (ssize_t)bytes)
        return (void *)-1;
    return memory;
}

void *xpmem_attach(struct xpmem_addr from, size_t bytes, void *at)
{
    const int64_t process = from.apid - 1000000;
    const uint64_t first = (uint64_t)from.offset;
    region r;
    void *memory = (void *)-1;
    if (at || first % 4096 || bytes % 4096 || !find_region(process, first, first + bytes, &r))
        return memory;
    const int file = r.access[3] == 's' ? open_file(process, &r) : -1;
    if (file < 0)
        memory = copied(process, first, bytes);
    else if (!fails("attach"))
        memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file,
                      (off_t)(r.offset + first - r.first));
    if (file >= 0)
        close(file);
    for (int i = 0; memory != (void *)-1 && i < ATTACHED; ++i)
        if (!attached[i].memory) {
            attached[i].memory = memory;
            attached[i].bytes = bytes;
            return memory;
        }
    return (void *)-1;
}

int xpmem_detach(void *memory)
{
    for (int i = 0; i < ATTACHED; ++i)
        if (attached[i].memory == memory) {
            munmap(memory, attached[i].bytes);
            attached[i].memory = NULL;
            return 0;
        }
    abort();
}
