#include "shim/coll/device_posts.h"
#include "base/stats.h"
#include "exchange/post_box.h"
#include "shim/coll/coll_round.h"

enum { DESCRIPTION_MOST = 64 << 10 }; /* bytes */

/* ---- at the start ---------------------------------------------------------------------------- */

static void make_offers(tempi_node_comm *node, tempi_blocks *out, tempi_device_offers *offers)
{
    if (node->size == 1 || out->nresident == 0 || !tempi_device_offers_open(offers, node->size))
        return;
    for (int i = 0; i < node->size; ++i)
        if (i != node->rank && !tempi_offer_is_paused(tempi_post_pause(node->posts, i)))
            (void)tempi_device_offers_add(offers, i, out, DESCRIPTION_MOST);
        else
            tempi_device_offers_skip(offers, i);
}

int tempi_device_posts_begin(tempi_device_posts *device, tempi_node_comm *node, tempi_blocks *out,
                             tempi_blocks *in, tempi_device_offers *offers)
{
    const int own = node->rank;
    if (out->nresident + in->nresident == 0)
        return MPI_SUCCESS;
    tempi_device_moves_add_own(&device->moves, own, out, in);
    make_offers(node, out, offers);
    int rc = tempi_device_offers_stage_rest(offers, node->size, out);
    if (rc == MPI_SUCCESS)
        rc = tempi_blocks_stage(in, in->edges->first[own], tempi_edges_count(in->edges, own));
    if (rc == MPI_SUCCESS)
        rc = tempi_device_await_program(out);
    return rc == MPI_SUCCESS ? tempi_device_await_program(in) : rc;
}

void tempi_device_posts_end(tempi_device_posts *device)
{
    if (device->flying)
        tempi_pack_wait(&device->ticket);
    tempi_device_moves_close(&device->moves);
    *device = (tempi_device_posts){0};
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Whether all that has not come is offered by devices. */
static bool all_there(const tempi_coll_request *r)
{
    for (int i = 0; i < r->narrivals; ++i) {
        const tempi_arrival *a = &r->arrivals[i];
        if (!a->ended && (!a->post || !tempi_post_is_described(a->post)))
            return false;
    }
    return true;
}

/* What was withdrawn meanwhile comes as others do. */
static void claim(tempi_coll_request *r, tempi_arrival *a)
{
    int64_t n;
    if (tempi_post_claim(a->post) != TEMPI_POST_OFFERED)
        return;
    const void *offer = tempi_post_description(r->node->posts, a->source, a->post, &n);
    if (offer && a->post->bytes == a->bytes &&
        tempi_device_offer_accept(&r->device.moves, r->in.ops + a->first, a->n, a->bytes, offer, n))
        a->claimed = true;
    else
        tempi_post_refuse(a->post);
}

static void end_claimed(tempi_coll_request *r)
{
    for (int i = 0; i < r->narrivals; ++i) {
        tempi_arrival *a = &r->arrivals[i];
        if (!a->claimed || a->ended)
            continue;
        a->ended = true;
        --r->left;
        tempi_post_take(a->post);
    }
}

/* All of them are over. */
static void land(tempi_coll_request *r, bool good)
{
    if (good)
        tempi_device_moves_note(&r->device.moves);
    else
        tempi_stat_add(TEMPI_STAT_device_errors, 1);
    if (!good && r->error == MPI_SUCCESS)
        r->error = MPI_ERR_OTHER;
    tempi_device_moves_drop(&r->device.moves, 0);
    end_claimed(r);
}

static void take_off(tempi_coll_request *r)
{
    for (int i = 0; i < r->narrivals; ++i)
        if (!r->arrivals[i].ended)
            claim(r, &r->arrivals[i]);
    if (r->device.moves.n == 0)
        return;
    r->device.flying = tempi_device_moves_start(&r->device.moves, &r->device.ticket);
    if (!r->device.flying)
        land(r, false);
}

void tempi_device_posts_look(tempi_coll_request *r)
{
    tempi_device_posts *device = &r->device;
    if (!device->flying && (r->left > 0 || device->moves.n > 0) && all_there(r))
        take_off(r);
    if (!device->flying || !tempi_pack_test(&device->ticket))
        return;
    device->flying = false;
    land(r, tempi_pack_error(&device->ticket) == TEMPI_OK);
}
