/* plan_boxes.c: many pieces as one launch. The descriptor block:
 *
 *   boxes[n]      160 bytes each  its chunks, addresses, word width and four axes
 *   axes[...]     32 bytes each   the other axes, box after box, innermost first
 *   map[cells]    4 bytes each    the box of chunk g << shift: of every chunk, if there are few
 */
#include "cuda/plan_piece.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK_WORDS = 4 * TEMPI_KERNEL_BLOCK,
    MAP_CELLS = 4096,
    FOUR_AXES = 4,
    FORM_GUIDE_SHIFT = 24
};

/* Layout shared with tempi/kernels/_boxes.py. */
typedef struct box_axis {
    int64_t d;
    int64_t s;
    uint32_t n;
    uint32_t magic; /* 0 for the outermost axis: the quotient is 0 */
    uint32_t shift;
    uint32_t unused;
} box_axis;

typedef struct box_stride {
    uint32_t d;
    uint32_t s;
} box_stride;

typedef struct box_division {
    uint32_t n;
    uint32_t magic;
} box_division;

typedef struct box_desc {
    uint64_t dst;
    uint64_t src;
    uint32_t first;
    uint32_t end;
    uint32_t chunk;
    uint32_t form;
    box_stride low[FOUR_AXES];
    box_division division[FOUR_AXES - 1];
    uint32_t shifts; /* of the divisions, a byte each */
    uint32_t others; /* other axes: their number, 4 bits, and the first of them */
    box_stride high[FOUR_AXES];
    uint64_t offsets;
    uint64_t positions;
    uint64_t guide;
    uint64_t start;
} box_desc;

_Static_assert(sizeof(box_desc) == 160 && offsetof(box_desc, low) == 32 &&
                   offsetof(box_desc, division) == 64 && offsetof(box_desc, shifts) == 88 &&
                   offsetof(box_desc, high) == 96 && offsetof(box_desc, offsets) == 128,
               "tempi/kernels/_boxes.py");
_Static_assert(sizeof(box_axis) == 32 && offsetof(box_axis, n) == 16, "tempi/kernels/_boxes.py");
_Static_assert(TEMPI_PIECE_AXES + 1 - FOUR_AXES < 16, "four bits for the number of other axes");

typedef struct block {
    box_desc *boxes;
    box_axis *axes;
    uint32_t naxes;
    uint32_t chunks;
} block;

static box_axis axis_of(const tempi_words *words, int k)
{
    const tempi_word_axis *axis = &words->axes[k];
    const bool outermost = k == words->naxes - 1;
    return (box_axis){.d = axis->d,
                      .s = axis->s,
                      .n = axis->n,
                      .magic = outermost ? 0 : axis->magic,
                      .shift = outermost ? 0 : axis->shift};
}

static uint32_t high_half(int64_t stride)
{
    return (uint32_t)((uint64_t)stride >> 32);
}

/* The axes up to the fourth, without the division by the fourth. */
static void write_four(box_desc *box, const tempi_words *words, int n)
{
    for (int k = 0; k < n; k++) {
        const box_axis axis = axis_of(words, k);
        box->low[k] = (box_stride){(uint32_t)axis.d, (uint32_t)axis.s};
        box->high[k] = (box_stride){high_half(axis.d), high_half(axis.s)};
        if (k == FOUR_AXES - 1)
            return;
        box->division[k] = (box_division){axis.n, axis.magic};
        box->shifts |= axis.shift << 8 * k;
    }
}

/* A fourth axis that is not the outermost one, and those behind it, are other axes. */
static void write_axes(block *to, const tempi_words *words, box_desc *box)
{
    const int four = words->naxes <= FOUR_AXES ? words->naxes : FOUR_AXES - 1;
    write_four(box, words, four);
    box->others = to->naxes << 4 | (uint32_t)(words->naxes - four);
    for (int k = four; k < words->naxes; k++)
        to->axes[to->naxes++] = axis_of(words, k);
}

static void write_box(block *to, int i, const tempi_piece *piece)
{
    tempi_words words;
    tempi_words_of(piece, &words);
    const uint32_t span = words.end - words.first + words.lead;
    const uint32_t guide_shift = piece->table_axis != TEMPI_NO_AXIS ? piece->form.guide_shift : 0;
    to->boxes[i] = (box_desc){.dst = piece->dst,
                              .src = piece->src,
                              .first = words.first,
                              .end = words.end,
                              .chunk = to->chunks,
                              .form = words.form | guide_shift << FORM_GUIDE_SHIFT,
                              .offsets = piece->offsets,
                              .positions = piece->positions,
                              .guide = piece->guide,
                              .start = (uint64_t)piece->start};
    write_axes(to, &words, &to->boxes[i]);
    to->chunks += (span + CHUNK_WORDS - 1) / CHUNK_WORDS;
}

