/* Bounds, failures, and the end. */
#include "base/config.h"
#include "base/log.h"
#include "cases.h"
#include "cuda/backend.h"
#include "cuda/offset_tables.h"
#include "cuda/pool.h"
#include "memory/copy.h"
#include "memory/kind.h"
#include "pack/pack.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void case_buffers_are_kept_within_bounds(const char *library)
{
    driver_begin(library);
    tempi_config.device_max = 1 << 20;
    tempi_config.stage_max = 1 << 20;
    char *a = tempi_cuda_buffer_get(0, 600 << 10), *b = tempi_cuda_pinned_get(0, 600 << 10);
    CHECK(a && b && (uintptr_t)a % 256 == 0 && tempi_memory_of(a) == TEMPI_MEMORY_DEVICE);
    CHECK(tempi_memory_of(b) == TEMPI_MEMORY_PINNED && tempi_cuda_pool_pinned(b) &&
          !tempi_cuda_pool_pinned(a));
    CHECK(!tempi_cuda_buffer_get(0, 600 << 10) && !tempi_cuda_pinned_get(0, 600 << 10));
    CHECK(stat_value("refused_device_memory") == 1 && stat_value("refused_pinned_memory") == 1);
    char *c = tempi_cuda_buffer_get(1, 600 << 10); /* a bound for each device */
    CHECK(c && !tempi_cuda_pool_put(c + 1) && tempi_cuda_pool_put(c) && !tempi_cuda_pool_put(c));
    CHECK(tempi_cuda_pool_put(a) && tempi_cuda_buffer_get(0, 600 << 10) == a &&
          tempi_cuda_pool_put(a));
    const int live = driver->live;
    char *d = tempi_cuda_buffer_get(0, 1 << 20); /* exactly the bound: frees cached memory for it */
    CHECK(d && driver->live == live && tempi_cuda_pool_put(d) && tempi_cuda_pool_put(b));
    CHECK(tempi_cuda_pool_used() == 0 && tempi_cuda_pool_cached() > 0);
    driver->room = 0;
    tempi_cuda_pool_trim();
    CHECK(tempi_cuda_pool_cached() == 0);
    driver->room = 1 << 19;
    CHECK(!tempi_cuda_buffer_get(0, 1 << 20) && tempi_cuda_buffer_get(0, 1 << 18));
    tempi_cuda_stop();
    CHECK(driver->live == 0 && tempi_cuda_pool_used() == 0);
}

void case_a_free_buffer_serves_a_smaller_request(const char *library)
{
    driver_begin(library);
    void *(*const get[])(int, int64_t) = {tempi_cuda_buffer_get, tempi_cuda_pinned_get};
    for (int pinned = 0; pinned < 2; pinned++) {
        char *a = get[pinned](0, 600 << 10);
        CHECK(a && tempi_cuda_pool_put(a));
        const int live = driver->live;
        char *b = get[pinned](0, 400 << 10);
        CHECK(b == a && driver->live == live && tempi_cuda_pool_put(b));
        char *c = get[pinned](0, 200 << 10); /* not of more than twice the size */
        CHECK(c != a && driver->live == live + 1 && tempi_cuda_pool_put(c));
    }
    CHECK(tempi_cuda_pool_used() == 0);
    tempi_cuda_stop();
    CHECK(driver->live == 0);
}

/* ---- a scenario with all there is ------------------------------------------------------------ */

enum { SIZE = 3 << 20, OPS = 8 };

static void tell(const char *what, int answered, int with)
{
    if (answered)
        return;
    fprintf(stderr, "%s: call %s answered %d\n", what, driver->last_call, with);
    exit(1);
}

/* What the scenario's operations have in common; made once, before the forks. */
static struct {
    const tempi_layout *layouts[OPS];
    char *mem, *wanted[OPS];
} scene;

/* Each method with a strided and an irregular layout; a long message only where it makes a
 * difference. */
static void set_scene(void)
{
    scene.mem = driver->alloc(FAKE_DEVICE, 0, SIZE);
    pattern(scene.mem, SIZE, 1);
    for (int i = 0; i < OPS; i++) {
        scene.layouts[i] = i % 2    ? layout_list(300, 5)
                           : i == 6 ? layout_vector(SIZE / 32, 24, 32)
                                    : layout_vector(200, 24, 32);
        scene.wanted[i] = packed_bytes(scene.layouts[i], 1, scene.mem);
    }
}

