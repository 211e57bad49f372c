/* The device back end: methods, gathering, order, contexts, threads. */
#include "base/config.h"
#include "base/lock.h"
#include "base/log.h"
#include "cases.h"
#include "cuda/backend.h"
#include "cuda/device.h"
#include "cuda/pool.h"
#include "cuda/row_copies.h"
#include "fake_plan.h"
#include "pack/pack.h"
#include <pthread.h>
#include <string.h>

enum { MEMORY = 6 << 20 };

/* One message: memory of device `device`, and a buffer of the kind that its method wants. */
typedef struct message {
    const tempi_layout *layout;
    char *mem, *packed, *wanted;
    int64_t count, first, n;
    int method, device;
} message;

static message message_new(const tempi_layout *layout, int64_t count, int method, int device)
{
    message m = {.layout = layout,
                 .count = count,
                 .n = count * layout->size,
                 .method = method,
                 .device = device};
    m.mem = driver->alloc(FAKE_DEVICE, device, MEMORY);
    pattern(m.mem, MEMORY, 3 * method + device);
    m.wanted = packed_bytes(layout, count, m.mem);
    m.packed = driver->alloc(method == TEMPI_METHOD_DEVICE ? FAKE_DEVICE : FAKE_PINNED, device,
                             m.n);
    memset(m.packed, 0x5a, (size_t)m.n);
    return m;
}

static void message_free(message *m)
{
    driver->free(m->mem);
    driver->free(m->packed);
    free(m->wanted);
}

static tempi_op op_of(const message *m, int direction)
{
    return (tempi_op){.layout = m->layout,
                      .count = m->count,
                      .mem = m->mem,
                      .packed = m->packed,
                      .first = m->first,
                      .n = m->n,
                      .direction = direction,
                      .method = m->method,
                      .device = m->device};
}

static tempi_ticket submit(const message *m, int direction)
{
    tempi_ticket ticket;
    const tempi_op op = op_of(m, direction);
    CHECK(tempi_pack_submit(&op, 1, &ticket) == TEMPI_OK);
    return ticket;
}

static void expect_packed(const message *m)
{
    CHECK(memcmp(m->packed, m->wanted + m->first, (size_t)m->n) == 0);
}

/* Into poisoned memory: the message's bytes and no others are written. */
static void expect_unpacked(message *m)
{
    char *should = malloc(MEMORY);
    memset(should, 0x11, MEMORY);
    tempi_unpack(m->layout, m->count, m->wanted + m->first, m->first, m->n, should);
    CHECK(memcmp(m->mem, should, MEMORY) == 0);
    free(should);
}

static void round_trip(const tempi_layout *layout, int64_t count, int64_t first, int64_t n,
                       int method)
{
    message m = message_new(layout, count, method, 1);
    m.first = first;
    m.n = n < 0 ? m.n - first : n;
    const tempi_op op = op_of(&m, TEMPI_PACK);
    CHECK(tempi_pack_run(&op, 1) == TEMPI_OK);
    expect_packed(&m);
    memset(m.mem, 0x11, MEMORY);
    const tempi_op back = op_of(&m, TEMPI_UNPACK);
    CHECK(tempi_pack_run(&back, 1) == TEMPI_OK);
    expect_unpacked(&m);
    message_free(&m);
}

void case_every_method_packs_and_unpacks(const char *library)
{
    driver_begin(library);
    const tempi_layout *layouts[] = {layout_vector(1000, 8, 24), layout_list(500, 5),
                                     layout_dense(100000), layout_vector(700000, 7, 8)};
    for (int i = 0; i < 4; i++) {
        for (int method = TEMPI_METHOD_DEVICE; method <= TEMPI_METHOD_PIPELINED; method++) {
            round_trip(layouts[i], 1, 0, -1, method);
            round_trip(layouts[i], 1, 13, -1, method);
            round_trip(layouts[i], 1, 17, 1000, method);
        }
        round_trip(layouts[i], i < 3 ? 7 : 1, 0, -1, TEMPI_METHOD_STAGED);
    }
    CHECK(stat_value("device_packs") == 52 && stat_value("device_unpacks") == 52);
    CHECK(stat_value("launches") > 0 && stat_value("staged_bytes") > 0);
    tempi_cuda_stop();
    CHECK(driver->live == 0);
    for (int i = 0; i < 4; i++)
        tempi_layout_release(layouts[i]);
    CHECK(tempi_layout_alive() == 0);
}

