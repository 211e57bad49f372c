/* exchange.c: the exchange with datatypes, and the one packed by hand. */
#include "halo.h"

#include <string.h>
#include <time.h>

const char *const phase_names[PHASES] = {"post", "send", "wait", "exchange"};

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void set_phases(double seconds[PHASES], double t0, double t1, double t2, double t3)
{
    seconds[PHASE_POST] = t1 - t0;
    seconds[PHASE_SEND] = t2 - t1;
    seconds[PHASE_WAIT] = t3 - t2;
    seconds[PHASE_EXCHANGE] = t3 - t0;
}

void exchange_with_types(struct halo *h, double seconds[PHASES])
{
    const double t0 = now();
    for (int i = 0; i < h->messages; i++) {
        const struct message *m = &h->message[i];
        MPI_Irecv(h->data + (size_t)m->field * h->cells, 1, m->receive_type, m->peer, m->receive_tag,
                  h->comm, &h->requests[i]);
    }
    const double t1 = now();
    for (int i = 0; i < h->messages; i++) {
        const struct message *m = &h->message[i];
        MPI_Isend(h->data + (size_t)m->field * h->cells, 1, m->send_type, m->peer, m->send_tag, h->comm,
                  &h->requests[h->messages + i]);
    }
    const double t2 = now();
    MPI_Waitall(2 * h->messages, h->requests, MPI_STATUSES_IGNORE);
    set_phases(seconds, t0, t1, t2, now());
}

/* Rows of N doubles with N known to the compiler: what one writes when the radius is fixed. */
#define COPY_ROWS(N)                                                        \
    for (int y = 0; y < rows; y++) {                                        \
        memcpy(to, from, (N) * sizeof(double));                             \
        to += to_stride;                                                    \
        from += from_stride;                                                \
    }

static void copy_rows(double *to, size_t to_stride, const double *from, size_t from_stride, int rows,
                      int length)
{
    switch (length) {
    case 1: COPY_ROWS(1) return;
    case 2: COPY_ROWS(2) return;
    case 3: COPY_ROWS(3) return;
    case 4: COPY_ROWS(4) return;
    default: COPY_ROWS((size_t)length) return;
    }
}

static size_t region_offset(const struct halo *h, const struct region *g, int field, int z)
{
    const size_t ny = (size_t)h->dims[1], nx = (size_t)h->dims[2];
    return (size_t)field * h->cells + ((size_t)(g->start[0] + z) * ny + (size_t)g->start[1]) * nx +
           (size_t)g->start[2];
}

void region_pack(const struct halo *h, const struct region *g, int field, int fields, void *out)
{
    const size_t row = (size_t)g->size[2], plane = row * (size_t)g->size[1];
    double *to = out;
    for (int f = field; f < field + fields; f++)
        for (int z = 0; z < g->size[0]; z++, to += plane)
            copy_rows(to, row, h->data + region_offset(h, g, f, z), (size_t)h->dims[2], g->size[1],
                      g->size[2]);
}

void region_unpack(struct halo *h, const struct region *g, int field, int fields, const void *in)
{
    const size_t row = (size_t)g->size[2], plane = row * (size_t)g->size[1];
    const double *from = in;
    for (int f = field; f < field + fields; f++)
        for (int z = 0; z < g->size[0]; z++, from += plane)
            copy_rows(h->data + region_offset(h, g, f, z), (size_t)h->dims[2], from, row, g->size[1],
                      g->size[2]);
}

void exchange_by_hand(struct halo *h, double seconds[PHASES])
{
    const double t0 = now();
    for (int i = 0; i < h->messages; i++) {
        const struct message *m = &h->message[i];
        MPI_Irecv(m->receive_staging, (int)m->bytes, MPI_BYTE, m->peer, m->receive_tag, h->comm,
                  &h->requests[i]);
    }
    const double t1 = now();
    for (int i = 0; i < h->messages; i++) {
        const struct message *m = &h->message[i];
        region_pack(h, &m->inner, m->field, m->fields, m->send_staging);
        MPI_Isend(m->send_staging, (int)m->bytes, MPI_BYTE, m->peer, m->send_tag, h->comm,
                  &h->requests[h->messages + i]);
    }
    const double t2 = now();
    MPI_Waitall(h->messages, h->requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < h->messages; i++) {
        const struct message *m = &h->message[i];
        region_unpack(h, &m->outer, m->field, m->fields, m->receive_staging);
    }
    MPI_Waitall(h->messages, h->requests + h->messages, MPI_STATUSES_IGNORE);
    set_phases(seconds, t0, t1, t2, now());
}
