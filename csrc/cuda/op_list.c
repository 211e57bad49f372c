#include "cuda/op_list.h"
#include "datatype/layout.h"

#include <stdlib.h>

typedef struct entry {
    const tempi_layout *layout;
    int64_t count;
    const void *mem;
    const void *to; /* the packed bytes; of a move its destination */
    int64_t first, n;
    const tempi_layout *into; /* of a move; else NULL */
    int64_t into_count;
    int32_t direction, method;
} entry;

struct tempi_op_list {
    int n;
    entry entries[];
};

static entry entry_of(const tempi_op *op)
{
    const tempi_op *into = op->into;
    return (entry){.layout = op->layout,
                   .count = op->count,
                   .mem = op->mem,
                   .to = into ? into->mem : op->packed,
                   .first = op->first,
                   .n = op->n,
                   .into = into ? into->layout : NULL,
                   .into_count = into ? into->count : 0,
                   .direction = op->direction,
                   .method = op->method};
}

static bool same(const entry *a, const entry *b)
{
    return a->mem == b->mem && a->to == b->to && a->layout == b->layout && a->into == b->into &&
           a->count == b->count && a->into_count == b->into_count && a->first == b->first &&
           a->n == b->n && a->direction == b->direction && a->method == b->method;
}

bool tempi_layout_is_lasting(const tempi_layout *layout)
{
    if (atomic_load_explicit(&tempi_layout_object_of(layout)->refs, memory_order_relaxed) == 0)
        return false; /* not canonical */
    for (int i = 0; i < layout->nboxes; ++i)
        if (layout->boxes[i].table)
            return false;
    return true;
}

tempi_op_list *tempi_op_list_new(const tempi_op *ops, int n)
{
    for (int i = 0; i < n; ++i)
        if (!tempi_layout_is_lasting(ops[i].layout) ||
            (ops[i].into && !tempi_layout_is_lasting(ops[i].into->layout)))
            return NULL;
    tempi_op_list *list = malloc(sizeof *list + (size_t)n * sizeof list->entries[0]);
    if (!list)
        return NULL;
    list->n = n;
    for (int i = 0; i < n; ++i) {
        list->entries[i] = entry_of(&ops[i]);
        (void)tempi_layout_retain(list->entries[i].layout);
        (void)tempi_layout_retain(list->entries[i].into);
    }
    return list;
}

bool tempi_op_list_is(const tempi_op_list *list, const tempi_op *ops, int n)
{
    if (!list || list->n != n)
        return false;
    for (int i = 0; i < n; ++i) {
        const entry one = entry_of(&ops[i]);
        if (!same(&list->entries[i], &one))
            return false;
    }
    return true;
}

void tempi_op_list_free(tempi_op_list *list)
{
    for (int i = 0; list && i < list->n; ++i) {
        tempi_layout_release(list->entries[i].layout);
        tempi_layout_release(list->entries[i].into);
    }
    free(list);
}
