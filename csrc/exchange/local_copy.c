#include "exchange/local_copy.h"
#include "exchange/block_bytes.h"
#include "exchange/nest_walk.h"
#include "exchange/piece_buffer.h"

enum { SELF_RUN = 2 << 10 /* bytes; so long runs are copied one by one */ };

static int64_t maximum(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void unpack(const tempi_op *to, int64_t first, int64_t n, const char *packed,
                   bool nontemporal)
{
    (nontemporal ? tempi_block_unpack_nontemporal : tempi_block_unpack)(to, first, n, packed);
}

/* A long run of one side, or all that it has, is packed bytes of the other. */
static bool copy_runs(const tempi_op *from, const tempi_op *to, int64_t n, bool nontemporal)
{
    tempi_nest_shape source, target;
    tempi_nest_walk walk;
    const bool reads = tempi_nest_describe(from, &source),
               stores = tempi_nest_describe(to, &target);
    const int64_t in = reads ? source.run : 0, out = stores ? target.run : 0;
    if (in < SELF_RUN && out < SELF_RUN && !(reads && source.runs == 1) &&
        !(stores && target.runs == 1))
        return false;
    tempi_nest_begin(&walk, in >= out ? &source : &target);
    for (int64_t done = 0, part; done < n; done += part) {
        part = minimum(walk.left, n - done);
        char *run = (char *)(uintptr_t)walk.at;
        if (in >= out)
            unpack(to, done, part, run, nontemporal);
        else if (nontemporal && from->layout)
            tempi_pack_nontemporal(from->layout, from->count, from->mem, done, part, run);
        else
            tempi_block_pack(from, done, part, run);
        tempi_nest_step(&walk, part);
    }
    return true;
}

static void copy(const tempi_op *from, const tempi_op *to, bool nontemporal)
{
    tempi_piece_buffer piece;
    const int64_t n = minimum(from->n, to->n);
    if (copy_runs(from, to, n, nontemporal))
        return;
    tempi_piece_open(&piece, n);
    for (int64_t done = 0, part; done < n; done += part) {
        part = minimum(n - done, piece.size);
        tempi_block_pack(from, done, part, piece.bytes);
        unpack(to, done, part, piece.bytes, nontemporal);
    }
    tempi_piece_close(&piece);
}

static bool copy_all(const tempi_op *from, const tempi_op *to, int64_t n, bool nontemporal)
{
    bool fits = true;
    for (int64_t i = 0; i < n; ++i) {
        copy(&from[i], &to[i], nontemporal);
        fits &= from[i].n <= to[i].n;
    }
    return fits;
}

bool tempi_local_copy(const tempi_op *from, const tempi_op *to, int64_t n)
{
    return copy_all(from, to, n, false);
}

/* ---- large ones ------------------------------------------------------------------------------ */

static int64_t runs_of(const tempi_op *block)
{
    return block->layout && !block->layout->dense ? block->layout->runs * block->count : 1;
}

int64_t tempi_local_lines(const tempi_op *blocks, int64_t n)
{
    enum { LINE = 64 };
    int64_t bytes = 0;
    for (int64_t i = 0; i < n; ++i)
        if (blocks[i].n > 0 && blocks[i].method == TEMPI_METHOD_HOST)
            bytes += maximum(blocks[i].n, LINE * runs_of(&blocks[i]));
    return bytes;
}

bool tempi_local_copy_large(tempi_copy_choice *choice, const tempi_op *from, const tempi_op *to,
                            int64_t n)
{
    const unsigned ways = 1 << TEMPI_COPY_TWICE | 1 << TEMPI_COPY_NONTEMPORAL;
    int64_t bytes = 0, runs = 0;
    for (int64_t i = 0; i < n; ++i) {
        bytes += to[i].n;
        runs += runs_of(&to[i]);
    }
    const int class = tempi_copy_class(bytes, bytes, runs);
    if (class < 0)
        return tempi_local_copy(from, to, n);
    const tempi_copy_way way = tempi_copy_choose(choice, class, ways, NULL, 0, NULL);
    const double start = tempi_copy_clock();
    const bool fits = copy_all(from, to, n, way == TEMPI_COPY_NONTEMPORAL);
    tempi_copy_learn(choice, class, way, tempi_copy_clock() - start, bytes);
    return fits;
}
