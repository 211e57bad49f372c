/* typed.c: the exchange with datatypes: nonblocking messages, persistent ones, partitioned ones, or
 * one collective. */
#include "halo.h"

#include <stdlib.h>
#include <string.h>

static double *field_of(const struct halo *h, const struct message *m)
{
    return h->data + (size_t)m->field * h->cells;
}

/* ---- Irecv, Isend, Waitall ------------------------------------------------------------------- */

static void exchange_isend(struct halo *h, enum subject subject, double seconds[PHASES])
{
    (void)subject;
    const double t0 = now();
    for (int i = 0; i < h->messages; i++) {
        const struct message *m = &h->message[i];
        MPI_Irecv(field_of(h, m), 1, m->receive_type, m->peer, m->receive_tag, h->comm,
                  &h->requests[i]);
    }
    const double t1 = now();
    for (int i = 0; i < h->messages; i++) {
        const struct message *m = &h->message[i];
        MPI_Isend(field_of(h, m), 1, m->send_type, m->peer, m->send_tag, h->comm,
                  &h->requests[h->messages + i]);
    }
    const double t2 = now();
    MPI_Waitall(2 * h->messages, h->requests, MPI_STATUSES_IGNORE);
    set_phases(seconds, t0, t1, t2, now());
}

/* ---- Recv_init, Send_init; then Startall of the receives, of the sends, and Waitall ---------- */

/* Each subject has its own requests: tempi's were made by tempi, the library's without it. */
static MPI_Request *persistent_requests(struct halo *h, enum subject subject,
                                        void (*make)(const struct halo *, const struct message *,
                                                     MPI_Request *, MPI_Request *))
{
    if (h->persistent[subject])
        return h->persistent[subject];
    MPI_Request *made = checked_alloc(2 * (size_t)h->messages * sizeof *made);
    for (int i = 0; i < h->messages; i++)
        make(h, &h->message[i], &made[i], &made[h->messages + i]);
    h->persistent[subject] = made;
    return made;
}

static void make_persistent(const struct halo *h, const struct message *m, MPI_Request *receive,
                            MPI_Request *send)
{
    MPI_Recv_init(field_of(h, m), 1, m->receive_type, m->peer, m->receive_tag, h->comm, receive);
    MPI_Send_init(field_of(h, m), 1, m->send_type, m->peer, m->send_tag, h->comm, send);
}

/* `ready`: called with the sends when they have started; NULL: nothing is left to do. */
static void exchange_started(struct halo *h, MPI_Request *requests,
                             void (*ready)(const struct halo *, MPI_Request *),
                             double seconds[PHASES])
{
    const double t0 = now();
    MPI_Startall(h->messages, requests);
    const double t1 = now();
    MPI_Startall(h->messages, requests + h->messages);
    if (ready)
        ready(h, requests + h->messages);
    const double t2 = now();
    MPI_Waitall(2 * h->messages, requests, MPI_STATUSES_IGNORE);
    set_phases(seconds, t0, t1, t2, now());
}

static void exchange_persistent(struct halo *h, enum subject subject, double seconds[PHASES])
{
    exchange_started(h, persistent_requests(h, subject, make_persistent), NULL, seconds);
}

static void free_persistent(struct halo *h)
{
    for (int s = 0; s < SUBJECTS; s++) {
        for (int i = 0; h->persistent[s] && i < 2 * h->messages; i++)
            MPI_Request_free(&h->persistent[s][i]);
        free(h->persistent[s]);
    }
}

/* ---- Precv_init, Psend_init; then Startall, Pready, and Waitall ------------------------------ */

#if MPI_VERSION >= 4
/* A message is one partition: a kernel of the program would fill all of it. Those to oneself, which
 * not every library delivers, are persistent ones. */
static void make_partitioned(const struct halo *h, const struct message *m, MPI_Request *receive,
                             MPI_Request *send)
{
    if (m->peer == h->rank) {
        make_persistent(h, m, receive, send);
        return;
    }
    MPI_Precv_init(field_of(h, m), 1, 1, m->receive_type, m->peer, m->receive_tag, h->comm,
                   MPI_INFO_NULL, receive);
    MPI_Psend_init(field_of(h, m), 1, 1, m->send_type, m->peer, m->send_tag, h->comm, MPI_INFO_NULL,
                   send);
}

static void all_ready(const struct halo *h, MPI_Request *sends)
{
    for (int i = 0; i < h->messages; i++)
        if (h->message[i].peer != h->rank)
            MPI_Pready(0, sends[i]);
}

static void exchange_partitioned(struct halo *h, enum subject subject, double seconds[PHASES])
{
    exchange_started(h, persistent_requests(h, subject, make_partitioned), all_ready, seconds);
}
#endif

