#ifndef TEMPI_CUDA_CASES_H
#define TEMPI_CUDA_CASES_H
#include "check.h"

#define CASES(X)                                      \
    X(cuda_that_comes_later_is_found)                 \
    X(kinds_are_told_apart)                           \
    X(a_reused_address_is_asked_about_again)          \
    X(plain_addresses_are_asked_about_each_time)      \
    X(every_method_packs_and_unpacks)                 \
    X(a_burst_is_two_launches)                        \
    X(a_burst_waits_for_the_flush)                    \
    X(a_test_launches_when_the_stream_is_idle)        \
    X(host_and_device_go_together)                    \
    X(packs_come_after_the_programs_stream)           \
    X(a_named_stream_of_another_device_is_waited_for) \
    X(the_programs_context_stays)                     \
    X(threads_submit_together)                        \
    X(buffers_are_kept_within_bounds)                 \
    X(a_free_buffer_serves_a_smaller_request)         \
    X(a_grid_has_the_blocks_that_fit)                 \
    X(a_long_launch_takes_its_whole_grid)             \
    X(rows_are_copied_where_that_is_faster)           \
    X(a_repeated_burst_starts_when_it_is_complete)    \
    X(a_repeated_burst_is_planned_once)               \
    X(a_plan_of_a_repeated_launch_is_not_kept)        \
    X(a_plan_lasts_no_longer_than_its_operations)     \
    X(scarce_memory_means_smaller_pieces)             \
    X(tables_stay_as_long_as_their_layouts)           \
    X(copies_reach_every_kind)                        \
    X(copies_come_after_both_devices_streams)         \
    X(every_call_may_fail_once)                       \
    X(a_batch_that_fails_twice_has_nothing_under_way) \
    X(a_lost_device_ends_the_gpu_path)                \
    X(a_driver_that_is_gone_is_silent)                \
    X(a_forked_child_leaves_the_driver_alone)         \
    X(stopping_gives_all_back_and_starting_again_works)

#define PROTOTYPE(name) void case_##name(const char *library);
CASES(PROTOTYPE)
#undef PROTOTYPE
#endif
