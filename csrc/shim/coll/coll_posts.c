#include "shim/coll/coll_posts.h"
#include "base/clock.h"
#include "base/config.h"
#include "exchange/copy_choice.h"

#include <sched.h>
#include <stdlib.h>

/* ---- sending --------------------------------------------------------------------------------- */

static void pack_message(const tempi_op *ops, int n, tempi_post *post, char *packed)
{
    const double start = post->course.timed ? tempi_clock() : 0;
    tempi_post_pack(ops, n, 0, post->bytes, post->course.way == TEMPI_COPY_NONTEMPORAL, packed);
    if (post->course.timed)
        post->packing = tempi_clock() - start;
}

/* Whether the receiver has little to pack for this process, so that it waits for the bytes. Two
 * processes that send as much to each other pack at the same time: parts only take them longer (an
 * FFT of 128^3, 8 MiB to each other, 6.0 instead of 5.4 ms; Zen 3). */
static bool is_streamed(const tempi_coll_sending *sending, int to, int64_t bytes)
{
    return bytes > tempi_post_whole_most() && tempi_blocks_are_one_way(sending->in, to, bytes);
}

/* False: no memory. */
static bool make_room(tempi_coll_offers *offers, int processes)
{
    if (offers->room >= processes)
        return true;
    free(offers->open);
    offers->open = malloc((size_t)processes * sizeof *offers->open);
    offers->room = offers->open ? processes : 0;
    return offers->open != NULL;
}

static const void *description_of(const tempi_coll_sending *sending, int to, int64_t bytes,
                                  int64_t *n)
{
    *n = 0;
    return bytes > 0 && sending->described ? tempi_device_offers_of(sending->described, to, n)
                                           : NULL;
}

/* NULL: no memory. */
static tempi_post *describe_to(tempi_node_comm *node, int to, int64_t bytes,
                               const void *description, int64_t n)
{
    const double patience = (double)tempi_config.cuda_ipc_patience * (1e-6 + (double)bytes * 1e-12);
    return tempi_post_new_described(node->posts, to, bytes, description, n, patience);
}

/* Keeps what is not packed yet of a message to that process. */
static void keep_tail(tempi_coll_offers *offers, int to, int first, int n, const tempi_post *post,
                      bool nontemporal)
{
    if (post->bytes < post->whole)
        tempi_post_tails_add(&offers->tails, (tempi_post_tail){.to = to,
                                                               .first = first,
                                                               .n = n,
                                                               .sent = post->bytes,
                                                               .bytes = post->whole,
                                                               .part = post->bytes,
                                                               .nontemporal = nontemporal,
                                                               .course = post->course,
                                                               .packing = post->packing});
}

/* How many of a message's bytes are packed at first; the rest is a tail. */
static int64_t first_part(tempi_node_comm *node, tempi_coll_offers *offers, int to, int64_t bytes,
                          bool streamed)
{
    const int64_t part = tempi_post_part(node->posts, to, bytes, streamed);
    return part < bytes && tempi_post_tails_open(&offers->tails, node->size) ? part : bytes;
}

/* `offers`: those to which it may add; or NULL. NULL: no memory. */
static tempi_post *pack_to(tempi_node_comm *node, const tempi_blocks *out, int to, int64_t bytes,
                           tempi_coll_offers *offers, bool streamed)
{
    const int first = out->edges->first[to], n = tempi_edges_count(out->edges, to);
    const int64_t part = offers ? first_part(node, offers, to, bytes, streamed) : bytes;
    tempi_offer offer;
    void *packed;
    if (offers)
        tempi_offer_describe(out->ops + first, n, tempi_post_access(node->posts, to), &offer);
    tempi_post *post = tempi_post_new(node->posts, to, bytes, offers ? &offer : NULL, part,
                                      streamed, &packed);
    if (!post)
        return NULL;
    if (post->offers || bytes <= 0)
        return post;
    pack_message(out->ops + first, n, post, packed);
    if (part < bytes)
        keep_tail(offers, to, first, n, post, post->course.way == TEMPI_COPY_NONTEMPORAL);
    return post;
}

/* False: no memory. `bytes` < 0: tells that process of an error. */
static bool post_to(tempi_node_comm *node, tempi_post_name name, const tempi_coll_sending *sending,
                    int to, int64_t bytes)
{
    const tempi_edges *edges = sending->out->edges;
    tempi_coll_offers *offers = sending->offers;
    int64_t n;
    const void *description = description_of(sending, to, bytes, &n);
    const bool may_offer = offers &&
                           (description || (sending->host && bytes >= TEMPI_COPY_LEAST)) &&
                           make_room(offers, node->size);
    if (description && !may_offer)
        return false;
    const bool streamed = may_offer && is_streamed(sending, to, bytes);
    tempi_post *post = description ? describe_to(node, to, bytes, description, n)
                                   : pack_to(node, sending->out, to, bytes,
                                             may_offer ? offers : NULL, streamed);
    if (!post)
        return false;
    if (post->offers)
        offers->open[offers->n++] = (tempi_coll_offer){
            .post = post,
            .to = to,
            .first = edges->first[to],
            .n = tempi_edges_count(edges, to),
            .streamed = streamed,
            .described = n > 0,
            .refusable = n > 0 || !(tempi_post_access(node->posts, to) & TEMPI_ACCESS_READ)};
    post->channel = name.channel;
    post->call = name.call;
    tempi_post_send(node->posts, to);
    return true;
}

