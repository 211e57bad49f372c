/* space.c: device addresses.
 *
 * One range of addresses is reserved twice. Programs see the first half: it never has access
 * rights, so a stray access by host code faults and a system call fails with EFAULT. The emulator
 * accesses the second half, at a fixed distance. The bytes are in one memory file, so that other
 * processes can map them; an allocation's file offset is that of its address, and unallocated parts
 * take no memory.
 *
 * Between two allocations there is always a gap. */
#include "emulator/core/emulator.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GAP = EMU_PAGE };

typedef struct {
    uint64_t base;
    uint64_t end; /* without the gap */
} extent;

static const uint64_t SIZES[] = {1ull << 38, 1ull << 36, 1ull << 34};

static uint64_t origin;
static uint64_t room;
static int file = -1;
static extent *extents; /* sorted */
static size_t count;
static size_t space;
static uint64_t recent; /* end of the latest allocation */

static int memory_file(void)
{
    const int fd = memfd_create("tempi-emulator", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)room) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool tempi_emu_space_init(void)
{
    for (size_t i = 0; file < 0 && i < sizeof SIZES / sizeof *SIZES; i++) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *const found = mmap(NULL, 2 * SIZES[i], PROT_NONE, flags, -1, 0);
        if (found == MAP_FAILED)
            continue;
        origin = (uint64_t)(uintptr_t)found;
        room = SIZES[i];
        file = memory_file();
        if (file < 0)
            munmap(found, 2 * SIZES[i]);
    }
    if (file < 0)
        tempi_emu_say("cannot reserve device addresses");
    return file >= 0;
}

bool tempi_emu_space_holds(uint64_t address)
{
    return file >= 0 && address - origin < room;
}

uint8_t *tempi_emu_space_bytes(uint64_t address)
{
    return (uint8_t *)(uintptr_t)(address + room);
}

uint64_t tempi_emu_space_offset(uint64_t address)
{
    return address - origin;
}

static uint64_t align_up(uint64_t address, uint64_t align)
{
    return (address + align - 1) & ~(align - 1);
}

/* The address for an extent of that size between extents i-1 and i, not below `least`; 0: none. */
static uint64_t fits_before(size_t i, uint64_t size, uint64_t align, uint64_t least)
{
    uint64_t from = i == 0 ? origin + GAP : extents[i - 1].end + GAP;
    from = from < least ? least : from;
    const uint64_t to = i == count ? origin + room : extents[i].base;
    const uint64_t base = align_up(from, align);
    return base + size + GAP <= to ? base : 0;
}

static uint64_t insert(size_t i, uint64_t base, uint64_t size)
{
    if (count == space) {
        const size_t larger = space ? 2 * space : 64;
        extent *const moved = realloc(extents, larger * sizeof *extents);
        if (moved == NULL)
            return 0;
        extents = moved;
        space = larger;
    }
    memmove(&extents[i + 1], &extents[i], (count - i) * sizeof *extents);
    extents[i] = (extent){base, base + size};
    count++;
    recent = base + size;
    return base;
}

static uint64_t take_at(uint64_t size, uint64_t hint)
{
    size_t i = 0;
    while (i < count && extents[i].base < hint)
        i++;
    const uint64_t from = i == 0 ? origin : extents[i - 1].end;
    const uint64_t to = i == count ? origin + room : extents[i].base;
    return hint >= from && hint + size <= to ? insert(i, hint, size) : 0;
}

static uint64_t take_above(uint64_t least, uint64_t size, uint64_t align)
{
    for (size_t i = 0; i <= count; i++) {
        const uint64_t base = fits_before(i, size, align, least);
        if (base != 0)
            return insert(i, base, size);
    }
    return 0;
}

/* Randomly returns the lowest address that fits (immediate reuse) or one after the latest
 * allocation (no reuse): programs must be right with both. */
uint64_t tempi_emu_space_take(uint64_t size, uint64_t align, uint64_t hint)
{
    size = align_up(size ? size : 1, EMU_PAGE);
    align = align < EMU_PAGE ? EMU_PAGE : align;
    if (size >= room)
        return 0;
    if (hint != 0 && hint % align == 0 && tempi_emu_space_holds(hint)) {
        const uint64_t base = take_at(size, hint);
        if (base != 0)
            return base;
    }
    const uint64_t after = (tempi_emu_random() & 1) != 0 ? recent + GAP : 0;
    const uint64_t base = take_above(after, size, align);
    return base != 0 || after == 0 ? base : take_above(0, size, align);
}

void tempi_emu_space_give(uint64_t address)
{
    for (size_t i = 0; i < count; i++) {
        if (extents[i].base == address) {
            memmove(&extents[i], &extents[i + 1], (count - i - 1) * sizeof *extents);
            count--;
            return;
        }
    }
}

bool tempi_emu_space_map_from(uint64_t address, uint64_t size, int from, uint64_t offset)
{
    size = align_up(size, EMU_PAGE);
    const int protection = PROT_READ | PROT_WRITE;
    return mmap(tempi_emu_space_bytes(address), size, protection, MAP_SHARED | MAP_FIXED, from,
                (off_t)offset) != MAP_FAILED;
}

bool tempi_emu_space_map(uint64_t address, uint64_t size, uint64_t offset)
{
    return tempi_emu_space_map_from(address, size, file, offset);
}

int tempi_emu_space_file(void)
{
    return file;
}

void tempi_emu_space_unmap(uint64_t address, uint64_t size)
{
    size = align_up(size, EMU_PAGE);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(tempi_emu_space_bytes(address), size, PROT_NONE, flags, -1, 0) == MAP_FAILED)
        tempi_emu_say("cannot unmap device memory");
}

void tempi_emu_space_forget(uint64_t offset, uint64_t size)
{
    size = align_up(size, EMU_PAGE);
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
}
