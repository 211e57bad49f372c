/* The kind of memory at an address, and the cost of the query. */
#include "base/config.h"
#include "cases.h"
#include "cuda/driver.h"
#include "memory/kind.h"

void case_cuda_that_comes_later_is_found(const char *library)
{
    char plain[16];
    tempi_config_load();
    tempi_cuda_assume_possible();
    tempi_memory_start();
    CHECK(tempi_memory_mixed);
    CHECK(tempi_memory_of(plain) == TEMPI_MEMORY_HOST && tempi_cuda_state == TEMPI_CUDA_ABSENT);
    driver_load(library);
    char *device = driver->alloc(FAKE_DEVICE, 0, 100);
    CHECK(tempi_memory_of(device) == TEMPI_MEMORY_DEVICE);
    CHECK(tempi_memory_of(plain) == TEMPI_MEMORY_HOST && tempi_cuda_state == TEMPI_CUDA_UP);
    driver->free(device);
}

static void expect(const void *base, int64_t size, tempi_memory_kind kind, int device)
{
    for (int64_t at = 0; at < size; at += size - 1) {
        tempi_memory memory;
        CHECK(tempi_memory_describe((const char *)base + at, &memory) == kind);
        CHECK(memory.kind == kind && memory.device == device && memory.buffer_id != 0);
        CHECK(memory.base == (uintptr_t)base && memory.size == size);
    }
}

void case_kinds_are_told_apart(const char *library)
{
    driver_begin(library);
    char *device = driver->alloc(FAKE_DEVICE, 1, 1000),
         *pinned = driver->alloc(FAKE_PINNED, 0, 500);
    char *managed = driver->alloc(FAKE_MANAGED, 0, 300);
    for (int again = 0; again < 2; again++) {
        expect(device, 1000, TEMPI_MEMORY_DEVICE, 1);
        expect(pinned, 500, TEMPI_MEMORY_PINNED, 0);
        expect(managed, 300, TEMPI_MEMORY_MANAGED, 0);
    }
    CHECK(tempi_memory_of(device - 1) == TEMPI_MEMORY_HOST &&
          tempi_memory_of(device + 1000) == TEMPI_MEMORY_HOST);
    CHECK(tempi_memory_host_readable(TEMPI_MEMORY_PINNED) &&
          !tempi_memory_host_readable(TEMPI_MEMORY_DEVICE));
    driver->lost = TEMPI_CUDA_NOT_INITIALIZED;
    CHECK(tempi_memory_of(device) == TEMPI_MEMORY_HOST);
    driver->lost = 0;
    driver->free(device);
    driver->free(pinned);
    driver->free(managed);
}

/* A driver gives addresses out again, and so does the fake. */
void case_a_reused_address_is_asked_about_again(const char *library)
{
    driver_begin(library);
    int reused = 0;
    for (int i = 0; i < 50; i++) {
        char *first = driver->alloc(FAKE_DEVICE, 1, 4096);
        CHECK(tempi_memory_of(first) == TEMPI_MEMORY_DEVICE);
        driver->free(first);
        if (i % 2)
            CHECK(tempi_memory_of(first) == TEMPI_MEMORY_HOST);
        char *second = driver->alloc(FAKE_PINNED, 0, 4096);
        reused += second == first;
        CHECK(tempi_memory_of(second) == TEMPI_MEMORY_PINNED);
        driver->free(second);
    }
    CHECK(reused == 50);
}

void case_plain_addresses_are_asked_about_each_time(const char *library)
{
    driver_begin(library);
    char plain[16], *device = driver->alloc(FAKE_DEVICE, 0, 100);
    const int before = driver->queries;
    (void)tempi_memory_of(plain);
    (void)tempi_memory_of(plain);
    CHECK(driver->queries - before == 2);
    (void)tempi_memory_of(device);
    (void)tempi_memory_of(device + 50);
    CHECK(driver->queries - before == 4);
    CHECK(stat_value("pointer_queries") == 4);
    driver->free(device);
}
