/* post_parts.h: sizes and bytes of messages, their memory, and one that is longer than may wait for
 * its receiver; for post_driver.c. */
#ifndef TEMPI_TEST_POST_PARTS_H
#define TEMPI_TEST_POST_PARTS_H

#include "dice.h"
#include "exchange/post_box.h"
#include "failing_calls.h"
#include "tempi.h"

#include <string.h>

enum { WORD = 8, ROOM = 512 << 10, WHOLE = 9 * (ROOM / 2) + 77 };
#define STEP 0x9E3779B97F4A7C15u /* of the words of a message */

static void put(uint64_t key, char *data, int64_t n)
{
    for (int64_t at = 0; at < n; at += WORD, key += STEP)
        memcpy(data + at, &key, (size_t)(n - at < WORD ? n - at : WORD));
}

static void check(uint64_t key, const char *data, int64_t n)
{
    for (int64_t at = 0; at < n; at += WORD, key += STEP)
        if (memcmp(data + at, &key, (size_t)(n - at < WORD ? n - at : WORD)) != 0)
            fail("wrong bytes");
}

/* -1: the message says that there is none. */
static int64_t size_of(uint64_t key)
{
    static const int64_t limits[] = {0,     1,     255,   256,    257,    4096,   65535, 65536,
                                     65537, 81920, 81921, 262143, 262144, 262145, 300000};
    dice d = {key};
    const int64_t kind = draw(&d, 0, 399);
    if (kind < 8)
        return draw(&d, 1 << 20, 6 << 20);
    if (kind < 40)
        return limits[draw(&d, 0, (int64_t)(sizeof limits / sizeof *limits) - 1)];
    return kind < 60 ? -1 : draw(&d, 0, kind < 100 ? 50000 : 700);
}

/* Of the sender's own; it stays until the message is over, if that offers it. */
static char *memory_of(uint64_t key, int64_t n, unsigned access, tempi_offer *offer)
{
    const bool maps = key >> 8 & 1 && !calls.shares && calls.which == FAULTY;
    char *memory = maps ? tempi_mapped_allocate(n) : NULL;
    if (!memory)
        memory = malloc((size_t)n);
    const int64_t half = n / 2;
    const tempi_op blocks[2] = {{.mem = memory, .n = half}, {.mem = memory + half, .n = n - half}};
    put(key, memory, n);
    const tempi_op whole = {.mem = memory, .n = n};
    if (key >> 9 & 1)
        tempi_offer_describe(&whole, 1, access, offer);
    else
        tempi_offer_describe(blocks, 2, access, offer);
    return memory;
}

static void release(char *memory)
{
    if (!tempi_mapped_free(memory))
        free(memory);
}

/* What process 0 sends next of it. Returns its bytes; 0: there is no room. */
static int64_t send_part(tempi_post_box *from, uint64_t key, int64_t sent, bool streamed)
{
    void *data;
    const int64_t left = WHOLE - sent, most = ROOM / 2, part = left < most ? left : most;
    if (sent == 0 && tempi_post_part(from, 1, WHOLE, streamed) != most)
        fail("no parts");
    if (sent > 0 && !tempi_post_has_room(from, 1, part))
        return 0;
    const bool reused = sent / most % 2 != 0;
    tempi_post *post = sent > 0 ? tempi_post_new_part(from, 1, sent, part, WHOLE, reused, &data)
                                : tempi_post_new(from, 1, WHOLE, NULL, part, streamed, &data);
    if (!post || post->bytes != part || post->whole != WHOLE)
        fail("no part");
    put(key + (uint64_t)sent / WORD * STEP, data, part);
    tempi_post_send(from, 1);
    return part;
}

/* What process 1 reads next of it. Returns its bytes; 0: nothing is there. */
static int64_t read_part(tempi_post_box *to, uint64_t key, int64_t came)
{
    tempi_post *post = tempi_post_next(to, 0);
    if (!post)
        return 0;
    if (post->offset != came || post->whole != WHOLE)
        fail("another part");
    const int64_t part = post->bytes;
    check(key + (uint64_t)came / WORD * STEP, tempi_post_data(to, 0, post), part);
    tempi_post_pass(to, 0);
    tempi_post_take(to, 0, post);
    return part;
}

/* Prints how many parts it had, and how many waited at most. `streamed`: although there is room for
 * all. */
static void in_parts(tempi_post_box *from, tempi_post_box *to, uint64_t key, bool streamed)
{
    int64_t sent = 0, came = 0;
    int parts = 0, waiting = 0, most = 0;
    tempi_post_room_assume(streamed ? 0 : ROOM);
    while (came < WHOLE) {
        const int64_t part = sent < WHOLE ? send_part(from, key, sent, streamed) : 0;
        sent += part;
        if (part > 0) {
            ++parts;
            most = ++waiting > most ? waiting : most;
            continue;
        }
        const int64_t read = read_part(to, key, came);
        if (read == 0)
            fail("parts are missing");
        came += read;
        --waiting;
    }
    tempi_post_room_assume(0);
    printf("%d parts %d waited\n", parts, most);
}

#endif
