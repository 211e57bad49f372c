#include "exchange/local_copy.h"
#include "base/clock.h"
#include "exchange/block_bytes.h"
#include "exchange/nest_walk.h"
#include "exchange/piece_buffer.h"
#include "pack/between.h"
#include "pack/copy_run.h"

#include <string.h>

enum {
    LINE = 64,
    BOTH_RUN = 512,     /* bytes; runs that are so long on both sides are copied one by one */
    SELF_RUN = 2 << 10, /* the same of one side */
    /* Lines of a block's turn: those of both sides stay there until the blocks that share them had
     * their turns. Blocks in turns. */
    TURN = 1024,
    TOGETHER = 8
};

/* From one block to another, n bytes, of which `step` at a time. */
typedef struct pair {
    const tempi_op *from, *to;
    int64_t n, step;
} pair;

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

/* Runs that are long on both sides, of nests that no kernel copies, go from place to place. */
static void copy_both(const tempi_nest_shape *source, const tempi_nest_shape *target, int64_t n,
                      bool nontemporal)
{
    tempi_nest_walk from, to;
    tempi_nest_begin(&from, source);
    tempi_nest_begin(&to, target);
    for (int64_t part; n > 0; n -= part) {
        part = minimum(minimum(from.left, to.left), n);
        void *into = (void *)(uintptr_t)to.at;
        const void *bytes = (const void *)(uintptr_t)from.at;
        tempi_copy_run(into, bytes, part, nontemporal);
        tempi_nest_step(&from, part);
        tempi_nest_step(&to, part);
    }
}

/* A long run of one side, or all that it has, is packed bytes of the other. */
static bool copy_runs(const tempi_op *from, const tempi_op *to, int64_t n, bool nontemporal)
{
    tempi_nest_shape source, target;
    tempi_nest_walk walk;
    const bool reads = tempi_nest_describe(from, &source),
               stores = tempi_nest_describe(to, &target);
    const int64_t in = reads ? source.run : 0, out = stores ? target.run : 0;
    /* Shorter ones are stored past the caches as fast by turns. */
    if (minimum(in, out) >= (nontemporal ? SELF_RUN : BOTH_RUN)) {
        copy_both(&source, &target, n, nontemporal);
        return true;
    }
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

/* The next step through the buffer; false: it was the last one. */
static bool copy_piece(const pair *one, int64_t *done, const tempi_piece_buffer *piece,
                       bool nontemporal)
{
    const int64_t part = minimum(one->n - *done, minimum(one->step, piece->size));
    tempi_block_pack(one->from, *done, part, piece->bytes);
    unpack(one->to, *done, part, piece->bytes, nontemporal);
    *done += part;
    return *done < one->n;
}

/* A block that no kernel copies. */
static void copy_in_pieces(const pair *one, bool nontemporal)
{
    tempi_piece_buffer piece;
    int64_t done = 0;
    tempi_piece_open(&piece, one->step);
    while (copy_piece(one, &done, &piece, nontemporal))
        continue;
    tempi_piece_close(&piece);
}

/* The next step of each in turn, from place to place where a kernel can. */
static void copy_in_turns(const pair *pairs, int n, bool nontemporal)
{
    tempi_between between[TOGETHER];
    bool direct[TOGETHER], left[TOGETHER];
    tempi_piece_buffer piece;
    int64_t done[TOGETHER] = {0}, most = 0;
    for (int i = 0; i < n; ++i) {
        left[i] = true;
        direct[i] = tempi_between_begin(&between[i], pairs[i].from, pairs[i].to, nontemporal,
                                        pairs[i].step);
        if (!direct[i])
            most = maximum(most, pairs[i].step);
    }
    tempi_piece_open(&piece, most);
    for (int going = n; going > 0;) {
        going = 0;
        for (int i = 0; i < n; ++i) {
            if (left[i])
                left[i] = direct[i] ? tempi_between_next(&between[i])
                                    : copy_piece(&pairs[i], &done[i], &piece, nontemporal);
            going += left[i];
        }
    }
    tempi_piece_close(&piece);
}

static int64_t runs_of(const tempi_op *block)
{
    return block->layout && !block->layout->dense ? block->layout->runs * block->count : 1;
}

/* Bytes of a turn of short runs, each of which takes a line; 0: they are longer, or too few. */
static int64_t turn_of(const tempi_op *block)
{
    const int64_t runs = runs_of(block);
    return runs > TURN && block->n < LINE * runs ? TURN * (block->n / runs) : 0;
}

/* Long blocks with short runs on both sides go in turns: those of opposite faces of a halo lie in
 * the same lines, each of which is fetched once then. */
static bool copy_all(const tempi_op *from, const tempi_op *to, int64_t n, bool nontemporal)
{
    pair together[TOGETHER];
    const int64_t piece = tempi_piece_bytes();
    int waiting = 0;
    bool fits = true;
    for (int64_t i = 0; i < n; ++i) {
        pair one = {&from[i], &to[i], minimum(from[i].n, to[i].n), 0};
        one.step = minimum(one.n, piece);
        const int64_t turn = n > 1 ? minimum(turn_of(&from[i]), turn_of(&to[i])) : 0;
        fits &= from[i].n <= to[i].n;
        if (turn > 0 && turn < one.n) {
            one.step = turn;
            together[waiting++] = one;
        } else if (one.n > 0 && !tempi_copy_between(one.from, one.to, nontemporal) &&
                   !copy_runs(one.from, one.to, one.n, nontemporal)) {
            copy_in_pieces(&one, nontemporal);
        }
        if (waiting == TOGETHER) {
            copy_in_turns(together, waiting, nontemporal);
            waiting = 0;
        }
    }
    if (waiting > 0)
        copy_in_turns(together, waiting, nontemporal);
    return fits;
}

bool tempi_local_copy(const tempi_op *from, const tempi_op *to, int64_t n)
{
    return copy_all(from, to, n, false);
}

/* ---- large ones ------------------------------------------------------------------------------ */

int64_t tempi_local_lines(const tempi_op *blocks, int64_t n)
{
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
    const tempi_chosen_way chosen = tempi_copy_choose(choice, class, ways, NULL, 0, NULL);
    const double start = tempi_clock();
    const bool fits = copy_all(from, to, n, chosen.way == TEMPI_COPY_NONTEMPORAL);
    if (chosen.timed)
        tempi_copy_learn(choice, class, chosen.way, tempi_clock() - start, bytes);
    return fits;
}
