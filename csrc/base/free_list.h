/* Objects of one kind that are not in use. The first word of each holds the list's link. */
#ifndef TEMPI_BASE_FREE_LIST_H
#define TEMPI_BASE_FREE_LIST_H

#include "base/lock.h"

#include <limits.h>
#include <stddef.h>

enum { TEMPI_FREE_LIST_ANY = INT_MAX };

/* Zero at first. */
typedef struct tempi_free_list {
    tempi_lock lock;
    void *first;
    int n;
} tempi_free_list;

/* NULL: there is none. */
static inline void *tempi_free_list_take(tempi_free_list *list)
{
    tempi_lock_acquire(&list->lock);
    void *object = list->first;
    if (object) {
        list->first = *(void **)object;
        --list->n;
    }
    tempi_lock_release(&list->lock);
    return object;
}

/* False: it has `most` already. */
static inline bool tempi_free_list_give(tempi_free_list *list, void *object, int most)
{
    tempi_lock_acquire(&list->lock);
    const bool room = list->n < most;
    if (room) {
        *(void **)object = list->first;
        list->first = object;
        ++list->n;
    }
    tempi_lock_release(&list->lock);
    return room;
}

#endif
