/* verify.c: every cell has a value made of its field, its global coordinates and a generation, so
 * the check detects a cell that is missing, stale, shifted, or from another field or neighbour. */
#include "halo.h"

#include <stdlib.h>
#include <string.h>

static const double poison = -1.0;

/* Global coordinate of local index i, or -1 outside of an open domain. */
static long long global_index(const struct halo *h, int axis, int i)
{
    const long long n = (long long)h->grid[axis] * h->options.points[axis];
    const long long g = (long long)h->coords[axis] * h->options.points[axis] + i -
                        h->options.radius;
    if (g >= 0 && g < n)
        return g;
    return h->options.periodic ? (g + n) % n : -1;
}

static int is_halo(const struct halo *h, int axis, int i)
{
    return i < h->options.radius || i >= h->options.radius + h->options.points[axis];
}

/* The expected row (field, z, y) before an exchange (halo poisoned) or after it. Eighths keep
 * generations apart and stay exact up to 2^50 cells. */
static void expected_row(const struct halo *h, int field, int z, int y, int exchanged,
                         int generation, double *row)
{
    const long long n1 = (long long)h->grid[1] * h->options.points[1];
    const long long n2 = (long long)h->grid[2] * h->options.points[2];
    const long long n0 = (long long)h->grid[0] * h->options.points[0];
    const long long gz = global_index(h, 0, z), gy = global_index(h, 1, y);
    const int row_halo = is_halo(h, 0, z) || is_halo(h, 1, y);
    const double base = (double)(((field * n0 + gz) * n1 + gy) * n2) + 0.125 * (generation % 8);
    const int first = h->options.radius, last = first + h->options.points[2];
    const double start = base + (double)global_index(h, 2, first);
    if (gz < 0 || gy < 0 || (!exchanged && row_halo)) {
        for (int x = 0; x < h->dims[2]; x++)
            row[x] = poison;
        return;
    }
    for (int x = first; x < last; x++)
        row[x] = start + (double)(x - first);
    for (int i = 0; i < 2 * h->options.radius; i++) {
        const int x = i < first ? i : last + i - first;
        const long long gx = global_index(h, 2, x);
        row[x] = gx < 0 || !exchanged ? poison : base + (double)gx;
    }
}

static double *row_at(const struct halo *h, int field, int z, int y)
{
    const size_t line = (size_t)z * (size_t)h->dims[1] + (size_t)y;
    return h->host + (size_t)field * h->cells + line * (size_t)h->dims[2];
}

/* Copies the CPU's data to the fields' memory, and back. */
static void put(struct halo *h)
{
    if (h->options.memory->copy)
        h->options.memory->copy(h->data, h->host,
                                h->cells * (size_t)h->options.fields * sizeof(double));
}

static void get(const struct halo *h)
{
    if (h->options.memory->copy)
        h->options.memory->copy(h->host, h->data,
                                h->cells * (size_t)h->options.fields * sizeof(double));
}

void verify_spoil(struct halo *h, long long cell)
{
    get(h);
    h->host[cell] += 1.0;
    put(h);
}

void verify_fill(struct halo *h, int generation)
{
    for (int f = 0; f < h->options.fields; f++)
        for (int z = 0; z < h->dims[0]; z++)
            for (int y = 0; y < h->dims[1]; y++)
                expected_row(h, f, z, y, 0, generation, row_at(h, f, z, y));
    put(h);
}

static void tell_first(const struct halo *h, const char *subject, int f, int z, int y, int x,
                       double want)
{
    fprintf(stderr, "halo: %s: rank %d, field %d, cell (%d,%d,%d) is %.17g, not %.17g\n", subject,
            h->rank, f, z, y, x, row_at(h, f, z, y)[x], want);
}

long long verify_check(const struct halo *h, int generation, const char *subject)
{
    const size_t bytes = (size_t)h->dims[2] * sizeof(double);
    double *want = checked_alloc(bytes);
    long long wrong = 0, total = 0;
    get(h);
    for (int f = 0; f < h->options.fields; f++)
        for (int z = 0; z < h->dims[0]; z++)
            for (int y = 0; y < h->dims[1]; y++) {
                const double *row = row_at(h, f, z, y);
                expected_row(h, f, z, y, 1, generation, want);
                if (memcmp(row, want, bytes) == 0)
                    continue;
                for (int x = 0; x < h->dims[2]; x++)
                    if (row[x] != want[x] && wrong++ == 0)
                        tell_first(h, subject, f, z, y, x, want[x]);
            }
    free(want);
    MPI_Allreduce(&wrong, &total, 1, MPI_LONG_LONG, MPI_SUM, h->comm);
    return total;
}
