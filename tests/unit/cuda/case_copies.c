/* Contiguous copies between memories of any kinds. */
#include "cases.h"
#include "cuda/backend.h"
#include "cuda/driver.h"
#include "memory/copy.h"
#include <string.h>

enum { KINDS = 5, BYTES = 3000 };

/* Plain, pinned, managed, on device 0, on device 1. */
static char *memory_of_kind(int i)
{
    static const int kinds[KINDS] = {0, FAKE_PINNED, FAKE_MANAGED, FAKE_DEVICE, FAKE_DEVICE};
    return i == 0 ? malloc(BYTES) : driver->alloc(kinds[i], i == 4, BYTES);
}

static void memory_free(int i, char *memory)
{
    if (i == 0)
        free(memory);
    else
        driver->free(memory);
}

static void copy_case(int to, int from, int waits)
{
    char *dst = memory_of_kind(to), *src = memory_of_kind(from), wanted[BYTES];
    tempi_ticket ticket = {0};
    pattern(src, BYTES, to + 5 * from);
    memset(dst, 0x33, BYTES);
    memset(wanted, 0x33, BYTES);
    memcpy(wanted + 7, src + 100, BYTES - 300);
    if (waits)
        CHECK(tempi_memory_copy(dst + 7, src + 100, BYTES - 300) == TEMPI_OK);
    else
        CHECK(tempi_memory_copy_submit(dst + 7, src + 100, BYTES - 300, &ticket) == TEMPI_OK);
    while (!tempi_pack_test(&ticket)) {
    }
    CHECK(tempi_pack_error(&ticket) == TEMPI_OK && memcmp(dst, wanted, BYTES) == 0);
    memory_free(to, dst);
    memory_free(from, src);
}

void case_copies_reach_every_kind(const char *library)
{
    driver_begin(library);
    for (int to = 0; to < KINDS; to++)
        for (int from = 0; from < KINDS; from++)
            for (int waits = 0; waits < 2; waits++)
                copy_case(to, from, waits);
    char byte = 1;
    CHECK(tempi_memory_copy(&byte, &byte, 0) == TEMPI_OK &&
          tempi_memory_copy(&byte, &byte, -1) == TEMPI_ERR_ARG);
    CHECK(stat_value("device_copies") == 2 * (KINDS * KINDS - 4)); /* host to host is none */
    tempi_cuda_stop();
    CHECK(driver->live == 0);
}

void case_copies_come_after_both_devices_streams(const char *library)
{
    driver_begin(library);
    char *a = driver->alloc(FAKE_DEVICE, 0, BYTES), *b = driver->alloc(FAKE_DEVICE, 1, BYTES),
         host[BYTES];
    memset(a, 0, BYTES);
    memset(b, 0, BYTES);
    driver->fill(driver->stream(-2), b, 5, BYTES); /* the source is written late */
    driver->fill(driver->stream(-1), a, 9,
                 BYTES); /* and so is the target, which is to be overwritten */
    CHECK(tempi_memory_copy(a, b, BYTES) == TEMPI_OK && a[0] == 5 && a[BYTES - 1] == 5);
    driver->fill(driver->stream(-1), a, 6, BYTES);
    CHECK(tempi_memory_copy(host, a, BYTES) == TEMPI_OK && host[0] == 6 && host[BYTES - 1] == 6);
    driver->fill(driver->stream(-1), a, 7, BYTES);
    CHECK(tempi_memory_copy(a, host, BYTES) == TEMPI_OK && a[0] == 6 && a[BYTES - 1] == 6);
    driver->free(a);
    driver->free(b);
}
