/* plan_launch.c: one piece as one launch with scalar parameters. */
#include "cuda/plan_piece.h"

enum {
    BLOCKS_PER_MULTIPROCESSOR = 8, /* 2048 threads, the most that any multiprocessor holds */
    USUAL_MULTIPROCESSORS = 80,
    STRIDED_AXES = 4,
    TABLE_AXES = 3,
    TILE = 32,
    TILE_LEAST = 8, /* shorter axes leave most of a tile empty */
    WIDEST_TILED = 8,
    FORM_WIDE = 8, /* bits of a kernel's `form`: tempi/kernels/_move.py */
    FORM_UNPACK = 16,
    FORM_VARIABLE = 32,
    FORM_GATHER = 64,
    FORM_SCATTER = 128,
    FORM_AXIS_SHIFT = 8,
    FORM_LEAD_SHIFT = 16,
    FORM_NO_TABLE = 255,
    /* Words that lie so far apart share no sector of the memory (32 or 64 bytes). */
    APART = 64,
    FAR_APART = 512, /* runs that share no line and no neighbouring line either */
    FAR_RUN = 64,
    WIDE_WORD = 8,
    GROUP_WORDS = 4, /* neighbours that move as one word on a contiguous side */
    ROUND_WORDS = 4, /* of a thread, where blocks have a round each (tempi/kernels/_strided.py) */
    /* Stores of two bytes by groups take twice as long as one by one: 162 instead of 87 us for 64
     * MiB every 4 bytes (H200). */
    WIDEST_GATHERED = 2,
    WIDEST_SCATTERED = 1
};

