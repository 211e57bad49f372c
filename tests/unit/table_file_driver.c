/* table_file_driver.c: corrupted tables, for the sanitizers. The argument is a valid file; its
 * bytes are changed, cut off and added, with the checksum corrected in half of the cases. Every
 * file that is still accepted must give finite positive seconds for any place. Exits with 1 at the
 * first error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choose/device_choice.h"
#include "choose/fast_math.h"
#include "choose/table_file.h"

enum { MOST = 1 << 20, STEPS = 30000 };

static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static double draw_log(void)
{
    return (double)draw(1000) / 20 - 5;
}

/* Against libm: a few units of the last place. */
static void compare(double x)
{
    const double size = exp(x), power = tempi_fast_exp(x), logarithm = tempi_fast_log(size);
    if (fabs(power - size) > 4e-15 * (1 + fabs(x)) * size ||
        fabs(logarithm - log(size)) > 1e-15 * (1 + fabs(x)))
        exit(1);
}

static void compare_all(void)
{
    for (double x = -690; x < 690; x += 0.01)
        compare(x);
    for (double x = -2; x < 2; x += 0.0001)
        compare(x);
    if (tempi_fast_exp(0) != 1 || tempi_fast_log(1) != 0 || !isfinite(tempi_fast_exp(1e6)) ||
        !(tempi_fast_exp(-1e6) > 0))
        exit(1);
}

static void use(const struct tempi_model *model)
{
    for (int q = 0; q < TEMPI_QUANTITIES; q++)
        for (int f = 0; f < TEMPI_FAMILIES; f++)
            for (int p = 0; p < TEMPI_PEERS; p++) {
                const tempi_table_head *table = model->tables[q][f][p];
                const tempi_place place = {draw_log(), draw_log(), draw_log()};
                const double seconds = table ? tempi_table_at(model, table, place) : 1;
                if (!(seconds > 0) || !isfinite(seconds))
                    exit(1);
            }
}

static int predicted; /* of device memory */

/* Each method's seconds are the sum of its parts, and the one that is chosen is the least, or
 * nearly: the library and methods of more steps must be faster by a margin. */
static void judge(const tempi_device_prediction *p)
{
    for (int m = 0; m < TEMPI_METHODS; m++) {
        const double sum = p->pack[m] + p->message[m] + p->unpack[m];
        if (p->seconds[m] < 0)
            continue;
        if (!isfinite(sum) || p->seconds[m] <= 0 || fabs(p->seconds[m] - sum) > 1e-12 * sum)
            exit(1);
        const double near = 1.04;
        const bool library = m == TEMPI_METHOD_LIBRARY || p->method == TEMPI_METHOD_LIBRARY;
        const bool steps = p->method < m;
        if (p->seconds[p->method] > p->seconds[m] * (library || steps ? near : 1))
            exit(1);
    }
}

static void use_device(const struct tempi_model *model)
{
    const tempi_dim dim = {
        .count = 1 + (int64_t)draw(64), .stride = (int64_t)(8 << draw(12)), .packed_stride = 8};
    const tempi_box box = {.run = 8, .ndims = 1, .dims = {dim}};
    const tempi_layout layout = {.size = 8 * dim.count,
                                 .extent = dim.count * dim.stride,
                                 .runs = dim.count,
                                 .nboxes = 1,
                                 .boxes = &box};
    for (int misaligned = 0; misaligned < 2; misaligned++)
        for (int peer = 0; peer < TEMPI_PEERS; peer++) {
            tempi_device_prediction p;
            const tempi_device_message message = {
                .bytes = 1 + (int64_t)draw((uint64_t)1 << draw(40)),
                .whole = draw(4) ? 0 : (int64_t)1 << draw(41),
                .segments = (int64_t)draw(9),
                .operation = TEMPI_OP_PACK + (int32_t)draw(4),
                .peer = peer,
                .packed = (int32_t)draw(3),
                .contiguous = !draw(8),
                .memory = TEMPI_TABLES_OF_DEVICE + (int32_t)draw(2),
                .misaligned = misaligned,
                .cuda_aware = (int32_t)draw(2)};
            if (tempi_model_predict_device(model, &layout, &message, &p) == TEMPI_OK) {
                judge(&p);
                ++predicted;
            }
        }
}

static void repair(char *data, size_t bytes)
{
    tempi_table_header *h = (void *)data;
    const size_t unsummed = offsetof(tempi_table_header, call);
    if (bytes < sizeof *h)
        return;
    h->magic = TEMPI_TABLE_MAGIC;
    h->format = TEMPI_TABLE_FORMAT;
    h->bytes = bytes;
    h->checksum = tempi_table_checksum(data + unsummed, bytes - unsummed);
}

/* Early bytes are the ones that can do harm. */
static size_t draw_place(size_t bytes)
{
    return (size_t)draw(draw(2) ? bytes : bytes < 1200 ? bytes : 1200);
}

static bool try(const char *good, size_t bytes)
{
    const size_t cut = draw(4) ? bytes : (size_t)draw(bytes + 1),
                 size = cut + (draw(8) ? 0 : (size_t)draw(64));
    char *data = malloc(size ? size : 1);
    if (!data)
        exit(1);
    memset(data, 0x7F, size);
    memcpy(data, good, cut);
    for (uint64_t n = draw(4); n > 0 && size > 0; n--)
        data[draw_place(size)] = (char)draw(256);
    const bool repaired = draw(2);
    if (repaired)
        repair(data, size);
    const bool taken = tempi_table_fault(data, size) == NULL;
    if (taken && !repaired && (size != bytes || memcmp(data, good, bytes) != 0))
        exit(1);
    if (taken) {
        struct tempi_model model = {.header = (const void *)data};
        tempi_table_index(&model);
        use(&model);
        use_device(&model);
    }
    free(data);
    return taken;
}

int main(int argc, char **argv)
{
    compare_all();
    static _Alignas(8) char good[MOST];
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (!file)
        return 1;
    const size_t bytes = fread(good, 1, sizeof good, file);
    fclose(file);
    if (tempi_table_fault(good, bytes) != NULL)
        return 1;
    int taken = 0;
    for (int step = 0; step < STEPS; step++)
        taken += try(good, bytes);
    printf("%d of %d taken, %d predictions of device memory\n", taken, STEPS, predicted);
    return taken > STEPS / 20 && taken < STEPS && predicted > STEPS / 20 ? 0 : 1;
}
