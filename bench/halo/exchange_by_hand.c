/* exchange_by_hand.c: the exchange packed by hand. */
#include "halo.h"

#include <time.h>

const char *const phase_names[PHASES] = {"post", "send", "wait", "exchange"};

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void set_phases(double seconds[PHASES], double t0, double t1, double t2, double t3)
{
    seconds[PHASE_POST] = t1 - t0;
    seconds[PHASE_SEND] = t2 - t1;
    seconds[PHASE_WAIT] = t3 - t2;
    seconds[PHASE_EXCHANGE] = t3 - t0;
}

static void pack(const struct halo *h, const struct message *m)
{
    region_pack(h, &m->inner, m->field, m->fields, m->send_staging);
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
    /* All copies at once: a wait after each would cost more than it hides. */
    if (h->options.memory->copy) {
        for (int i = 0; i < h->messages; i++)
            pack(h, &h->message[i]);
        region_wait(h);
    }
    for (int i = 0; i < h->messages; i++) {
        const struct message *m = &h->message[i];
        if (!h->options.memory->copy)
            pack(h, m);
        MPI_Isend(m->send_staging, (int)m->bytes, MPI_BYTE, m->peer, m->send_tag, h->comm,
                  &h->requests[h->messages + i]);
    }
    const double t2 = now();
    MPI_Waitall(h->messages, h->requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < h->messages; i++) {
        const struct message *m = &h->message[i];
        region_unpack(h, &m->outer, m->field, m->fields, m->receive_staging);
    }
    region_wait(h);
    MPI_Waitall(h->messages, h->requests + h->messages, MPI_STATUSES_IGNORE);
    set_phases(seconds, t0, t1, t2, now());
}
