/* staging_driver.c: staging buffers in use at the same time, in random order, for the sanitizers.
 * Each is filled with its own byte, which must be unchanged when it is released; after the last
 * trim none may be left. Long ones for received bytes are never used for others until a trim. Those
 * that others read are used again after a sixteenth of the bound, or 8 MiB, of others. Exits with 1
 * at the first error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/copy_bytes.h"
#include "pack/parts.h"
#include "transfer/records.h"
#include "transfer/slab.h"
#include "transfer/staging.h"

tempi_settings tempi_config = {.stage_max = 64 << 20};

/* Of the records, which nothing here makes. */
void tempi_packed_put(tempi_op *op)
{
    (void)op;
}
void tempi_parts_delete(tempi_parts *parts)
{
    (void)parts;
}
void tempi_layout_release(const tempi_layout *layout)
{
    (void)layout;
}

enum { BUFFERS = 64, STEPS = 20000 };

static struct {
    unsigned char *data;
    size_t size;
    bool incoming;
    unsigned char value;
} buffers[BUFFERS];

/* Long buffers since the last trim that had received bytes. */
enum { LONG = 8 << 10, KNOWN = 4096 };
static const void *known[KNOWN];
static int nknown;

static bool has_received(const void *buffer)
{
    for (int i = 0; i < nknown; ++i)
        if (known[i] == buffer)
            return true;
    return false;
}

static void trim(void)
{
    tempi_stage_trim();
    for (int i = nknown = 0; i < BUFFERS; ++i)
        if (buffers[i].data && buffers[i].incoming && buffers[i].size >= LONG)
            known[nknown++] = buffers[i].data;
}

static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static void give(int i)
{
    for (size_t k = 0; k < buffers[i].size; k += 997)
        if (buffers[i].data[k] != buffers[i].value)
            exit(1);
    if (buffers[i].size && buffers[i].data[buffers[i].size - 1] != buffers[i].value)
        exit(1);
    tempi_stage_put(buffers[i].data);
    buffers[i].data = NULL;
}

static void take(int i)
{
    const size_t size = (size_t)draw((uint64_t)1
                                     << draw(22)); /* most are short, some above a slab's most */
    buffers[i].incoming = draw(2) == 0;
    const bool received = !buffers[i].incoming && draw(2) == 0;
    buffers[i].data = (buffers[i].incoming ? tempi_stage_get_incoming
                       : received          ? tempi_stage_get_received
                       : draw(2) == 0      ? tempi_stage_get_read
                                           : tempi_stage_get)((int64_t)size);
    if (!buffers[i].data)
        return; /* the bound */
    if (size >= LONG && has_received(buffers[i].data) != buffers[i].incoming) {
        if (!buffers[i].incoming || nknown == KNOWN)
            exit(1);
        known[nknown++] = buffers[i].data;
    }
    const int64_t shift = buffers[i].incoming || received ? tempi_copy_shift((int64_t)size) : 0;
    if ((uintptr_t)buffers[i].data % 64 != (uintptr_t)shift)
        exit(1);
    buffers[i].size = size;
    buffers[i].value = (unsigned char)draw(256);
    memset(buffers[i].data, buffers[i].value, size);
}

/* One at a time. */
static void rest(int64_t bound, int64_t bytes, int others)
{
    void *first[256], *other = NULL;
    tempi_config.stage_max = bound;
    for (int i = 0; i < 3 * (others + 1); ++i) {
        void *buffer = tempi_stage_get_read(bytes);
        for (int k = 0; i <= others && k < i; ++k)
            if (first[k] == buffer)
                exit(1);
        if (i <= others)
            first[i] = buffer;
        else if (first[i % (others + 1)] != buffer)
            exit(1);
        tempi_stage_put(buffer);
        tempi_stage_put(other = tempi_stage_get(bytes));
        if (other == buffer)
            exit(1);
    }
    tempi_stage_trim();
}

/* Those of a call that come back together have rested when the next call needs them. */
static void rest_together(void)
{
    void *first[32], *again[32];
    for (int turn = 0; turn < 2; ++turn) {
        void **buffers_of = turn ? again : first;
        for (int i = 0; i < 32; ++i)
            buffers_of[i] = tempi_stage_get_read(1 << 20);
        for (int i = 0; i < 32; ++i)
            tempi_stage_put(buffers_of[i]);
    }
    if (memcmp(first, again, sizeof first) != 0)
        exit(1);
    tempi_stage_trim();
}

/* Where the bound has no room for two, one does not rest, and the others are kept. */
static void rest_within_bound(void)
{
    tempi_config.stage_max = 64 << 20;
    void *other = tempi_stage_get(1 << 20), *first = tempi_stage_get_read(40 << 20);
    memset(first, 1, 1);
    tempi_stage_put(other);
    for (int i = 0; i < 3; ++i) {
        tempi_stage_put(first);
        if (tempi_stage_get_read(40 << 20) != first)
            exit(1);
    }
    if (tempi_stage_get(1 << 20) != other)
        exit(1);
    tempi_stage_put(first);
    tempi_stage_put(other);
    tempi_stage_trim();
}

int main(void)
{
    int taken = 0;
    rest_within_bound();
    rest(256 << 20, 64 << 10, 128);
    rest(256 << 20, 1 << 20, 8);
    rest(64 << 20, 64 << 10, 64);
    rest_together();
    for (int step = 0; step < STEPS; step++) {
        const int i = (int)draw(BUFFERS);
        if (buffers[i].data)
            give(i);
        else
            take(i);
        taken += buffers[i].data != NULL;
        if (draw(500) == 0)
            trim();
    }
    for (int i = 0; i < BUFFERS; i++)
        if (buffers[i].data)
            give(i);
    tempi_stage_trim();
    printf("%d\n", taken);
    return taken > STEPS / 4 ? 0 : 1;
}