/* The fake's multiprocessors run three blocks each; the planner asks for more. */
void case_a_grid_has_the_blocks_that_fit(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(1000, 8, 24);
    round_trip(layout, 1, 0, -1, TEMPI_METHOD_ONE_SHOT);
    CHECK(driver->grid == 3 * tempi_cuda_device_get(1)->multiprocessors);
    tempi_config.oneshot_blocks = 5;
    round_trip(layout, 1, 0, -1, TEMPI_METHOD_ONE_SHOT);
    CHECK(driver->grid == 5);
    round_trip(layout, 1, 0, -1, TEMPI_METHOD_STAGED); /* its kernel accesses device memory only */
    CHECK(driver->grid == 3 * tempi_cuda_device_get(1)->multiprocessors);
    tempi_layout_release(layout);
}

/* From three rounds on; what crosses the bus has no more blocks. */
void case_a_long_launch_takes_its_whole_grid(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(1000, 8, 24);
    round_trip(layout, 1, 0, -1, TEMPI_METHOD_DEVICE);
    const unsigned most = 3u * (unsigned)tempi_cuda_device_get(1)->multiprocessors;
    const tempi_launch before = fake_launch;
    fake_launch.when = TEMPI_WHOLE_LONG;
    fake_launch.whole = 7 * most;
    fake_launch.words = 3 * most * fake_launch.block - 1;
    round_trip(layout, 1, 0, -1, TEMPI_METHOD_DEVICE);
    CHECK(driver->grid == (int)most);
    fake_launch.words++;
    round_trip(layout, 1, 0, -1, TEMPI_METHOD_ONE_SHOT);
    CHECK(driver->grid == (int)most);
    round_trip(layout, 1, 0, -1, TEMPI_METHOD_DEVICE);
    CHECK(driver->grid == (int)(7 * most));
    fake_launch = before;
    tempi_layout_release(layout);
}

/* Seconds of a kernel, of copies of 16 rows, of 1024 rows. */
void case_rows_are_copied_where_that_is_faster(const char *library)
{
    (void)library;
    CHECK(tempi_cuda_rows_by(10e-6, 9.6e-6, 20e-6) == 0); /* within the margin */
    CHECK(tempi_cuda_rows_by(10e-6, 12e-6, 13e-6) == 0);
    CHECK(tempi_cuda_rows_by(10e-6, 9.4e-6, 109.4e-6) == 17); /* a row takes 0.1 us */
    const int64_t rows = tempi_cuda_rows_by(10e-6, 6.5e-6, 7.7e-6);
    CHECK(rows > 2500 && rows < 2600);
    CHECK(tempi_cuda_rows_by(10e-6, 6.5e-6, 6.5e-6) == 4096);
    CHECK(tempi_cuda_rows_by(150e-6, 7e-6, 8e-6) == 4096);
}

enum { BURST = 30 };

static void burst_of(const tempi_layout *layout, int n, bool starts)
{
    message messages[BURST];
    tempi_ticket tickets[BURST];
    const int before = driver->launches;
    for (int i = 0; i < n; i++) {
        CHECK(driver->launches == before);
        messages[i] = message_new(layout, 1, TEMPI_METHOD_ONE_SHOT, 0);
        tickets[i] = submit(&messages[i], TEMPI_PACK);
    }
    CHECK(driver->launches == before + starts);
    tempi_cuda_flush();
    CHECK(driver->launches == before + 1);
    for (int i = 0; i < n; i++) {
        tempi_pack_wait(&tickets[i]);
        expect_packed(&messages[i]);
        message_free(&messages[i]);
    }
}

/* As long as the last two, which were equal; one of another length is launched by the flush. */
void case_a_repeated_burst_starts_when_it_is_complete(const char *library)
{
    driver_begin(library);
    tempi_config.launch_at_once = false;
    const tempi_layout *layout = layout_vector(100, 8, 24);
    const int sizes[] = {5, 5, 5, 5, 3, 5, 5, 5};
    const bool starts[] = {false, false, true, true, false, false, false, true};
    for (int i = 0; i < 8; i++)
        burst_of(layout, sizes[i], starts[i]);
    tempi_layout_release(layout);
    tempi_cuda_stop();
    CHECK(driver->live == 0);
}

