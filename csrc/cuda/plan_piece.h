/* cuda/plan_piece.h: the planner's own unit of work.
 *
 * A piece is the bytes [first, end) of a perfect nest: a run of contiguous bytes under axes,
 * innermost first, each with a stride in the destination and one in the source. Bytes are numbered
 * in the order of the nest, which is the order of the packed stream. At most one axis is a table:
 * on its memory side a look-up replaces the stride. With runs of variable length the table is the
 * run itself.
 *
 *   box of an op -> piece -> trimmed (no axis that [first, end) does not cross)
 *                -> split (below 2^31 words) -> a copy, a launch, or a descriptor
 */
#ifndef TEMPI_CUDA_PLAN_PIECE_H
#define TEMPI_CUDA_PLAN_PIECE_H
#include "cuda/plan.h"

enum {
    TEMPI_PIECE_AXES = TEMPI_MAX_DIMS + 2, /* a box's dims, its table, the message's count */
    TEMPI_NO_AXIS = -1,
    TEMPI_RUN_AXIS = -2,  /* the table's lengths are the run */
    TEMPI_WORDS_LOG2 = 30 /* a launch has fewer than 2^31 words, with room for the last step */
};

typedef struct tempi_piece_axis {
    int64_t n;
    int64_t d; /* bytes in the destination */
    int64_t s; /* bytes in the source */
    int64_t p; /* bytes in the packed stream */
} tempi_piece_axis;

typedef struct tempi_piece {
    uint64_t dst;
    uint64_t src;
    int64_t run;
    int64_t first;
    int64_t end;
    int naxes;
    int table_axis;
    bool table_in_dst; /* the table's memory side is the destination */
    tempi_piece_axis axes[TEMPI_PIECE_AXES];
    const tempi_entry *entries; /* the table on the host, from where the axis starts */
    uint64_t offsets;           /* device address of its offsets, likewise */
    uint64_t positions;         /* of its packed positions; 0: the axis has a packed stride */
    uint64_t guide;
    int64_t start;         /* packed byte of the table at which the run axis starts */
    tempi_table_form form; /* if there is a table axis */
} tempi_piece;

/* The whole box in `count` elements at mem, as a piece: src is the start of its memory, dst is 0,
 * and the axes have their memory strides in both d and s. *empty: the box has no bytes. */
int tempi_piece_of_box(const tempi_layout *layout, const tempi_box *box, int64_t count,
                       uint64_t mem, const tempi_plan_hooks *hooks, tempi_piece *piece,
                       bool *empty);
/* Position in the packed stream of the piece that tempi_piece_of_box makes of the box. */
static inline int64_t tempi_box_start(const tempi_box *box)
{
    return box->packed + (box->table && box->table->n > 0 ? box->table->entries[0].packed : 0);
}
/* Bytes of the whole nest. */
int64_t tempi_piece_size(const tempi_piece *piece);
/* The number of the nest's bytes before position x of its packed span. */
int64_t tempi_piece_before(const tempi_piece *piece, int64_t x);
/* Merges adjacent axes where possible. */
void tempi_piece_fold(tempi_piece *piece);
/* Drops the parts of the outer axes outside [first, end). */
void tempi_piece_trim(tempi_piece *piece);
/* Advances the piece's start along axis k (or along the run, TEMPI_RUN_AXIS) by i indices. */
void tempi_piece_shift(tempi_piece *piece, int k, int64_t i);
/* Bytes of the widest word that divides all of the piece: 1, 2, 4, 8 or 16. */
int tempi_piece_width(const tempi_piece *piece);
/* Whether it is one contiguous segment on both sides. */
bool tempi_piece_contiguous(const tempi_piece *piece);
/* Whether all offsets from dst and src fit in 32 bits. */
bool tempi_piece_fits_32bit(const tempi_piece *piece);

/* ---- lists ----------------------------------------------------------------------------------- */

/* A plan's own memory, which grows and is reused. */
typedef struct tempi_plan_room {
    tempi_piece *pieces;
    int npieces;
    int most_pieces;
    int most_copies;
    int most_launches;
    size_t most_bytes;
} tempi_plan_room;

/* Space for one more in *array; false: out of memory. */
bool tempi_plan_grow(void **array, int *most, int n, size_t each);
/* Adds the piece, trimmed, folded and split into parts of fewer than 2^31 words. */
int tempi_plan_add_piece(tempi_plan *plan, const tempi_piece *piece);
/* Turns the pieces since `before` into a copy if they form one contiguous segment. */
int tempi_plan_take_copy(tempi_plan *plan, int before, bool by_kernel);
/* Space for a launch at the end of the list; NULL: out of memory. */
tempi_launch *tempi_plan_add_launch(tempi_plan *plan);
/* Turns the plan's pieces into launches. */
int tempi_plan_finish(tempi_plan *plan, const tempi_plan_hooks *hooks);
/* Turns all pieces into one launch with descriptors. */
int tempi_plan_boxes(tempi_plan *plan, int multiprocessors);
/* Empties the plan and allocates its room; false: out of memory. */
bool tempi_plan_reset(tempi_plan *plan);

/* ---- launches of pieces ---------------------------------------------------------------------- */

/* One axis as kernels take it: counts in words, and the division by n (tempi/kernels/_place.py). */
typedef struct tempi_word_axis {
    int64_t d;
    int64_t s;
    uint32_t n;
    uint32_t magic;
    uint32_t shift;
    uint32_t unused;
} tempi_word_axis;

/* A piece in words. */
typedef struct tempi_words {
    uint32_t first;
    uint32_t end;
    uint32_t form;   /* tempi/kernels/_move.py */
    uint32_t groups; /* its bits of groups; 0: none */
    uint32_t lead;   /* words between the start of the first group and the first word */
    int naxes;       /* at least one */
    int table_axis;
    int width;
    tempi_word_axis axes[TEMPI_PIECE_AXES + 1];
} tempi_words;

void tempi_words_of(const tempi_piece *piece, tempi_words *out);
/* Makes a launch with scalar parameters; false: the piece has too many axes. */
bool tempi_piece_launch(const tempi_piece *piece, int multiprocessors, tempi_launch *out);
/* Makes a tiled transpose; false if the piece is no transpose, or too small to benefit. */
bool tempi_piece_transpose(const tempi_piece *piece, int multiprocessors, tempi_launch *out);

/* Adds a strided copy (plan.h: tempi_cuda_plan_strided). */
int tempi_plan_add_move(tempi_plan *plan, const tempi_side *src, const tempi_side *dst, int64_t n,
                        const tempi_plan_hooks *hooks);

#endif
