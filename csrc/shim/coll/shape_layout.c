#include "shim/coll/shape_layout.h"
#include "base/hash.h"
#include "base/lock.h"
#include "datatype/layout.h"

#include <string.h>

enum { CACHED = 256 };

/* A nest without its place. */
typedef struct form {
    int64_t run;
    int64_t ndims;
    struct {
        int64_t count, stride;
    } dims[TEMPI_NEST_DIMS];
} form;

static struct {
    tempi_lock lock;
    struct {
        form of;
        const tempi_layout *layout; /* NULL: unused */
    } all[CACHED];
} cache;

static form form_of(const tempi_nest_shape *shape)
{
    form f;
    memset(&f, 0, sizeof f);
    f.run = shape->run;
    f.ndims = shape->ndims;
    for (int d = 0; d < shape->ndims; ++d) {
        f.dims[d].count = shape->dims[d].count;
        f.dims[d].stride = shape->dims[d].stride;
    }
    return f;
}

static unsigned home(const form *f)
{
    const int64_t *words = (const int64_t *)(const void *)f;
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof *f / sizeof *words; ++i)
        hash = tempi_hash_mix(hash, (uint64_t)words[i]);
    return (unsigned)(hash % CACHED);
}

/* From the innermost dimension on. */
static tempi_layout *construct(const form *f)
{
    tempi_layout *made;
    if (tempi_layout_bytes(f->run, &made) != TEMPI_OK)
        return NULL;
    for (int64_t d = f->ndims - 1; d >= 0; --d) {
        tempi_layout *outer;
        const int status = tempi_layout_hvector(f->dims[d].count, 1, f->dims[d].stride, made,
                                                &outer);
        tempi_layout_free(made);
        if (status != TEMPI_OK)
            return NULL;
        made = outer;
    }
    return made;
}

static const tempi_layout *make(const form *f)
{
    const tempi_layout *canonical = NULL;
    tempi_layout *raw = construct(f);
    if (raw && tempi_layout_canonical(raw, NULL, NULL, &canonical) != TEMPI_OK)
        canonical = NULL;
    if (raw)
        tempi_layout_free(raw);
    return canonical;
}

const tempi_layout *tempi_shape_layout(const tempi_nest_shape *shape)
{
    const form f = form_of(shape);
    const unsigned at = home(&f);
    tempi_lock_acquire(&cache.lock);
    if (!cache.all[at].layout || memcmp(&cache.all[at].of, &f, sizeof f) != 0) {
        if (cache.all[at].layout)
            tempi_layout_release(cache.all[at].layout);
        cache.all[at].layout = make(&f);
        cache.all[at].of = f;
    }
    const tempi_layout *layout = cache.all[at].layout;
    if (layout)
        tempi_layout_retain(layout);
    tempi_lock_release(&cache.lock);
    return layout;
}

void tempi_shape_layout_clear(void)
{
    for (int i = 0; i < CACHED; ++i)
        if (cache.all[i].layout)
            tempi_layout_release(cache.all[i].layout);
    memset(&cache.all, 0, sizeof cache.all);
}
