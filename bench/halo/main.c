/* main.c: the halo exchange benchmark. A plain MPI program: run it as it is, or under `tempi run`,
 * which adds tempi as a subject beside the library's own datatypes and a hand-packed exchange. */
#include "cuda.h"
#include "halo.h"

#include <string.h>

/* Whether the library can reach the memory: no library knows addresses of the emulator. */
static int library_reaches(const struct options *options)
{
    return !options->memory->copy || (engine_library_aware() && !cuda_emulated());
}

static int choose_subjects(const struct options *options, struct timing timings[SUBJECTS])
{
    int n = 0;
    if (library_reaches(options))
        timings[n++] = (struct timing){.subject = SUBJECT_LIBRARY, .name = options->label};
    if (engine_found())
        timings[n++] = (struct timing){.subject = SUBJECT_TEMPI, .name = "tempi"};
    timings[n++] = (struct timing){.subject = SUBJECT_HAND, .name = "hand"};
    return n;
}

static void tell_missing(const struct options *options)
{
    if (!library_reaches(options))
        printf("no subject %s: this MPI is not CUDA-aware\n", options->label);
    if (!engine_found())
        printf("no subject tempi: %s\n", engine_reason());
    if (cuda_emulated())
        printf("EMULATED DEVICE (CUDA on the CPU): correctness only, nothing is timed\n");
}

static int run(const struct options *options)
{
    struct halo h;
    struct timing timings[SUBJECTS];
    int failed = 0;
    halo_setup(&h, options);
    const int n = choose_subjects(options, timings);
    if (h.rank == 0 && !(options->json && strcmp(options->json, "-") == 0))
        tell_missing(options);
    timing_run(&h, timings, n);
    for (int i = 0; i < n; i++)
        failed |= timings[i].wrong > 0;
    if (h.rank == 0)
        failed |= report_write(&h, timings, n);
    for (int i = 0; i < n; i++)
        timing_free(&timings[i]);
    halo_free(&h);
    return failed;
}

int main(int argc, char **argv)
{
    struct options options;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int failed = options_parse(&options, argc, argv, rank);
    if (failed == 0)
        failed = run(&options);
    else if (failed > 0)
        failed = 2;
    MPI_Finalize();
    return failed < 0 ? 0 : failed;
}
