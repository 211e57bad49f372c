/* main.c: the halo exchange benchmark. A plain MPI program: run it as it is, or under `tempi run`,
 * where tempi is one more subject beside the library's own datatypes and a hand-packed exchange. */
#include "halo.h"

static int choose_subjects(const struct options *options, struct timing timings[SUBJECTS])
{
    int n = 0;
    timings[n++] = (struct timing){.subject = SUBJECT_LIBRARY, .name = options->label};
    if (engine_found())
        timings[n++] = (struct timing){.subject = SUBJECT_TEMPI, .name = "tempi"};
    timings[n++] = (struct timing){.subject = SUBJECT_HAND, .name = "hand"};
    return n;
}

static int run(const struct options *options)
{
    struct halo h;
    struct timing timings[SUBJECTS];
    int failed = 0;
    halo_setup(&h, options);
    const int n = choose_subjects(options, timings);
    if (h.rank == 0 && !engine_found() && !options->json)
        printf("no subject tempi: %s\n", engine_reason());
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
