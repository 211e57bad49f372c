#include "exchange/local_copy.h"
#include "exchange/block_bytes.h"
#include "exchange/nest_walk.h"
#include "exchange/piece_buffer.h"

enum { SELF_RUN = 2 << 10 /* bytes; so long runs are copied one by one */ };

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A long run of one side, or all that it has, is packed bytes of the other. */
static bool copy_runs(const tempi_op *from, const tempi_op *to, int64_t n)
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
            tempi_block_unpack(to, done, part, run);
        else
            tempi_block_pack(from, done, part, run);
        tempi_nest_step(&walk, part);
    }
    return true;
}

static void copy(const tempi_op *from, const tempi_op *to)
{
    tempi_piece_buffer piece;
    const int64_t n = minimum(from->n, to->n);
    if (copy_runs(from, to, n))
        return;
    tempi_piece_open(&piece, n);
    for (int64_t done = 0, part; done < n; done += part) {
        part = minimum(n - done, piece.size);
        tempi_block_pack(from, done, part, piece.bytes);
        tempi_block_unpack(to, done, part, piece.bytes);
    }
    tempi_piece_close(&piece);
}

bool tempi_local_copy(const tempi_op *from, const tempi_op *to, int64_t n)
{
    bool fits = true;
    for (int64_t i = 0; i < n; ++i) {
        copy(&from[i], &to[i]);
        fits &= from[i].n <= to[i].n;
    }
    return fits;
}
