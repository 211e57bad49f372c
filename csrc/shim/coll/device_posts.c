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

int tempi_device_posts_begin(tempi_device_moves *moves, tempi_node_comm *node, tempi_blocks *out,
                             tempi_blocks *in, tempi_device_offers *offers)
{
    const int own = node->rank;
    if (out->nresident + in->nresident == 0)
        return MPI_SUCCESS;
    int rc = tempi_device_await_program(out, NULL);
    if (rc == MPI_SUCCESS)
        rc = tempi_device_await_program(in, out);
    if (rc != MPI_SUCCESS)
        return rc;
    tempi_device_moves_add_own(moves, own, out, in);
    make_offers(node, out, offers);
    rc = tempi_device_offers_stage_rest(offers, node->size, out);
    return rc == MPI_SUCCESS
               ? tempi_blocks_stage(in, in->edges->first[own], tempi_edges_count(in->edges, own))
               : rc;
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
    if (tempi_post_claim(a->post, true) != TEMPI_POST_OFFERED)
        return;
    const void *offer = tempi_post_description(r->node->posts, a->source, a->post, &n);
    if (offer && a->post->bytes == a->bytes &&
        tempi_device_offer_accept(&r->moves, r->in.ops + a->first, a->n, a->bytes, offer, n))
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
        tempi_post_take(r->node->posts, a->source, a->post);
    }
}

void tempi_device_posts_look(tempi_coll_request *r)
{
    if ((r->left == 0 && r->moves.n == 0) || !all_there(r))
        return;
    for (int i = 0; i < r->narrivals; ++i)
        if (!r->arrivals[i].ended)
            claim(r, &r->arrivals[i]);
    if (!tempi_device_moves_run(&r->moves, true)) {
        tempi_stat_add(TEMPI_STAT_device_errors, 1);
        r->error = r->error == MPI_SUCCESS ? MPI_ERR_OTHER : r->error;
    }
    end_claimed(r);
}