/* Cell g: the last box that starts at or before chunk g << shift, plus a closing cell. */
static void write_map(const block *to, uint32_t *map, int nboxes, uint32_t shift, uint32_t cells)
{
    uint32_t box = 0;
    for (uint32_t g = 0; g < cells; g++) {
        while (box + 1 < (uint32_t)nboxes &&
               (g == cells - 1 || to->boxes[box + 1].chunk <= g << shift))
            box++;
        map[g] = box;
    }
}

static bool reserve(tempi_plan *plan, size_t bytes)
{
    if (bytes > plan->room->most_bytes) {
        void *larger = realloc(plan->bytes, bytes);
        if (!larger)
            return false;
        plan->bytes = larger;
        plan->room->most_bytes = bytes;
    }
    return true;
}

/* Writes boxes and axes; returns their end. */
static size_t write_boxes(const tempi_plan *plan, block *out)
{
    const tempi_plan_room *room = plan->room;
    char *const bytes = plan->bytes;
    const size_t axes_at = (size_t)room->npieces * sizeof(box_desc);
    *out = (block){.boxes = (void *)bytes, .axes = (void *)(bytes + axes_at)};
    for (int i = 0; i < room->npieces; i++)
        write_box(out, i, &room->pieces[i]);
    return axes_at + out->naxes * sizeof(box_axis);
}

/* The kernel for all pieces. */
static int kernel_for(const tempi_plan_room *room)
{
    bool fits_32bit = true, tables = false;
    for (int i = 0; i < room->npieces; i++) {
        fits_32bit = fits_32bit && tempi_piece_fits_32bit(&room->pieces[i]);
        tables = tables || room->pieces[i].table_axis != TEMPI_NO_AXIS;
    }
    if (tables)
        return fits_32bit ? TEMPI_KERNEL_TABLES_I32 : TEMPI_KERNEL_TABLES_I64;
    return fits_32bit ? TEMPI_KERNEL_BOXES_I32 : TEMPI_KERNEL_BOXES_I64;
}

static uint64_t bytes_of(const tempi_plan_room *room)
{
    uint64_t bytes = 0;
    for (int i = 0; i < room->npieces; i++)
        bytes += (uint64_t)(room->pieces[i].end - room->pieces[i].first);
    return bytes;
}

int tempi_plan_boxes(tempi_plan *plan, int multiprocessors)
{
    const tempi_plan_room *room = plan->room;
    const size_t n = (size_t)room->npieces;
    size_t axes = n; /* a run may be an axis */
    for (size_t i = 0; i < n; i++)
        axes += (size_t)room->pieces[i].naxes;
    tempi_launch *launch = tempi_plan_add_launch(plan);
    if (!launch || !reserve(plan, n * sizeof(box_desc) + axes * sizeof(box_axis) +
                                      (MAP_CELLS + 1) * sizeof(uint32_t)))
        return TEMPI_ERR_MEMORY;
    block to;
    const size_t map_at = write_boxes(plan, &to);
    uint32_t shift = 0;
    while ((to.chunks - 1) >> shift >= MAP_CELLS)
        shift++;
    const uint32_t cells = ((to.chunks - 1) >> shift) + 2;
    write_map(&to, (void *)((char *)plan->bytes + map_at), room->npieces, shift, cells);
    plan->nbytes = map_at + cells * sizeof(uint32_t);
    *launch = (tempi_launch){.kernel = kernel_for(room),
                             .grid = tempi_cuda_grid((int64_t)to.chunks * TEMPI_KERNEL_BLOCK,
                                                     multiprocessors),
                             .when = TEMPI_WHOLE_LARGE,
                             .whole = to.chunks,
                             .words = (uint64_t)to.chunks * CHUNK_WORDS,
                             .bytes = bytes_of(room),
                             .block = TEMPI_KERNEL_BLOCK,
                             .nparams = 5,
                             .params = {0, n * sizeof(box_desc), map_at, shift, to.chunks}};
    for (int param = 0; param < 3; param++)
        plan->patches[plan->npatches++] = (tempi_plan_patch){plan->nlaunches - 1, param};
    return TEMPI_OK;
}
