/* nest.h: internals of the host packer: the description of a copy, and the kernels that do it.
 *
 * A box becomes a nest (fragment.c cuts the wanted fragment out of it), a nest becomes loops over
 * one kernel call (loop_plan.c). Kernels know neither packing nor unpacking: they copy from `src`
 * to `dst` with a stride on either side, so one kernel serves both directions.
 *
 * No kernel reads or writes a byte outside the runs: the adjacent bytes may belong to another
 * thread or to an unmapped page. */
#ifndef TEMPI_PACK_NEST_H
#define TEMPI_PACK_NEST_H
#include "pack/pack.h"

#include <stdatomic.h>
#include <stdbool.h>

/* A box, or a fragment of it, with the message's count as one more dimension. */
typedef struct tempi_nest {
    char *mem;
    char *packed;
    int64_t run;                /* 0: variable, from the table */
    const tempi_entry *entries; /* NULL: no table */
    int64_t nentries;
    int64_t bias;  /* entries[0].packed of the whole table; `packed` includes it */
    int32_t depth; /* number of dims outside the table */
    int32_t ndims;
    int32_t direction;
    bool nontemporal; /* these two as in tempi_loop */
    int64_t whole;
    tempi_dim dims[TEMPI_MAX_DIMS + 1];
} tempi_nest;

/* One loop: n steps, d bytes apart in the destination and s bytes in the source. */
typedef struct tempi_axis {
    int64_t n;
    int64_t d;
    int64_t s;
} tempi_axis;

/* The work of one kernel call: three nested loops over one run, innermost first. Loops that are not
 * needed have n == 1. */
typedef struct tempi_loop {
    const tempi_axis *axis; /* three of them */
    int64_t run;
    bool nontemporal; /* the caller wants such stores, whatever the size of the message */
    int64_t whole;    /* packed bytes of the message that this is a piece of; 0: all of it */
} tempi_loop;

typedef void (*tempi_loop_fn)(char *dst, const char *src, const tempi_loop *loop);

/* Alternative kernels for a loop: the first is the default, the others may be faster on this
 * processor (kernel_trials.h). */
enum { TEMPI_CANDIDATES = 8 };
typedef struct tempi_candidates {
    int n;
    tempi_loop_fn way[TEMPI_CANDIDATES];
} tempi_candidates;

/* Entries e[0..n) of a table, repeated along `outer`. With run == 0 the table has the lengths. */
typedef struct tempi_list {
    const tempi_entry *e;
    int64_t n;
    tempi_axis outer;
    int64_t run;
} tempi_list;

typedef void (*tempi_list_fn)(char *dst, const char *src, const tempi_list *list);

/* The kernels of one ISA. The choices are made once per nest, not once per call. */
typedef struct tempi_kernels {
    const char *name;
    bool permutes; /* packs and unpacks runs close together by permutes */
    void (*loop)(const tempi_loop *loop, tempi_candidates *out);
    tempi_list_fn (*list)(int64_t run, int direction);
    void (*copy)(char *dst, const char *src, int64_t n);
    void (*copy_nontemporal)(char *dst, const char *src, int64_t n);
} tempi_kernels;

const tempi_kernels *tempi_kernels_get(void);
/* Changes when a cached plan may be out of date: by the tests' tempi_kernels_use and
 * tempi_cache_assume. */
extern _Atomic unsigned tempi_kernels_epoch;

/* Copies a whole nest. */
void tempi_nest_copy(const tempi_nest *nest);
/* Copies a whole box that has no table and no dim of count 0, without building a nest; elements is
 * the message's count with its two strides. */
void tempi_box_copy(const tempi_box *box, const tempi_dim *elements, char *mem, char *packed,
                    int direction);
/* Copies one element of a layout of one box without a table, by a plan that is cached with the
 * layout; false: there is no plan, and nothing was copied. */
bool tempi_layout_copy(const tempi_layout *layout, char *mem, char *packed, int direction);
/* Copies the bytes [lo, hi) of the nest's packed span; lo may be negative, hi beyond the span. */
void tempi_nest_copy_range(tempi_nest *nest, int64_t lo, int64_t hi);

#endif
