#include "shim/coll/post_tails.h"
#include "base/clock.h"
#include "exchange/block_bytes.h"
#include "exchange/post_box.h"

#include <stdlib.h>

#define PATIENCE 1.0   /* seconds of waiting in which the receivers read nothing */
#define GAP      10e-3 /* what is longer between two looks is the program's, not waiting */

bool tempi_post_tails_open(tempi_post_tails *tails, int processes)
{
    if (!tails->of)
        tails->of = malloc((size_t)processes * sizeof *tails->of);
    return tails->of != NULL;
}

void tempi_post_tails_add(tempi_post_tails *tails, tempi_post_tail tail)
{
    tails->of[tails->n++] = tail;
}

void tempi_post_pack(const tempi_op *ops, int n, int64_t offset, int64_t bytes, bool nontemporal,
                     char *packed)
{
    for (int i = 0; i < n && bytes > 0; offset -= ops[i++].n) {
        const int64_t left = ops[i].n - offset, part = left < bytes ? left : bytes;
        if (part <= 0)
            continue;
        (nontemporal ? tempi_block_pack_nontemporal : tempi_block_pack)(&ops[i], offset, part,
                                                                        packed);
        packed += part;
        bytes -= part;
        offset += part;
    }
}

static void send(tempi_node_comm *node, tempi_post_name name, int to, tempi_post *post)
{
    post->channel = name.channel;
    post->call = name.call;
    tempi_post_send(node->posts, to);
}

/* To a process that waits for more. False: there is no memory even for that. */
static bool send_error(tempi_node_comm *node, tempi_post_name name, int to)
{
    void *data;
    tempi_post *post = tempi_post_new(node->posts, to, -1, NULL, -1, false, &data);
    if (post)
        send(node, name, to, post);
    return post != NULL;
}

/* False: there is no memory. */
static bool send_part(tempi_post_tail *tail, tempi_node_comm *node, tempi_post_name name,
                      const tempi_blocks *out, int64_t bytes)
{
    void *packed;
    tempi_post *post = tempi_post_new_part(node->posts, tail->to, tail->sent, bytes, tail->bytes,
                                           tail->course.way == TEMPI_COPY_REUSED, &packed);
    if (!post)
        return false;
    const double start = tail->course.timed ? tempi_clock() : 0;
    tempi_post_pack(out->ops + tail->first, tail->n, tail->sent, bytes, tail->nontemporal, packed);
    tail->packing += tail->course.timed ? tempi_clock() - start : 0;
    tail->sent += bytes;
    post->course = tail->course;
    post->packing = tail->packing;
    send(node, name, tail->to, post);
    return true;
}

/* The next part of it; false: there is no room. */
static bool send_next(tempi_post_tails *tails, tempi_post_tail *tail, tempi_node_comm *node,
                      tempi_post_name name, const tempi_blocks *out, bool all)
{
    const int64_t left = tail->bytes - tail->sent, bytes = left < tail->part ? left : tail->part;
    if (!all && !tempi_post_has_room(node->posts, tail->to, bytes))
        return false;
    if (send_part(tail, node, name, out, bytes))
        return true;
    tails->error = MPI_ERR_NO_MEM;
    if (!send_error(node, name, tail->to))
        return false;
    tail->sent = tail->bytes;
    return true;
}

void tempi_post_tails_send(tempi_post_tails *tails, tempi_node_comm *node, tempi_post_name name,
                           const tempi_blocks *out, bool all)
{
    for (bool sent = true; sent && tails->n > 0;) {
        int left = 0;
        sent = false;
        for (int i = 0; i < tails->n; ++i) { /* in turn: each receiver waits for its next part */
            sent |= send_next(tails, &tails->of[i], node, name, out, all);
            if (tails->of[i].sent < tails->of[i].bytes)
                tails->of[left++] = tails->of[i];
        }
        tails->n = left;
    }
}

/* How much the receivers have read, of these messages and others. */
static uint64_t read_by_all(const tempi_post_tails *tails, const tempi_node_comm *node)
{
    uint64_t messages = 0;
    for (int i = 0; i < tails->n; ++i)
        messages += tempi_post_released(node->posts, tails->of[i].to);
    return messages;
}

void tempi_post_tails_look(tempi_post_tails *tails, tempi_node_comm *node, tempi_node_comm *owner,
                           tempi_post_name name, const tempi_blocks *out)
{
    const double now = tempi_clock(), gap = now - tails->looked;
    if (!tempi_lock_try(&owner->starting))
        return;
    tempi_post_tails_send(tails, node, name, out, tails->waited > PATIENCE);
    const uint64_t messages = read_by_all(tails, node);
    tempi_lock_release(&owner->starting);
    tails->waited = messages == tails->read ? tails->waited + (gap < GAP ? gap : GAP) : 0;
    tails->looked = now;
    tails->read = messages;
}

void tempi_post_tails_fail(tempi_post_tails *tails, tempi_node_comm *node, tempi_post_name name)
{
    for (int i = 0; i < tails->n; ++i)
        (void)send_error(node, name, tails->of[i].to);
    tails->n = 0;
}
