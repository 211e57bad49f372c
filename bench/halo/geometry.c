/* geometry.c: the process grid, the neighbours, their regions and datatypes. */
#include "halo.h"

#include <limits.h>
#include <stdlib.h>

/* Direction d of 27 is the offset (z, y, x), each -1, 0 or 1; 13 is the rank itself. */
static void direction_offset(int d, int offset[AXES])
{
    offset[0] = d / 9 - 1;
    offset[1] = d / 3 % 3 - 1;
    offset[2] = d % 3 - 1;
}

static int neighbour(const struct halo *h, const int offset[AXES])
{
    int at[AXES], rank;
    for (int a = 0; a < AXES; a++) {
        at[a] = h->coords[a] + offset[a];
        if (!h->options.periodic && (at[a] < 0 || at[a] >= h->grid[a]))
            return MPI_PROC_NULL;
    }
    MPI_Cart_rank(h->comm, at, &rank);
    return rank;
}

/* The regions sent to and received from the neighbour at `offset`. */
static void regions(const struct halo *h, const int offset[AXES], struct region *inner,
                    struct region *outer)
{
    const int r = h->options.radius;
    for (int a = 0; a < AXES; a++) {
        const int n = h->options.points[a];
        inner->size[a] = outer->size[a] = offset[a] == 0 ? n : r;
        inner->start[a] = offset[a] > 0 ? n : r;
        outer->start[a] = offset[a] < 0 ? 0 : offset[a] > 0 ? n + r : r;
    }
}

static MPI_Datatype region_type(const struct halo *h, const struct region *region)
{
    const int fields = h->options.combine ? h->options.fields : 1;
    int sizes[AXES + 1] = {fields, h->dims[0], h->dims[1], h->dims[2]};
    int subsizes[AXES + 1] = {fields, region->size[0], region->size[1], region->size[2]};
    int starts[AXES + 1] = {0, region->start[0], region->start[1], region->start[2]};
    const int skip = h->options.combine ? 0 : 1;
    MPI_Datatype type;
    MPI_Type_create_subarray(AXES + 1 - skip, sizes + skip, subsizes + skip, starts + skip,
                             MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Adds all messages of one direction; different fields share the datatypes. */
static void add_direction(struct halo *h, int d)
{
    int offset[AXES];
    direction_offset(d, offset);
    const int peer = neighbour(h, offset);
    if (peer == MPI_PROC_NULL)
        return;
    struct message m = {.peer = peer, .fields = h->options.combine ? h->options.fields : 1};
    regions(h, offset, &m.inner, &m.outer);
    m.send_type = region_type(h, &m.inner);
    m.receive_type = region_type(h, &m.outer);
    m.bytes = sizeof(double) * (size_t)m.fields * (size_t)m.inner.size[0] *
              (size_t)m.inner.size[1] * (size_t)m.inner.size[2];
    if (m.bytes > INT_MAX)
        fail("a message of %zu bytes is too large to be packed by hand", m.bytes);
    for (int f = 0; f < h->options.fields; f += m.fields) {
        m.field = f;
        m.send_tag = d * h->options.fields + f;
        m.receive_tag = (DIRECTIONS - 1 - d) * h->options.fields + f;
        m.send_staging = h->options.memory->staging(m.bytes);
        m.receive_staging = h->options.memory->staging(m.bytes);
        h->message[h->messages++] = m;
    }
}

static void setup_grid(struct halo *h)
{
    int periods[AXES], product = 1;
    for (int a = 0; a < AXES; a++) {
        h->grid[a] = h->options.grid[a];
        periods[a] = h->options.periodic;
        product *= h->grid[a];
    }
    MPI_Comm_size(MPI_COMM_WORLD, &h->ranks);
    if (product == 0) {
        MPI_Dims_create(h->ranks, AXES, h->grid);
    } else if (product != h->ranks) {
        int rank;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (rank == 0)
            fprintf(stderr, "halo: a grid of %dx%dx%d needs %d ranks, there are %d\n", h->grid[0],
                    h->grid[1], h->grid[2], product, h->ranks);
        MPI_Finalize();
        exit(2);
    }
    MPI_Cart_create(MPI_COMM_WORLD, AXES, h->grid, periods, 0, &h->comm);
    MPI_Comm_rank(h->comm, &h->rank);
    MPI_Cart_coords(h->comm, h->rank, AXES, h->coords);
}

static void setup_fields(struct halo *h)
{
    h->cells = 1;
    for (int a = 0; a < AXES; a++) {
        h->dims[a] = h->options.points[a] + 2 * h->options.radius;
        h->cells *= (size_t)h->dims[a];
    }
    const size_t bytes = h->cells * (size_t)h->options.fields * sizeof(double);
    const char *missing = h->options.memory->start ? h->options.memory->start(h->comm) : NULL;
    if (missing)
        fail("rank %d: no %s memory: %s", h->rank, h->options.memory->name, missing);
    h->data = h->options.memory->allocate(bytes);
    if (!h->data)
        fail("rank %d has no %s memory for %zu bytes", h->rank, h->options.memory->name, bytes);
    h->host = h->options.memory->copy ? checked_alloc(bytes) : h->data;
}

void halo_setup(struct halo *h, const struct options *options)
{
    *h = (struct halo){.options = *options};
    setup_grid(h);
    setup_fields(h);
    const size_t most = (DIRECTIONS - 1) * (size_t)options->fields;
    h->message = checked_alloc(most * sizeof *h->message);
    h->requests = checked_alloc(2 * most * sizeof *h->requests);
    for (int d = 0; d < DIRECTIONS; d++)
        if (d != CENTRE)
            add_direction(h, d);
    options->exchange->setup(h);
}

void halo_free(struct halo *h)
{
    h->options.exchange->free(h);
    for (int i = 0; i < h->messages; i++) {
        struct message *m = &h->message[i];
        if (m->field == 0) {
            MPI_Type_free(&m->send_type);
            MPI_Type_free(&m->receive_type);
        }
        h->options.memory->staging_release(m->send_staging);
        h->options.memory->staging_release(m->receive_staging);
    }
    free(h->message);
    free(h->requests);
    if (h->host != h->data)
        free(h->host);
    h->options.memory->release(h->data);
    MPI_Comm_free(&h->comm);
}