/* Packs of the messages, whose packed bytes are poisoned. */
static const tempi_op *ops_of(const message *messages, int n, tempi_op *ops)
{
    for (int i = 0; i < n; i++) {
        memset(messages[i].packed, 0x5a, (size_t)messages[i].n);
        ops[i] = op_of(&messages[i], TEMPI_PACK);
    }
    return ops;
}

static void pack_all(const message *messages, int n)
{
    tempi_op ops[BURST];
    CHECK(tempi_pack_run(ops_of(messages, n, ops), n) == TEMPI_OK);
    for (int i = 0; i < n; i++)
        expect_packed(&messages[i]);
}

static void messages_new(message *messages, int n, const tempi_layout *layout)
{
    for (int i = 0; i < n; i++)
        messages[i] = message_new(layout, 1, TEMPI_METHOD_DEVICE, 0);
}

static void messages_free(message *messages, int n)
{
    for (int i = 0; i < n; i++)
        message_free(&messages[i]);
}

void case_a_repeated_burst_is_planned_once(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(100, 8, 24);
    message messages[BURST];
    messages_new(messages, BURST, layout);
    const int before = fake_plans;
    for (int turn = 0; turn < 4; turn++)
        pack_all(messages, BURST);
    CHECK(fake_plans == before + 1);
    pack_all(messages, BURST - 1); /* one less */
    CHECK(fake_plans == before + 2);
    pack_all(messages, BURST);
    CHECK(fake_plans == before + 2);
    messages_free(messages, BURST);
    tempi_layout_release(layout);
    tempi_cuda_stop();
    CHECK(driver->live == 0 && tempi_layout_alive() == 0);
}

/* Of a launch that fails and is done again the descriptors are in a buffer, which serves others
 * when it is done. */
void case_a_plan_of_a_repeated_launch_is_not_kept(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(100, 8, 24);
    message messages[BURST], others[BURST];
    tempi_op ops[BURST];
    messages_new(others, BURST, layout);
    pack_all(others, BURST); /* sets up the device */
    messages_new(messages, BURST, layout);
    const int level = tempi_log_level;
    tempi_log_level = -1;
    driver->fail_with = 2;
    driver->fail_call = "cuLaunchKernel";
    driver->fail_once = 1;
    CHECK(tempi_pack_run(ops_of(messages, BURST, ops), BURST) == TEMPI_OK);
    CHECK(driver->fail_call == NULL && stat_value("cuda_repeated") == 1);
    driver->fail_once = 0;
    tempi_log_level = level;
    const int planned = fake_plans;
    pack_all(others, BURST - 1);
    pack_all(messages, BURST);
    pack_all(messages, BURST);
    CHECK(fake_plans == planned + 2);
    messages_free(messages, BURST);
    messages_free(others, BURST);
    tempi_layout_release(layout);
    tempi_cuda_stop();
    CHECK(driver->live == 0 && tempi_layout_alive() == 0);
}

/* Each of them alone differs from what was planned before. */
void case_a_plan_lasts_no_longer_than_its_operations(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(100, 8, 24);
    message messages[BURST], others[2];
    messages_new(messages, BURST, layout);
    messages_new(others, 2, layout);
    pack_all(messages, BURST);
    const message first = messages[7];
    int planned = fake_plans;
    messages[7].mem = others[0].mem;
    free(messages[7].wanted);
    messages[7].wanted = packed_bytes(layout, 1, messages[7].mem);
    pack_all(messages, BURST);
    CHECK(fake_plans == ++planned);
    messages[7].packed = others[1].packed;
    pack_all(messages, BURST);
    CHECK(fake_plans == ++planned);
    messages[7].first = 8;
    messages[7].n -= 8;
    pack_all(messages, BURST);
    CHECK(fake_plans == ++planned);
    messages[7].n -= 8;
    pack_all(messages, BURST);
    CHECK(fake_plans == ++planned);
    messages[7].first = 0;
    pack_all(messages, BURST);
    CHECK(fake_plans == ++planned);
    messages[7].mem = first.mem;
    messages[7].packed = first.packed;
    messages_free(messages, BURST);
    messages_free(others, 2);
    tempi_layout_release(layout);
    for (int stride = 25; stride < 60; stride++) { /* a layout in the place of one that was freed */
        layout = layout_vector(100, 8, stride);
        messages_new(messages, BURST, layout);
        pack_all(messages, BURST);
        messages_free(messages, BURST);
        tempi_layout_release(layout);
    }
    tempi_cuda_stop();
    CHECK(driver->live == 0 && tempi_layout_alive() == 0);
}