int tempi_coll_posts_send(tempi_node_comm *node, tempi_post_name name,
                          const tempi_coll_sending *sending)
{
    const tempi_blocks *out = sending->out;
    const tempi_coll_sending error = {.out = out};
    bool good = true;
    for (int i = 1; i < node->size; ++i) {
        const int to = (node->rank + i) % node->size;
        if (tempi_edges_count(out->edges, to) == 0)
            continue;
        const int64_t bytes = sending->failed ? -1 : tempi_blocks_bytes_with(out, to);
        if (bytes == 0 || post_to(node, name, sending, to, bytes))
            continue;
        good = false;
        (void)post_to(node, name, &error, to, -1);
    }
    if (sending->offers)
        tempi_post_tails_send(&sending->offers->tails, node, name, out, false);
    return good || sending->failed ? MPI_SUCCESS : tempi_blocks_no_memory(out->comm);
}

/* ---- offers ---------------------------------------------------------------------------------- */

/* `since`: when the wait for it began. */
static void withdraw(tempi_node_comm *node, tempi_blocks *out, tempi_coll_offers *offers,
                     const tempi_coll_offer *offer, double since)
{
    void *packed;
    if (offer->described && tempi_post_is_refused(offer->post))
        tempi_offer_was_refused(tempi_post_pause(node->posts, offer->to));
    const int64_t part = first_part(node, offers, offer->to, offer->post->bytes, offer->streamed);
    const bool nontemporal = tempi_post_packs_nontemporal(node->posts, offer->to, offer->post);
    if (!tempi_post_withdraw(node->posts, offer->to, offer->post, part, &packed))
        return;
    if (tempi_blocks_stage(out, offer->first, offer->n) != MPI_SUCCESS) {
        tempi_post_failed(offer->post);
        return;
    }
    tempi_post_pack(out->ops + offer->first, offer->n, 0, offer->post->bytes, nontemporal, packed);
    offer->post->packing = tempi_clock() - since;
    keep_tail(offers, offer->to, offer->first, offer->n, offer->post, nontemporal);
    tempi_post_withdrawn(offer->post);
}

/* Those that receivers have told a place for. Not under the lock of starts: it takes long. */
static void store_invited(tempi_node_comm *node, const tempi_blocks *out, tempi_coll_offers *offers)
{
    for (int i = 0; i < offers->n; ++i) {
        const tempi_coll_offer *o = &offers->open[i];
        if (!o->described && tempi_post_store(node->posts, o->to, o->post, &out->ops[o->first]))
            offers->storing += o->post->packing;
    }
}

/* Drops those that are over. */
static int settle(tempi_node_comm *node, tempi_coll_offers *offers)
{
    int result = MPI_SUCCESS, left = 0;
    for (int i = 0; i < offers->n; ++i) {
        tempi_post *post = offers->open[i].post;
        if (!tempi_post_is_over(post)) {
            offers->open[left++] = offers->open[i];
            continue;
        }
        if (post->bytes < 0)
            result = MPI_ERR_NO_MEM;
        if (post->described > 0)
            tempi_offer_was_accepted(tempi_post_pause(node->posts, offers->open[i].to));
        tempi_post_unwatch(post);
    }
    offers->n = left;
    return result;
}

int tempi_coll_offers_look(tempi_node_comm *node, tempi_node_comm *owner, tempi_blocks *out,
                           tempi_coll_offers *offers, bool idle)
{
    const double now = tempi_clock();
    if (idle && offers->since == 0)
        offers->since = now;
    store_invited(node, out, offers);
    if (tempi_lock_try(&owner->starting)) {
        for (int i = 0; i < offers->n; ++i) {
            const tempi_coll_offer *o = &offers->open[i];
            const bool late = idle && !tempi_post_is_over(o->post) &&
                              now - offers->since > o->post->patience;
            if (late || tempi_post_is_refused(o->post))
                withdraw(node, out, offers, o, idle ? offers->since : now);
        }
        tempi_lock_release(&owner->starting);
    }
    return settle(node, offers);
}

bool tempi_coll_offers_settle(tempi_node_comm *node, tempi_node_comm *owner, tempi_post_name name,
                              tempi_blocks *out, tempi_coll_offers *offers)
{
    const double now = tempi_clock();
    bool settled = true;
    store_invited(node, out, offers);
    if (!tempi_lock_try(&owner->starting))
        return false;
    for (int i = 0; i < offers->n; ++i) {
        const tempi_coll_offer *o = &offers->open[i];
        tempi_post *post = o->post;
        if (tempi_post_is_refused(post) || (o->refusable && !tempi_post_is_over(post)))
            withdraw(node, out, offers, o, now);
        settled &= !o->refusable || tempi_post_is_over(post) || !tempi_post_is_claimed(post);
    }
    tempi_post_tails_send(&offers->tails, node, name, out, true);
    tempi_lock_release(&owner->starting);
    return settled;
}

void tempi_coll_offers_fail(tempi_coll_offers *offers, tempi_node_comm *node, tempi_post_name name)
{
    tempi_post_tails_fail(&offers->tails, node, name);
    for (int i = 0; i < offers->n; ++i) {
        tempi_post *post = offers->open[i].post;
        while (!tempi_post_is_over(post) && !tempi_post_give_up(post))
            sched_yield(); /* it is being read */
        tempi_post_unwatch(post);
    }
    offers->n = 0;
}
