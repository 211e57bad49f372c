/* plan_boxes.c: many pieces as one launch. The descriptor block:
 *
 *   boxes[n]      80 bytes each   its chunks, addresses and word width
 *   axes[...]     32 bytes each   box after box, innermost first
 *   map[cells]    4 bytes each    the box of chunk g << shift, for a block's look-up in one step
 */
#include "cuda/plan_piece.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_WORDS = 4 * TEMPI_KERNEL_BLOCK, MAP_CELLS = 4096 };

/* Layout shared with tempi/kernels/_boxes.py. */
typedef struct box_desc {
    uint64_t dst;
    uint64_t src;
    uint64_t offsets;
    uint64_t positions;
    uint64_t guide;
    uint32_t first;
    uint32_t end;
    uint32_t chunk;
    uint32_t axis;
    uint32_t naxes;
    uint32_t form;
    uint32_t guide_shift;
    uint32_t unused;
    uint64_t start;
} box_desc;

_Static_assert(sizeof(box_desc) == 80 && offsetof(box_desc, first) == 40 &&
                   offsetof(box_desc, start) == 72,
               "tempi/kernels/_boxes.py");
_Static_assert(sizeof(tempi_word_axis) == 32 && offsetof(tempi_word_axis, n) == 16,
               "tempi/kernels/_boxes.py");

typedef struct block {
    box_desc *boxes;
    tempi_word_axis *axes;
    uint32_t *map;
    uint32_t naxes;
    uint32_t chunks;
} block;

static void write_box(block *to, int i, const tempi_piece *piece)
{
    const bool table = piece->table_axis != TEMPI_NO_AXIS;
    tempi_words words;
    tempi_words_of(piece, &words);
    to->boxes[i] = (box_desc){.dst = piece->dst,
                              .src = piece->src,
                              .offsets = piece->offsets,
                              .positions = piece->positions,
                              .guide = piece->guide,
                              .first = words.first,
                              .end = words.end,
                              .chunk = to->chunks,
                              .axis = to->naxes,
                              .naxes = (uint32_t)words.naxes,
                              .form = words.form,
                              .guide_shift = table ? piece->form.guide_shift : 0,
                              .start = (uint64_t)piece->start};
    for (int k = 0; k < words.naxes; k++)
        to->axes[to->naxes++] = words.axes[k];
    to->chunks += (words.end - words.first + CHUNK_WORDS - 1) / CHUNK_WORDS;
}

/* Cell g: the last box that starts at or before chunk g << shift, plus a closing cell. */
static void write_map(const block *to, int nboxes, uint32_t shift, uint32_t cells)
{
    uint32_t box = 0;
    for (uint32_t g = 0; g < cells; g++) {
        while (box + 1 < (uint32_t)nboxes &&
               (g == cells - 1 || to->boxes[box + 1].chunk <= g << shift))
            box++;
        to->map[g] = box;
    }
}

static uint32_t count_chunks(const tempi_plan_room *room)
{
    uint32_t chunks = 0;
    for (int i = 0; i < room->npieces; i++) {
        const tempi_piece *piece = &room->pieces[i];
        const int64_t words = (piece->end - piece->first) / tempi_piece_width(piece);
        chunks += (uint32_t)((words + CHUNK_WORDS - 1) / CHUNK_WORDS);
    }
    return chunks;
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
    plan->nbytes = bytes;
    return true;
}

int tempi_plan_boxes(tempi_plan *plan, int multiprocessors)
{
    const tempi_plan_room *room = plan->room;
    const size_t n = (size_t)room->npieces;
    size_t axes = n; /* a run may be an axis */
    bool fits_32bit = true;
    for (size_t i = 0; i < n; i++) {
        axes += (size_t)room->pieces[i].naxes;
        fits_32bit = fits_32bit && tempi_piece_fits_32bit(&room->pieces[i]);
    }
    const uint32_t chunks = count_chunks(room);
    uint32_t shift = 0;
    while ((chunks - 1) >> shift >= MAP_CELLS)
        shift++;
    const uint32_t cells = ((chunks - 1) >> shift) + 2;
    const size_t axes_at = n * sizeof(box_desc), map_at = axes_at + axes * sizeof(tempi_word_axis);
    tempi_launch *launch = tempi_plan_add_launch(plan);
    if (!launch || !reserve(plan, map_at + cells * sizeof(uint32_t)))
        return TEMPI_ERR_MEMORY;
    char *const bytes = plan->bytes;
    block to = {
        .boxes = (void *)bytes, .axes = (void *)(bytes + axes_at), .map = (void *)(bytes + map_at)};
    for (int i = 0; i < room->npieces; i++)
        write_box(&to, i, &room->pieces[i]);
    /* No byte is left as it was: equal bursts have equal blocks (resident.h). */
    memset(to.axes + to.naxes, 0, (size_t)(bytes + map_at - (char *)(to.axes + to.naxes)));
    write_map(&to, room->npieces, shift, cells);
    *launch = (tempi_launch){.kernel = fits_32bit ? TEMPI_KERNEL_BOXES_I32 : TEMPI_KERNEL_BOXES_I64,
                             .grid = tempi_cuda_grid((int64_t)chunks * TEMPI_KERNEL_BLOCK,
                                                     multiprocessors),
                             .block = TEMPI_KERNEL_BLOCK,
                             .nparams = 5,
                             .params = {0, axes_at, map_at, shift, chunks}};
    for (int param = 0; param < 3; param++)
        plan->patches[plan->npatches++] = (tempi_plan_patch){plan->nlaunches - 1, param};
    return TEMPI_OK;
}