static void strike_scene(void)
{
    for (int i = 0; i < OPS; i++) {
        tempi_layout_release(scene.layouts[i]);
        free(scene.wanted[i]);
    }
    driver->free(scene.mem);
}

static int method_of(int i)
{
    return TEMPI_METHOD_DEVICE + i / 2;
}

/* Packs and copies; each is right, or says that it failed. Returns how many failed. */
static int scenario(int with)
{
    char *out[OPS], *plain = malloc(SIZE);
    tempi_ticket tickets[OPS];
    int failed = 0, started[OPS];
    for (int i = 0; i < OPS; i++) {
        const int64_t n = scene.layouts[i]->size;
        out[i] = driver->alloc(method_of(i) == TEMPI_METHOD_DEVICE ? FAKE_DEVICE : FAKE_PINNED, 0,
                               n);
        const tempi_op op = {.layout = scene.layouts[i],
                             .count = 1,
                             .mem = scene.mem,
                             .packed = out[i],
                             .n = n,
                             .direction = TEMPI_PACK,
                             .method = method_of(i)};
        started[i] = tempi_pack_submit(&op, 1, &tickets[i]) == TEMPI_OK;
    }
    tempi_cuda_flush();
    for (int i = 0; i < OPS; i++) {
        if (started[i])
            tempi_pack_wait(&tickets[i]);
        if (!started[i] || tempi_pack_error(&tickets[i]) != TEMPI_OK)
            failed++;
        else
            tell("a pack", memcmp(out[i], scene.wanted[i], (size_t)scene.layouts[i]->size) == 0,
                 with);
        driver->free(out[i]);
    }
    if (tempi_memory_copy(plain, scene.mem, 5000) != TEMPI_OK)
        failed++;
    else
        tell("a copy", memcmp(plain, scene.mem, 5000) == 0, with);
    tempi_cuda_stop();
    free(plain);
    return failed;
}

/* What the driver would not take back, once, is all that may be left. */
static int left_behind(void)
{
    static const char *const giving[] = {"Free", "Destroy", "Release", "Unload"};
    for (int i = 0; i < 4; i++)
        if (strstr(driver->last_call, giving[i]))
            return driver->live - 1;
    return driver->live;
}

/* In a child process, which alarm(2) kills if it hangs. Returns whether the call was reached. */
static int one_failure(int at, int with, int *failures)
{
    int status;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(30);
        atomic_store(&tempi_cuda_state, TEMPI_CUDA_UP); /* the fake bears forks */
        driver->fail_at = at;
        driver->fail_with = with;
        const int failed = scenario(with);
        const int reached = driver->fail_at == 0;
        if (getenv("CASE_TALKS"))
            fprintf(stderr, "%s answered %d: %d failed\n", driver->last_call, with, failed);
        tell("loss", (tempi_cuda_state == TEMPI_CUDA_LOST) == (reached && with == 700), with);
        tell("leak", tempi_cuda_state == TEMPI_CUDA_LOST || left_behind() == 0, with);
        tell("pools", tempi_cuda_pool_used() == 0, with);
        _exit(reached ? 10 + failed : 9);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) < 9) {
        fprintf(stderr, "call %d answered %d\n", at, with);
        exit(1);
    }
    if (WEXITSTATUS(status) > 10)
        ++*failures;
    return WEXITSTATUS(status) >= 10;
}

void case_every_call_may_fail_once(const char *library)
{
    static const int answers[] = {2, 400, 700};
    driver_begin(library);
    set_scene();
    tempi_log_level = -1; /* each failure is reported; here there are hundreds */
    for (int i = 0; i < 3; i++) {
        int at = 1, failures = 0;
        while (one_failure(at, answers[i], &failures))
            at++;
        CHECK(at > 60);
        CHECK(answers[i] == 700 ? failures > at / 2 : failures < at / 5);
    }
    strike_scene();
}