unsigned tempi_cuda_grid(int64_t work, int multiprocessors)
{
    const int64_t most = (int64_t)(multiprocessors > 0 ? multiprocessors : USUAL_MULTIPROCESSORS) *
                         BLOCKS_PER_MULTIPROCESSOR;
    const int64_t blocks = (work + TEMPI_KERNEL_BLOCK - 1) / TEMPI_KERNEL_BLOCK;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* ---- words ----------------------------------------------------------------------------------- */

static int log2_ceil(uint32_t n)
{
    return n < 2 ? 0 : 32 - __builtin_clz(n - 1);
}

/* q = (w * magic >> 32) >> shift for every w < 2^31; derivation in tempi/kernels/_place.py. */
static void set_division(tempi_word_axis *axis)
{
    if (axis->n < 2)
        return; /* never divided by */
    axis->shift = (uint32_t)log2_ceil(axis->n) - 1;
    const uint64_t numerator = (uint64_t)1 << (32 + axis->shift);
    axis->magic = (uint32_t)((numerator + axis->n - 1) / axis->n);
}

static void push(tempi_words *words, int64_t n, int64_t d, int64_t s)
{
    tempi_word_axis *axis = &words->axes[words->naxes++];
    *axis = (tempi_word_axis){.d = d, .s = s, .n = (uint32_t)n};
    set_division(axis);
}

static uint32_t form_of(const tempi_piece *piece, const tempi_words *words)
{
    uint32_t form = (uint32_t)log2_ceil((uint32_t)words->width) | words->groups |
                    words->lead << FORM_LEAD_SHIFT;
    if (piece->table_axis == TEMPI_NO_AXIS)
        return form | (uint32_t)FORM_NO_TABLE << FORM_AXIS_SHIFT;
    form |= piece->form.wide ? FORM_WIDE : 0u;
    form |= piece->table_in_dst ? FORM_UNPACK : 0u;
    form |= piece->table_axis == TEMPI_RUN_AXIS ? FORM_VARIABLE : 0u;
    return form | (uint32_t)words->table_axis << FORM_AXIS_SHIFT;
}

/* Whether word w is at w * width on that side, for every w. */
static bool contiguous(const tempi_words *words, bool in_dst)
{
    int64_t next = words->width;
    for (int k = 0; k < words->naxes; k++) {
        const tempi_word_axis *axis = &words->axes[k];
        if ((in_dst ? axis->d : axis->s) != next)
            return false;
        next *= axis->n;
    }
    return true;
}

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Whether neighbours lie in different sectors on one side. */
static bool are_apart(const tempi_words *words)
{
    const tempi_word_axis *axis = &words->axes[0];
    return magnitude(axis->d) >= APART || magnitude(axis->s) >= APART;
}

/* Narrow words move in groups where one side is contiguous and the other one close; a group is
 * aligned there. */
static void set_groups(const tempi_piece *piece, tempi_words *words)
{
    words->groups = words->lead = 0;
    if (words->width > WIDEST_GATHERED || are_apart(words))
        return;
    const bool in_dst = contiguous(words, true);
    if (!in_dst && (words->width > WIDEST_SCATTERED || !contiguous(words, false)))
        return;
    const uint64_t start = (in_dst ? piece->dst : piece->src) / (unsigned)words->width;
    words->groups = in_dst ? FORM_GATHER : FORM_SCATTER;
    words->lead = (uint32_t)(start + words->first) % GROUP_WORDS;
}

void tempi_words_of(const tempi_piece *piece, tempi_words *out)
{
    const int64_t width = tempi_piece_width(piece);
    const bool runs = piece->table_axis == TEMPI_RUN_AXIS;
    out->width = (int)width;
    out->first = (uint32_t)(piece->first / width);
    out->end = (uint32_t)(piece->end / width);
    out->naxes = 0;
    if (runs)
        push(out, piece->run / width, piece->table_in_dst ? 0 : width,
             piece->table_in_dst ? width : 0);
    else if (piece->run > width || piece->naxes == 0)
        push(out, piece->run / width, width, width);
    out->table_axis = runs ? 0 : piece->table_axis + out->naxes;
    for (int k = 0; k < piece->naxes; k++)
        push(out, piece->axes[k].n, piece->axes[k].d, piece->axes[k].s);
    set_groups(piece, out);
    out->form = form_of(piece, out);
}

/* ---- whole grids ----------------------------------------------------------------------------- */

static unsigned blocks_of(int64_t threads)
{
    return (unsigned)((threads + TEMPI_KERNEL_BLOCK - 1) / TEMPI_KERNEL_BLOCK);
}

/* Whether short runs are gathered from far apart. */
static bool gathers_far(const tempi_words *words)
{
    return words->naxes > 1 && (int64_t)words->axes[0].n * words->width <= FAR_RUN &&
           magnitude(words->axes[1].s) >= FAR_APART && magnitude(words->axes[1].d) < FAR_APART;
}

/* Blocks with a thread for each word, or for four where words are narrow. Times with whole grids
 * over those without, on an H200, of 1 to 128 MiB, cases of 4 us and more
 * (docs/data/gpu/nvidia-h200/whole-grids.json): words apart 0.82 to 1.05, median 0.94; short runs
 * gathered from far apart, from three rounds on, 0.83 to 1.00; narrow words from half of the cache
 * on 0.89 to 0.98; wide ones there 0.85 to 0.99, up to two rounds 0.91 to 0.99. */
static void set_whole(tempi_launch *launch, const tempi_words *words, int64_t all)
{
    const bool apart = are_apart(words), wide = words->width >= WIDE_WORD;
    launch->whole = blocks_of(apart || wide ? all : (all + ROUND_WORDS - 1) / ROUND_WORDS);
    if (apart)
        launch->when = TEMPI_WHOLE_ALWAYS;
    else if (!wide)
        launch->when = TEMPI_WHOLE_LARGE;
    else
        launch->when = gathers_far(words) ? TEMPI_WHOLE_LONG : TEMPI_WHOLE_SHORT_OR_LARGE;
}

/* ---- launches -------------------------------------------------------------------------------- */

static void put(tempi_launch *launch, uint64_t value)
{
    launch->params[launch->nparams++] = value;
}

/* Parameters: dst src first end naxes, `inner` axes with their divisions, the outermost one's
 * strides. */
static void put_box(tempi_launch *launch, const tempi_piece *piece, const tempi_words *words,
                    int inner)
{
    static const tempi_word_axis none;
    const tempi_word_axis *last = &words->axes[words->naxes - 1];
    put(launch, piece->dst);
    put(launch, piece->src);
    put(launch, words->first);
    put(launch, words->end);
    put(launch, (uint64_t)words->naxes);
    for (int k = 0; k < inner; k++) {
        const tempi_word_axis *axis = k < words->naxes - 1 ? &words->axes[k] : &none;
        put(launch, axis->n);
        put(launch, axis->magic);
        put(launch, axis->shift);
        put(launch, (uint64_t)axis->d);
        put(launch, (uint64_t)axis->s);
    }
    put(launch, (uint64_t)last->d);
    put(launch, (uint64_t)last->s);
}

/* Parameters: dst src first groups body end naxes, the inner axes with their strides on the side
 * that is not contiguous, the outermost one's stride. The groups start at word `body`. */
static void put_groups(tempi_launch *launch, const tempi_piece *piece, const tempi_words *words)
{
    static const tempi_word_axis none;
    const bool in_dst = words->groups == FORM_SCATTER;
    const tempi_word_axis *last = &words->axes[words->naxes - 1];
    const uint32_t head = words->lead ? GROUP_WORDS - words->lead : 0;
    const uint32_t all = words->end - words->first, body = head < all ? head : all;
    put(launch, piece->dst);
    put(launch, piece->src);
    put(launch, words->first);
    put(launch, (all - body) / GROUP_WORDS);
    put(launch, words->first + body);
    put(launch, words->end);
    put(launch, (uint64_t)words->naxes);
    for (int k = 0; k < STRIDED_AXES - 1; k++) {
        const tempi_word_axis *axis = k < words->naxes - 1 ? &words->axes[k] : &none;
        put(launch, axis->n);
        put(launch, axis->magic);
        put(launch, axis->shift);
        put(launch, (uint64_t)(in_dst ? axis->d : axis->s));
    }
    put(launch, (uint64_t)(in_dst ? last->d : last->s));
}

static int groups_kernel(const tempi_words *words, bool fits_32bit)
{
    if (words->groups == FORM_SCATTER)
        return fits_32bit ? TEMPI_KERNEL_SCATTER_W1_I32 : TEMPI_KERNEL_SCATTER_W1_I64;
    return (fits_32bit ? TEMPI_KERNEL_GATHER_W1_I32 : TEMPI_KERNEL_GATHER_W1_I64) +
           log2_ceil((uint32_t)words->width);
}

static int strided_kernel(int width, bool fits_32bit)
{
    const int of_index = log2_ceil((uint32_t)width);
    return (fits_32bit ? TEMPI_KERNEL_STRIDED_W1_I32 : TEMPI_KERNEL_STRIDED_W1_I64) + of_index;
}

static void put_table(tempi_launch *launch, const tempi_piece *piece, const tempi_words *words)
{
    put(launch, words->form);
    put(launch, piece->offsets);
    put(launch, piece->positions);
    put(launch, piece->guide);
    put(launch, piece->form.guide_shift);
    put(launch, (uint64_t)piece->start);
}

bool tempi_piece_launch(const tempi_piece *piece, int multiprocessors, tempi_launch *out)
{
    const bool has_table = piece->table_axis != TEMPI_NO_AXIS;
    const bool fits_32bit = tempi_piece_fits_32bit(piece);
    const int most = has_table ? TABLE_AXES : STRIDED_AXES;
    tempi_words words;
    tempi_words_of(piece, &words);
    if (words.naxes > most)
        return false;
    const int64_t each = words.groups ? GROUP_WORDS : 1, all = (int64_t)words.end - words.first;
    *out = (tempi_launch){.grid = tempi_cuda_grid((all + each - 1) / each, multiprocessors),
                          .words = (uint64_t)all,
                          .bytes = (uint64_t)(all * words.width),
                          .block = TEMPI_KERNEL_BLOCK};
    if (!has_table && words.groups) {
        out->kernel = groups_kernel(&words, fits_32bit);
        if (words.groups == FORM_SCATTER) { /* gathers take up to 50% longer by whole grids */
            out->when = TEMPI_WHOLE_ALWAYS;
            out->whole = blocks_of((all + each - 1) / each);
        }
        put_groups(out, piece, &words);
        return true;
    }
    put_box(out, piece, &words, most - 1);
    if (has_table) {
        out->kernel = fits_32bit ? TEMPI_KERNEL_TABLE_I32 : TEMPI_KERNEL_TABLE_I64;
        put_table(out, piece, &words);
    } else {
        out->kernel = strided_kernel(words.width, fits_32bit);
        set_whole(out, &words, all);
    }
    return true;
}

/* ---- transposes ------------------------------------------------------------------------------ */

/* The axis that is contiguous on one side and long enough for a tile; -1: none. */
static int dense_axis(const tempi_piece *piece, bool in_dst)
{
    for (int k = 0; k < piece->naxes; k++) {
        const tempi_piece_axis *axis = &piece->axes[k];
        if ((in_dst ? axis->d : axis->s) == piece->run && axis->n >= TILE_LEAST)
            return k;
    }
    return -1;
}

static int64_t tiles_along(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

/* The axes beside a and b, at most two: into out[0..2). False: there are more. */
static bool other_axes(const tempi_piece *piece, int a, int b, tempi_piece_axis out[2])
{
    int found = 0;
    out[0] = out[1] = (tempi_piece_axis){.n = 1};
    for (int k = 0; k < piece->naxes; k++) {
        if (k == a || k == b)
            continue;
        if (found == 2)
            return false;
        out[found++] = piece->axes[k];
    }
    return true;
}

bool tempi_piece_transpose(const tempi_piece *piece, int multiprocessors, tempi_launch *out)
{
    const int64_t width = tempi_piece_width(piece);
    tempi_piece_axis others[2];
    if (piece->table_axis != TEMPI_NO_AXIS || piece->run != width || width > WIDEST_TILED)
        return false;
    if (piece->first != 0 || piece->end != tempi_piece_size(piece))
        return false;
    const int a = dense_axis(piece, true), b = dense_axis(piece, false);
    if (a < 0 || b < 0 || a == b || !other_axes(piece, a, b, others))
        return false;
    const tempi_piece_axis *along = &piece->axes[a], *down = &piece->axes[b];
    /* A trimmed and split piece has fewer than 2^31 words, hence fewer tiles. */
    const int64_t ta = tiles_along(along->n), tb = tiles_along(down->n);
    const int64_t tiles = ta * tb * others[0].n * others[1].n;
    *out = (tempi_launch){.kernel = TEMPI_KERNEL_TRANSPOSE_W1_I64 + log2_ceil((uint32_t)width),
                          .grid = tempi_cuda_grid(tiles * TEMPI_KERNEL_BLOCK, multiprocessors),
                          .block = TEMPI_KERNEL_BLOCK};
    const uint64_t params[] = {piece->dst,
                               piece->src,
                               (uint64_t)tiles,
                               (uint64_t)along->n,
                               (uint64_t)down->n,
                               (uint64_t)ta,
                               (uint64_t)tb,
                               (uint64_t)along->s,
                               (uint64_t)down->d,
                               (uint64_t)others[0].n,
                               (uint64_t)others[0].d,
                               (uint64_t)others[0].s,
                               (uint64_t)others[1].d,
                               (uint64_t)others[1].s};
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        put(out, params[i]);
    return true;
}
