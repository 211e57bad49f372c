#include "shim/coll/coll_posts.h"
#include "exchange/block_bytes.h"
#include "exchange/copy_choice.h"

static void pack_blocks(const tempi_op *ops, int n, bool nontemporal, char *packed)
{
    for (int i = 0; i < n; packed += ops[i++].n)
        if (ops[i].n > 0)
            (nontemporal ? tempi_block_pack_nontemporal : tempi_block_pack)(&ops[i], 0, ops[i].n,
                                                                            packed);
}

static void pack_message(const tempi_op *ops, int n, tempi_post *post, char *packed)
{
    const double start = post->timed ? tempi_copy_clock() : 0;
    pack_blocks(ops, n, post->nontemporal, packed);
    if (post->timed)
        post->packing = tempi_copy_clock() - start;
}

static int64_t bytes_to(const tempi_blocks *out, int to)
{
    int64_t bytes = 0;
    for (int i = out->edges->first[to]; i < out->edges->first[to + 1]; ++i)
        bytes += out->ops[i].n;
    return bytes;
}

/* False: no memory. `bytes` < 0: tells that process of an error. */
static bool post_to(tempi_node_comm *node, tempi_post_name name, const tempi_blocks *out, int to,
                    int64_t bytes)
{
    void *packed;
    tempi_post *post = tempi_post_new(node->posts, to, bytes, &packed);
    if (!post)
        return false;
    if (bytes > 0)
        pack_message(out->ops + out->edges->first[to], tempi_edges_count(out->edges, to), post,
                     packed);
    post->channel = name.channel;
    post->call = name.call;
    tempi_post_send(node->posts, to);
    return true;
}

int tempi_coll_posts_send(tempi_node_comm *node, tempi_post_name name, const tempi_blocks *out,
                          bool failed)
{
    bool good = true;
    for (int i = 1; i < node->size; ++i) {
        const int to = (node->rank + i) % node->size;
        if (tempi_edges_count(out->edges, to) == 0)
            continue;
        const int64_t bytes = failed ? -1 : bytes_to(out, to);
        if (bytes == 0 || post_to(node, name, out, to, bytes))
            continue;
        good = false;
        (void)post_to(node, name, out, to, -1);
    }
    return good || failed ? MPI_SUCCESS : tempi_blocks_no_memory(out->comm);
}