static tempi_op simple_op(const tempi_layout *layout)
{
    char *mem = driver->alloc(FAKE_DEVICE, 0, 10000),
         *out = driver->alloc(FAKE_PINNED, 0, layout->size);
    memset(mem, 1, 10000);
    return (tempi_op){.layout = layout,
                      .count = 1,
                      .mem = mem,
                      .packed = out,
                      .n = layout->size,
                      .direction = TEMPI_PACK,
                      .method = TEMPI_METHOD_ONE_SHOT};
}

/* Its packed bytes are on their way into a buffer of the pool when the kernel cannot be launched.
 */
void case_a_batch_that_fails_twice_has_nothing_under_way(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(100, 8, 24);
    tempi_op op = simple_op(layout);
    op.direction = TEMPI_UNPACK;
    op.method = TEMPI_METHOD_STAGED;
    tempi_log_level = -1;
    driver->progress = 0;
    driver->fail_call = "cuLaunchKernel";
    driver->fail_with = 2;
    const int copies = driver->copies;
    CHECK(tempi_pack_run(&op, 1) != TEMPI_OK && stat_value("cuda_repeated") == 1);
    CHECK(driver->copies - copies >= 2 && driver->pending == 0);
    CHECK(tempi_cuda_pool_used() == 0);
    driver->fail_call = NULL;
    tempi_cuda_stop();
    CHECK(driver->live == 0);
    tempi_layout_release(layout);
}

void case_scarce_memory_means_smaller_pieces(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(SIZE / 32, 24, 32);
    char *mem = driver->alloc(FAKE_DEVICE, 0, SIZE),
         *out = driver->alloc(FAKE_PINNED, 0, layout->size);
    pattern(mem, SIZE, 1);
    char *wanted = packed_bytes(layout, 1, mem);
    const tempi_op op = {.layout = layout,
                         .count = 1,
                         .mem = mem,
                         .packed = out,
                         .n = layout->size,
                         .direction = TEMPI_PACK,
                         .method = TEMPI_METHOD_STAGED};
    for (int shift = 22; shift >= 18; shift--) {
        tempi_config.device_max = (int64_t)1 << shift;
        memset(out, 0, (size_t)layout->size);
        const int64_t before = driver->copies;
        CHECK(tempi_pack_run(&op, 1) == TEMPI_OK);
        CHECK(memcmp(out, wanted, (size_t)layout->size) == 0);
        CHECK(shift < 22 ? driver->copies - before > 4 : driver->copies - before <= 2);
    }
    tempi_config.device_max = 1000;
    tempi_ticket ticket;
    CHECK(tempi_pack_submit(&op, 1, &ticket) == TEMPI_ERR_MEMORY);
    tempi_cuda_stop();
    CHECK(driver->live == 0);
    free(wanted);
    tempi_layout_release(layout);
}

/* Three tables, of which the second goes with its layout. */
void case_tables_stay_as_long_as_their_layouts(const char *library)
{
    driver_begin(library);
    tempi_cuda_device *device = tempi_cuda_device_get(0);
    const tempi_layout *layouts[3];
    tempi_device_table there[3], again;
    int64_t used[3];
    for (int i = 0; i < 3; i++) {
        layouts[i] = layout_list(100 + i, 8);
        CHECK(layouts[i]->nboxes == 1 && layouts[i]->boxes[0].table != NULL);
        CHECK(tempi_cuda_table_get(device, layouts[i]->boxes[0].table, false, &there[i]) ==
              TEMPI_OK);
        used[i] = tempi_cuda_pool_used();
        if (i == 1)
            tempi_layout_release(layouts[1]);
    }
    CHECK(used[1] > used[0] && used[2] == used[1]);
    CHECK(tempi_cuda_table_get(device, layouts[0]->boxes[0].table, false, &again) == TEMPI_OK);
    CHECK(again.address == there[0].address && driver->copies == 3);
    tempi_layout_release(layouts[0]);
    tempi_layout_release(layouts[2]);
    tempi_cuda_tables_trim();
    CHECK(tempi_cuda_pool_used() == 0);
    tempi_cuda_stop();
    CHECK(driver->live == 0);
}

/* ---- ends ------------------------------------------------------------------------------------ */

