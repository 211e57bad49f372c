#include "shim/p2p/persistent_choice.h"
#include "base/stats.h"
#include "base/thread.h"
#include "shim/impl.h"

#include <stdlib.h>

/* Both sides must find the same word, though they ask at different moments; and whether a cache is
 * shared changes. */
static int lasting(int class)
{
    return class == TEMPI_PEER_OTHER_LLC ? TEMPI_PEER_NODE : class;
}

tempi_persistent_choice *tempi_persistent_choice_make(const tempi_chooser *chooser, int class,
                                                      tempi_operation operation, MPI_Request packed)
{
    tempi_persistent_choice *choice = calloc(1, sizeof *choice);
    if (!choice)
        return NULL;
    tempi_chooser_copy(&choice->chooser, chooser);
    choice->class = lasting(class);
    choice->operation = operation;
    choice->packed = packed;
    return choice;
}

void tempi_persistent_choice_free(tempi_persistent_choice *choice)
{
    if (!choice)
        return;
    if (choice->packed != MPI_REQUEST_NULL)
        tempi_lib.Request_free(&choice->packed);
    tempi_chooser_clear(&choice->chooser);
    free(choice);
}

static int class_of(const void *whom, int64_t bytes)
{
    (void)bytes;
    return *(const int *)whom;
}

static bool is_not_self(const void *whom)
{
    (void)whom;
    return false;
}

static bool acts(tempi_persistent_choice *choice, tempi_op *op)
{
    static const tempi_query_peer peer = {.class = class_of, .is_self = is_not_self};
    const uint64_t key = tempi_repeated_key(0, 0, 0); /* the only one of this chooser */
    const int method = tempi_choose_again(&choice->chooser, choice->operation, key);
    op->streamed = method == TEMPI_MESSAGE_STREAMED;
    if (method != TEMPI_MESSAGE_USUAL)
        return method != TEMPI_MESSAGE_LIBRARY;
    tempi_query query = {.operation = choice->operation,
                         .bytes = op->n,
                         .peer = &peer,
                         .whom = &choice->class,
                         .streamed = &op->streamed,
                         .posted = true};
    return tempi_choose_noted(&choice->chooser, &query, key);
}

void tempi_persistent_choice_begin(tempi_persistent_choice *choice, tempi_op *op)
{
    choice->takes_packed = choice->packed != MPI_REQUEST_NULL && !tempi_this_thread.disabled &&
                           acts(choice, op);
    if (choice->takes_packed)
        return;
    tempi_stat_add(TEMPI_STAT_calls_seen, 1);
    tempi_stat_add(TEMPI_STAT_fallback_rule, 1);
}
