/* datatype/intern.c: one hash table of all canonical layouts, under one lock.
 *
 * References are counted under the lock: the last release must not race with a look-up that finds
 * the same object. Look-ups happen once per datatype, so the lock is never contended for long; long
 * tables are compared inside it, but only for equal hashes. */
#include "datatype/intern.h"
#include "base/hash.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tempi_layout_object **buckets;
static size_t nbuckets; /* a power of two, or 0 */
static int64_t alive;

static uint64_t table_hash(const tempi_table *table, bool variable)
{
    /* Four lanes: one chain of multiplications would take 5 ns an entry. */
    uint64_t lane[4] = {1, 2, 3, 4};
    const int64_t n = table->n + (variable ? 1 : 0);
    const tempi_entry *e = table->entries;
    int64_t i = 0;
    for (; i + 2 <= n; i += 2) {
        lane[0] = tempi_hash_mix(lane[0], (uint64_t)e[i].offset);
        lane[1] = tempi_hash_mix(lane[1], (uint64_t)e[i].packed);
        lane[2] = tempi_hash_mix(lane[2], (uint64_t)e[i + 1].offset);
        lane[3] = tempi_hash_mix(lane[3], (uint64_t)e[i + 1].packed);
    }
    if (i < n)
        lane[0] = tempi_hash_mix(tempi_hash_mix(lane[0], (uint64_t)e[i].offset),
                                 (uint64_t)e[i].packed);
    return tempi_hash_mix(tempi_hash_mix(tempi_hash_mix(lane[0], lane[1]), lane[2]), lane[3]);
}

static uint64_t layout_hash(const tempi_layout *layout)
{
    uint64_t hash = tempi_hash_mix(tempi_hash_mix(tempi_hash_mix(0, (uint64_t)layout->size),
                                                  (uint64_t)layout->lb),
                                   (uint64_t)layout->extent);
    const tempi_table *seen = NULL;
    uint64_t of_seen = 0;
    for (int32_t i = 0; i < layout->nboxes; i++) {
        const tempi_box *box = &layout->boxes[i];
        hash = tempi_hash_mix(tempi_hash_mix(tempi_hash_mix(hash, (uint64_t)box->offset),
                                             (uint64_t)box->packed),
                              (uint64_t)box->run);
        hash = tempi_hash_mix(tempi_hash_mix(hash, (uint64_t)box->ndims), (uint64_t)box->space);
        for (int d = 0; d < box->ndims; d++) {
            hash = tempi_hash_mix(hash, (uint64_t)box->dims[d].count);
            hash = tempi_hash_mix(hash, (uint64_t)box->dims[d].stride);
            hash = tempi_hash_mix(hash, (uint64_t)box->dims[d].packed_stride);
        }
        if (box->table && box->table != seen) {
            seen = box->table;
            of_seen = table_hash(seen, box->run == 0);
        }
        if (box->table)
            hash = tempi_hash_mix(hash, of_seen);
    }
    return hash;
}

bool tempi_layout_equal(const tempi_layout *a, const tempi_layout *b)
{
    if (a == b)
        return true;
    if (a->size != b->size || a->lb != b->lb || a->extent != b->extent || a->nboxes != b->nboxes)
        return false;
    for (int32_t i = 0; i < a->nboxes; i++) {
        const tempi_box *x = &a->boxes[i], *y = &b->boxes[i];
        if (x->offset != y->offset || x->packed != y->packed || !tempi_box_same_shape(x, y))
            return false;
    }
    return true;
}

/* Doubles the table; out of memory leaves it unchanged. */
static void grow(void)
{
    const size_t want = nbuckets ? nbuckets * 2 : FIRST_BUCKETS;
    tempi_layout_object **fresh = calloc(want, sizeof(tempi_layout_object *));
    if (!fresh)
        return;
    for (size_t i = 0; i < nbuckets; i++) {
        for (tempi_layout_object *object = buckets[i], *next; object; object = next) {
            next = object->next;
            object->next = fresh[object->hash & (want - 1)];
            fresh[object->hash & (want - 1)] = object;
        }
    }
    free(buckets);
    buckets = fresh;
    nbuckets = want;
}

const tempi_layout *tempi_intern(tempi_layout_object *object)
{
    object->hash = layout_hash(&object->pub);
    pthread_mutex_lock(&lock);
    if (nbuckets) {
        tempi_layout_object *found = buckets[object->hash & (nbuckets - 1)];
        while (found &&
               (found->hash != object->hash || !tempi_layout_equal(&found->pub, &object->pub)))
            found = found->next;
        if (found) {
            atomic_fetch_add_explicit(&found->refs, 1, memory_order_relaxed);
            pthread_mutex_unlock(&lock);
            tempi_layout_free(&object->pub);
            return &found->pub;
        }
    }
    if ((size_t)alive >= nbuckets)
        grow();
    atomic_store_explicit(&object->refs, 1, memory_order_relaxed);
    if (nbuckets) { /* else out of memory: the layout lives, unshared */
        object->next = buckets[object->hash & (nbuckets - 1)];
        buckets[object->hash & (nbuckets - 1)] = object;
    }
    alive++;
    pthread_mutex_unlock(&lock);
    return &object->pub;
}

const tempi_layout *tempi_layout_retain(const tempi_layout *layout)
{
    if (layout) /* the caller holds a reference, so it cannot reach zero meanwhile */
        atomic_fetch_add_explicit(&tempi_layout_object_of(layout)->refs, 1, memory_order_relaxed);
    return layout;
}

void tempi_layout_release(const tempi_layout *layout)
{
    if (!layout)
        return;
    tempi_layout_object *object = tempi_layout_object_of(layout);
    /* Only the release of the last reference needs the lock: while others remain, look-ups are
     * safe. */
    int64_t held = atomic_load_explicit(&object->refs, memory_order_relaxed);
    while (held > 1)
        if (atomic_compare_exchange_weak_explicit(&object->refs, &held, held - 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return;
    pthread_mutex_lock(&lock);
    const bool last = atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) == 1;
    if (last) {
        alive--;
        for (tempi_layout_object **at = nbuckets ? &buckets[object->hash & (nbuckets - 1)] : NULL;
             at && *at; at = &(*at)->next) {
            if (*at == object) {
                *at = object->next;
                break;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    if (last)
        tempi_layout_free(&object->pub);
}

int64_t tempi_layout_alive(void)
{
    pthread_mutex_lock(&lock);
    const int64_t n = alive;
    pthread_mutex_unlock(&lock);
    return n;
}
