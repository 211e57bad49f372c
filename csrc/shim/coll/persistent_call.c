#include "shim/coll/persistent_call.h"
#include "shim/type/types.h"

#include <stdlib.h>
#include <string.h>

static bool copy_numbers(tempi_numbers *numbers, int n, void **copy)
{
    if (!numbers->of)
        return true;
    const size_t bytes = (size_t)n * (numbers->wide ? sizeof(int64_t) : sizeof(int));
    if (!(*copy = malloc(bytes + 1)))
        return false;
    memcpy(*copy, numbers->of, bytes);
    numbers->of = *copy;
    return true;
}

static bool own_type(MPI_Datatype type, MPI_Datatype *own)
{
    MPI_Datatype made = type;
    if (type != MPI_DATATYPE_NULL && !tempi_type_named(type) &&
        tempi_lib.Type_dup(type, &made) != MPI_SUCCESS)
        return false;
    *own = made;
    return true;
}

/* Those of blocks that go nowhere, or stay, may be anything. */
static bool own_types(tempi_persistent_call *k, int which, const tempi_blocks *side, int n)
{
    const tempi_edges *edges = side->edges;
    tempi_bounce_argument *buffer = &k->buffers[which];
    const MPI_Datatype *given = buffer->types;
    if (edges->n == 0 || !buffer->does)
        return true;
    if (!given)
        return own_type(buffer->type, &k->type[which]) && (buffer->type = k->type[which], true);
    MPI_Datatype *own = k->types[which] = malloc(((size_t)n + 1) * sizeof *own);
    if (!own)
        return false;
    for (int i = 0; i < n; ++i)
        own[i] = MPI_DATATYPE_NULL;
    k->ntypes[which] = n;
    buffer->types = own;
    for (int i = 0; i < edges->n; ++i)
        if (!own_type(given[edges->block[i]], &own[edges->block[i]]))
            return false;
    return true;
}

static bool keep_side(tempi_persistent_call *k, const tempi_blocks *side,
                      const tempi_bounce_argument *buffers)
{
    const int which = (int)(side->buffer - buffers);
    int n = 0;
    for (int i = 0; i < side->edges->n; ++i)
        n = side->edges->block[i] >= n ? side->edges->block[i] + 1 : n;
    if (k->buffers[which].does || k->counts[which] || k->types[which])
        return true; /* in place: both sides have this buffer */
    k->buffers[which] = *side->buffer;
    return copy_numbers(&k->buffers[which].counts, n, &k->counts[which]) &&
           copy_numbers(&k->buffers[which].displacements, n, &k->displacements[which]) &&
           own_types(k, which, side, n);
}

static void free_type(MPI_Datatype *type)
{
    if (*type != MPI_DATATYPE_NULL && !tempi_type_named(*type))
        tempi_lib.Type_free(type);
}

void tempi_persistent_call_free(tempi_persistent_call *k)
{
    if (k)
        tempi_edges_free(&k->one);
    for (int which = 0; k && which < 2; ++which) {
        free_type(&k->type[which]);
        for (int i = 0; i < k->ntypes[which]; ++i)
            free_type(&k->types[which][i]);
        free(k->types[which]);
        free(k->counts[which]);
        free(k->displacements[which]);
    }
    free(k);
}

tempi_persistent_call *tempi_persistent_call_make(const tempi_collective *call,
                                                  const tempi_bounce_argument *buffers,
                                                  const tempi_blocks *out, const tempi_blocks *in)
{
    tempi_persistent_call *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->call = *call;
    k->type[0] = k->type[1] = MPI_DATATYPE_NULL;
    k->buffers[0] = (tempi_bounce_argument){.times = buffers[0].times};
    k->buffers[1] = (tempi_bounce_argument){.times = buffers[1].times};
    if (keep_side(k, out, buffers) && keep_side(k, in, buffers))
        return k;
    tempi_persistent_call_free(k);
    return NULL;
}