void case_a_burst_is_two_launches(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(100, 8, 24);
    message messages[BURST];
    tempi_ticket tickets[BURST];
    driver->progress = 0;
    for (int i = 0; i < BURST; i++) {
        messages[i] = message_new(layout, 1, TEMPI_METHOD_ONE_SHOT, 0);
        tickets[i] = submit(&messages[i], TEMPI_PACK);
        CHECK(driver->launches == 1 && tempi_cuda_waiting == i);
        CHECK(!tempi_pack_test(&tickets[i]));
    }
    tempi_cuda_flush();
    CHECK(driver->launches == 2 && tempi_cuda_waiting == 0);
    tempi_cuda_flush();
    CHECK(driver->launches == 2);
    for (int i = BURST - 1; i >= 0; i--) {
        tempi_pack_wait(&tickets[i]);
        CHECK(tempi_pack_error(&tickets[i]) == TEMPI_OK);
        expect_packed(&messages[i]);
        message_free(&messages[i]);
    }
    tempi_layout_release(layout);
    tempi_cuda_stop();
    CHECK(driver->live == 0);
}

void case_a_burst_waits_for_the_flush(const char *library)
{
    driver_begin(library);
    tempi_config.launch_at_once = false;
    const tempi_layout *layout = layout_vector(100, 8, 24);
    message messages[BURST];
    tempi_ticket tickets[BURST];
    for (int i = 0; i < BURST; i++) {
        messages[i] = message_new(layout, 1, TEMPI_METHOD_ONE_SHOT, i % 2);
        tickets[i] = submit(&messages[i], TEMPI_PACK);
        CHECK(!tempi_pack_test(&tickets[i]));
        CHECK(driver->launches == 0 && tempi_cuda_waiting == i + 1);
    }
    tempi_cuda_flush(); /* one for each device */
    CHECK(driver->launches == 2 && tempi_cuda_waiting == 0);
    for (int i = 0; i < BURST; i++) {
        tempi_pack_wait(&tickets[i]);
        CHECK(tempi_pack_error(&tickets[i]) == TEMPI_OK);
        expect_packed(&messages[i]);
        message_free(&messages[i]);
    }
    tempi_layout_release(layout);
    tempi_cuda_stop();
    CHECK(driver->live == 0);
}

void case_a_test_launches_when_the_stream_is_idle(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_list(100, 8);
    message a = message_new(layout, 1, TEMPI_METHOD_ONE_SHOT, 0),
            b = message_new(layout, 1, TEMPI_METHOD_STAGED, 0);
    driver->progress = 0;
    tempi_ticket first = submit(&a, TEMPI_PACK), second = submit(&b, TEMPI_PACK);
    CHECK(!tempi_pack_test(&second) && driver->launches == 1);
    driver->progress = 1;
    int tests = 0;
    while (!tempi_pack_test(&second))
        CHECK(++tests < 100);
    CHECK(driver->launches == 2 && tests > 0);
    expect_packed(&b);
    CHECK(tempi_pack_test(&first) == 1);
    expect_packed(&a);
    message_free(&a);
    message_free(&b);
    tempi_layout_release(layout);
}

void case_host_and_device_go_together(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(100, 8, 24);
    message one = message_new(layout, 1, TEMPI_METHOD_ONE_SHOT, 0),
            two = message_new(layout, 1, TEMPI_METHOD_STAGED, 1);
    char mem[2400], out[800];
    pattern(mem, 2400, 1);
    char *wanted = packed_bytes(layout, 1, mem);
    const tempi_op ops[] = {op_of(&one, TEMPI_PACK),
                            {.layout = layout,
                             .count = 1,
                             .mem = mem,
                             .packed = out,
                             .n = 800,
                             .direction = TEMPI_PACK},
                            op_of(&two, TEMPI_PACK)};
    CHECK(tempi_pack_run(ops, 3) == TEMPI_OK);
    expect_packed(&one);
    expect_packed(&two);
    CHECK(memcmp(out, wanted, 800) == 0);
    free(wanted);
    message_free(&one);
    message_free(&two);
    tempi_layout_release(layout);
}