/* ---- MPI_Neighbor_alltoallw ------------------------------------------------------------------ */

/* The arguments of a call, by edge of the graph: an edge is a message, and the edges between two
 * ranks are in the order of the sender's tags on both sides. */
typedef int (*neighbor_alltoallw)(const void *, const int *, const MPI_Aint *, const MPI_Datatype *,
                                  void *, const int *, const MPI_Aint *, const MPI_Datatype *,
                                  MPI_Comm);
struct edges {
    MPI_Comm comm;
    neighbor_alltoallw function[SUBJECTS];
    int *counts; /* all 1 */
    MPI_Aint *send_places;
    MPI_Aint *receive_places;
    MPI_Datatype *send_types;
    MPI_Datatype *receive_types;
};

static int by_receive_tag(const void *a, const void *b)
{
    const struct message *const *x = a, *const *y = b;
    return (*x)->receive_tag - (*y)->receive_tag;
}

static void fill_edges(const struct halo *h, struct edges *e, const struct message **incoming)
{
    for (int i = 0; i < h->messages; i++) {
        const struct message *out = &h->message[i], *in = incoming[i];
        e->counts[i] = 1;
        e->send_places[i] = (MPI_Aint)((size_t)out->field * h->cells * sizeof(double));
        e->send_types[i] = out->send_type;
        e->receive_places[i] = (MPI_Aint)((size_t)in->field * h->cells * sizeof(double));
        e->receive_types[i] = in->receive_type;
    }
}

/* Of MPI_COMM_WORLD, whose ranks are those of h->comm: Open MPI 5.0.11 takes a graph made of a
 * Cartesian communicator for a Cartesian one. */
static MPI_Comm create_graph(const struct halo *h, const struct message **incoming)
{
    const size_t n = (size_t)h->messages;
    int *sources = checked_alloc(n * sizeof *sources);
    int *destinations = checked_alloc(n * sizeof *destinations);
    MPI_Comm comm;
    for (size_t i = 0; i < n; i++) {
        sources[i] = incoming[i]->peer;
        destinations[i] = h->message[i].peer;
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, h->messages, sources, MPI_UNWEIGHTED,
                                   h->messages, destinations, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &comm);
    free(sources);
    free(destinations);
    return comm;
}

/* tempi_disable does not apply to collectives, in which all processes must do the same; so the
 * library's subject calls the library's own function. */
static void choose_functions(struct edges *e)
{
    void *own = engine_library_function("PMPI_Neighbor_alltoallw");
    for (int s = 0; s < SUBJECTS; s++)
        e->function[s] = MPI_Neighbor_alltoallw;
    if (own)
        memcpy(&e->function[SUBJECT_LIBRARY], &own, sizeof own);
}

static void setup_neighbor(struct halo *h)
{
    const size_t n = (size_t)h->messages;
    const struct message **incoming = checked_alloc(n * sizeof *incoming);
    struct edges *e = checked_alloc(sizeof *e);
    for (size_t i = 0; i < n; i++)
        incoming[i] = &h->message[i];
    qsort(incoming, n, sizeof *incoming, by_receive_tag);
    e->counts = checked_alloc(n * sizeof *e->counts);
    e->send_places = checked_alloc(n * sizeof *e->send_places);
    e->receive_places = checked_alloc(n * sizeof *e->receive_places);
    e->send_types = checked_alloc(n * sizeof(MPI_Datatype));
    e->receive_types = checked_alloc(n * sizeof(MPI_Datatype));
    fill_edges(h, e, incoming);
    e->comm = create_graph(h, incoming);
    choose_functions(e);
    free(incoming);
    h->edges = e;
}

static void exchange_neighbor(struct halo *h, enum subject subject, double seconds[PHASES])
{
    const struct edges *e = h->edges;
    const double t0 = now();
    e->function[subject](h->data, e->counts, e->send_places, e->send_types, h->data, e->counts,
                         e->receive_places, e->receive_types, e->comm);
    set_phases(seconds, t0, t0, t0, now());
}

static void free_neighbor(struct halo *h)
{
    struct edges *e = h->edges;
    MPI_Comm_free(&e->comm);
    free(e->counts);
    free(e->send_places);
    free(e->receive_places);
    free(e->send_types);
    free(e->receive_types);
    free(e);
}

/* ---------------------------------------------------------------------------------------------- */

static void nothing(struct halo *h)
{
    (void)h;
}

static const struct exchange_kind kinds[] = {
    {"isend", nothing, exchange_isend, nothing},
    {"persistent", nothing, exchange_persistent, free_persistent},
#if MPI_VERSION >= 4
    {"partitioned", nothing, exchange_partitioned, free_persistent},
#endif
    {"neighbor", setup_neighbor, exchange_neighbor, free_neighbor},
};

const struct exchange_kind *exchange_kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}