void case_a_lost_device_ends_the_gpu_path(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(100, 8, 24);
    const tempi_op op = simple_op(layout);
    tempi_ticket flying, waiting, late;
    driver->progress = 0;
    CHECK(tempi_pack_submit(&op, 1, &flying) == TEMPI_OK &&
          tempi_pack_submit(&op, 1, &waiting) == TEMPI_OK);
    driver->lost = 700;
    CHECK(tempi_pack_test(&flying) == 1 && tempi_pack_error(&flying) == TEMPI_ERR_DEVICE);
    CHECK(tempi_cuda_state == TEMPI_CUDA_LOST && stat_value("cuda_lost") == 1);
    tempi_pack_wait(&waiting);
    CHECK(tempi_pack_error(&waiting) == TEMPI_ERR_DEVICE);
    CHECK(tempi_pack_submit(&op, 1, &late) == TEMPI_ERR_DEVICE);
    /* The driver is lost: memory that the CPU can access, like the fake's, counts as the host's,
     * all other memory as a device's. */
    void *beyond = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(tempi_memory_of(op.mem) == TEMPI_MEMORY_HOST &&
          tempi_memory_of(beyond) == TEMPI_MEMORY_DEVICE);
    CHECK(tempi_memory_copy(op.packed, beyond, 8) != TEMPI_OK);
    munmap(beyond, 4096);
    CHECK(!tempi_cuda_buffer_get(0, 10) && !tempi_cuda_pinned_get(0, 10));
    const int calls = driver->calls;
    tempi_cuda_stop();
    CHECK(driver->calls == calls && tempi_cuda_pool_used() == 0);
    tempi_layout_release(layout);
}

void case_a_driver_that_is_gone_is_silent(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(100, 8, 24);
    const tempi_op op = simple_op(layout);
    CHECK(tempi_pack_run(&op, 1) == TEMPI_OK);
    driver->lost = TEMPI_CUDA_DEINITIALIZED;
    CHECK(tempi_memory_of(op.mem) == TEMPI_MEMORY_HOST);
    tempi_cuda_stop();
    CHECK(tempi_cuda_state == TEMPI_CUDA_LOST && tempi_cuda_pool_used() == 0);
    tempi_layout_release(layout);
}

void case_a_forked_child_leaves_the_driver_alone(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(100, 8, 24);
    const tempi_op op = simple_op(layout);
    tempi_ticket ticket, late;
    driver->progress = 0;
    CHECK(tempi_pack_submit(&op, 1, &ticket) == TEMPI_OK);
    int status;
    const pid_t child = fork();
    if (child == 0) {
        const int calls = driver->calls;
        CHECK(tempi_memory_of(op.mem) == TEMPI_MEMORY_FOREIGN);
        CHECK(tempi_pack_submit(&op, 1, &late) == TEMPI_ERR_DEVICE);
        tempi_pack_wait(&ticket);
        CHECK(tempi_pack_error(&ticket) == TEMPI_ERR_DEVICE);
        tempi_cuda_stop();
        CHECK(driver->calls == calls);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    tempi_pack_wait(&ticket);
    CHECK(tempi_pack_error(&ticket) == TEMPI_OK);
    tempi_layout_release(layout);
}

void case_stopping_gives_all_back_and_starting_again_works(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_list(100, 8);
    tempi_op op = simple_op(layout);
    tempi_ticket ticket;
    for (int round = 0; round < 3; round++) {
        memset(op.packed, 0, (size_t)op.n);
        driver->progress = 0;
        CHECK(tempi_pack_run(&op, 1) == TEMPI_OK && tempi_pack_submit(&op, 1, &ticket) == TEMPI_OK);
        op.direction = TEMPI_UNPACK;
        CHECK(tempi_pack_run(&op, 1) == TEMPI_OK);
        op.direction = TEMPI_PACK;
        CHECK(((char *)op.packed)[op.n - 1] == 1 && driver->live > 0);
        tempi_pack_wait(&ticket);
        tempi_cuda_stop();
        CHECK(driver->live == 0);
    }
    tempi_layout_release(layout);
    CHECK(tempi_layout_alive() == 0);
}