/* The program has put a kernel into its stream, which has not run when the pack is submitted. */
static void order_case(const tempi_layout *layout, int method, void *stream, uintptr_t named)
{
    message m = message_new(layout, 1, method, 0);
    driver->fill(stream, m.mem, 0x77, MEMORY);
    tempi_cuda_set_stream(named);
    tempi_ticket ticket = submit(&m, TEMPI_PACK);
    tempi_pack_wait(&ticket);
    tempi_cuda_set_stream(0);
    for (int64_t i = 0; i < m.n; i++)
        CHECK(m.packed[i] == 0x77);
    message_free(&m);
}

void case_packs_come_after_the_programs_stream(const char *library)
{
    driver_begin(library);
    void *legacy = driver->stream(-1), *named = driver->stream(0);
    const tempi_layout *strided = layout_vector(1000, 8, 24), *dense = layout_dense(5000);
    for (int method = TEMPI_METHOD_DEVICE; method <= TEMPI_METHOD_PIPELINED; method++) {
        order_case(strided, method, legacy, 0);
        order_case(dense, method, legacy, 0);
        order_case(strided, method, named, (uintptr_t)named);
        order_case(strided, method, legacy, 1);
    }
    CHECK(tempi_cuda_get_stream() == 0);
    tempi_layout_release(strided);
    tempi_layout_release(dense);
    tempi_cuda_stop();
    driver->end(named);
}

void case_a_named_stream_of_another_device_is_waited_for(const char *library)
{
    driver_begin(library);
    void *elsewhere = driver->stream(1);
    const tempi_layout *layout = layout_vector(1000, 8, 24);
    order_case(layout, TEMPI_METHOD_ONE_SHOT, elsewhere, (uintptr_t)elsewhere);
    tempi_layout_release(layout);
    CHECK(stat_value("cuda_failures") == 2 && tempi_cuda_up()); /* a launch there, and an event */
    tempi_cuda_stop();
    driver->end(elsewhere);
}

void case_the_programs_context_stays(const char *library)
{
    driver_begin(library);
    const tempi_layout *layout = layout_vector(100, 8, 24);
    for (int theirs = -1; theirs < 2; theirs++) {
        void *context = driver->current(theirs), *now = context;
        for (int device = 0; device < 2; device++) {
            message m = message_new(layout, 1, TEMPI_METHOD_STAGED, device);
            tempi_ticket ticket = submit(&m, TEMPI_PACK);
            CHECK(tempi_cu.CtxGetCurrent(&now) == 0 && now == context);
            tempi_pack_wait(&ticket);
            CHECK(tempi_cu.CtxGetCurrent(&now) == 0 && now == context);
            expect_packed(&m);
            message_free(&m);
        }
    }
    tempi_layout_release(layout);
}

/* ---- threads --------------------------------------------------------------------------------- */

static const tempi_layout *shared_layout;

static void *submit_many(void *number)
{
    const int own = (int)(intptr_t)number;
    for (int round = 0; round < 30; round++) {
        message messages[3];
        tempi_ticket tickets[3];
        for (int i = 0; i < 3; i++) {
            messages[i] = message_new(shared_layout, 1, TEMPI_METHOD_DEVICE + (own + round + i) % 4,
                                      (own + round) % 2);
            tickets[i] = submit(&messages[i], TEMPI_PACK);
        }
        if (round % 2)
            tempi_cuda_flush();
        for (int i = 2; i >= 0; i--) {
            while (round % 3 && !tempi_pack_test(&tickets[i])) {
            }
            tempi_pack_wait(&tickets[i]);
            expect_packed(&messages[i]);
            message_free(&messages[i]);
        }
    }
    return NULL;
}

void case_threads_submit_together(const char *library)
{
    driver_begin(library);
    tempi_threads_share();
    driver->room = (int64_t)1 << 40;
    shared_layout = layout_list(300, 9);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, submit_many, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    tempi_layout_release(shared_layout);
    tempi_cuda_stop();
    CHECK(driver->live == 0 && tempi_layout_alive() == 0 && tempi_cuda_pool_used() == 0);
}
