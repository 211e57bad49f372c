/* command_line.c: the options of the program. */
#include "halo.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: halo [options]         (axes in C order: Z,Y,X with X contiguous; one number: all three)\n"
    "  --grid Z,Y,X      process grid (default: MPI_Dims_create)\n"
    "  --points Z,Y,X    points a rank (default 128)\n"
    "  --radius N        cells of halo on each side (default 2)\n"
    "  --fields N        fields of doubles (default 3)\n"
    "  --no-periodic     open boundaries (default: periodic)\n"
    "  --combine         one message a neighbour with all fields, not one for each field\n"
    "  --exchange KIND   of the types: isend (default), persistent, partitioned (MPI 4), or neighbor\n"
    "                    (one collective)\n"
    "  --paper           256 points, 8 fields, radius 3: 1.15 GB a rank\n"
    "  --seconds S       budget for timing (default 10)\n"
    "  --check           only verify every cell\n"
    "  --memory KIND     memory of the fields: host, or device (CUDA)\n"
    "  --label NAME      name of the library's subject in records (default library)\n"
    "  --json FILE|-     also write JSON lines; to stdout, instead of the table\n"
    "  --corrupt CELL    spoil that cell of rank 0 before checking (to test the check)\n";

enum {
    OPT_GRID = 256,
    OPT_POINTS,
    OPT_RADIUS,
    OPT_FIELDS,
    OPT_NO_PERIODIC,
    OPT_COMBINE,
    OPT_EXCHANGE,
    OPT_PAPER,
    OPT_SECONDS,
    OPT_CHECK,
    OPT_MEMORY,
    OPT_LABEL,
    OPT_JSON,
    OPT_CORRUPT,
    OPT_HELP
};

static const struct option table[] = {
    {"grid", required_argument, NULL, OPT_GRID},
    {"points", required_argument, NULL, OPT_POINTS},
    {"radius", required_argument, NULL, OPT_RADIUS},
    {"fields", required_argument, NULL, OPT_FIELDS},
    {"no-periodic", no_argument, NULL, OPT_NO_PERIODIC},
    {"combine", no_argument, NULL, OPT_COMBINE},
    {"exchange", required_argument, NULL, OPT_EXCHANGE},
    {"paper", no_argument, NULL, OPT_PAPER},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"check", no_argument, NULL, OPT_CHECK},
    {"memory", required_argument, NULL, OPT_MEMORY},
    {"label", required_argument, NULL, OPT_LABEL},
    {"json", required_argument, NULL, OPT_JSON},
    {"corrupt", required_argument, NULL, OPT_CORRUPT},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static int parse_int(const char *text, char **end, int low, int *out)
{
    long value = strtol(text, end, 10);
    if (*end == text || value < low || value > INT_MAX)
        return 1;
    *out = (int)value;
    return 0;
}

static int parse_axes(const char *text, int out[AXES])
{
    char *end = NULL;
    if (parse_int(text, &end, 1, &out[0]))
        return 1;
    if (*end == '\0') {
        out[1] = out[2] = out[0];
        return 0;
    }
    for (int a = 1; a < AXES; a++)
        if (*end != ',' || parse_int(end + 1, &end, 1, &out[a]))
            return 1;
    return *end != '\0';
}

static int parse_one(const char *text, int low, int *out)
{
    char *end = NULL;
    return parse_int(text, &end, low, out) || *end != '\0';
}

static int parse_seconds(const char *text, double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    return end == text || *end != '\0' || !(*out > 0);
}

static int parse_corrupt(const char *text, long long *out)
{
    char *end = NULL;
    *out = strtoll(text, &end, 10);
    return end == text || *end != '\0' || *out < 0;
}

static void set_paper(struct options *o)
{
    o->points[0] = o->points[1] = o->points[2] = 256;
    o->fields = 8;
    o->radius = 3;
}

/* 0: accepted, 1: invalid value, -1: help or an unknown name (already reported by getopt). */
static int take(struct options *o, int which)
{
    switch (which) {
    case OPT_GRID: return parse_axes(optarg, o->grid);
    case OPT_POINTS: return parse_axes(optarg, o->points);
    case OPT_RADIUS: return parse_one(optarg, 1, &o->radius);
    case OPT_FIELDS: return parse_one(optarg, 1, &o->fields);
    case OPT_NO_PERIODIC: o->periodic = 0; return 0;
    case OPT_COMBINE: o->combine = 1; return 0;
    case OPT_EXCHANGE: return (o->exchange = exchange_kind_find(optarg)) == NULL;
    case OPT_PAPER: set_paper(o); return 0;
    case OPT_SECONDS: return parse_seconds(optarg, &o->seconds);
    case OPT_CHECK: o->check_only = 1; return 0;
    case OPT_MEMORY: return (o->memory = memory_kind_find(optarg)) == NULL;
    case OPT_LABEL: o->label = optarg; return 0;
    case OPT_JSON: o->json = optarg; return 0;
    case OPT_CORRUPT: return parse_corrupt(optarg, &o->corrupt);
    default: return -1;
    }
}

/* A halo is filled by the nearest neighbour alone, so it may not be thicker than a rank's block. */
static int check_options(const struct options *o, int rank)
{
    for (int a = 0; a < AXES; a++)
        if (o->radius > o->points[a]) {
            if (rank == 0)
                fprintf(stderr, "halo: radius %d is larger than the %d points of axis %d\n",
                        o->radius, o->points[a], a);
            return 1;
        }
    return 0;
}

int options_parse(struct options *out, int argc, char **argv, int rank)
{
    struct options o = {.points = {128, 128, 128},
                        .radius = 2,
                        .fields = 3,
                        .periodic = 1,
                        .corrupt = -1,
                        .seconds = 10,
                        .label = "library",
                        .memory = memory_kind_find("host"),
                        .exchange = exchange_kind_find("isend")};
    opterr = rank == 0;
    for (int which, index = 0; (which = getopt_long(argc, argv, "", table, &index)) != -1;) {
        int bad = take(&o, which);
        if (bad > 0 && rank == 0)
            fprintf(stderr, "halo: --%s: %s is not a value for it\n", table[index].name, optarg);
        if (bad < 0 && rank == 0)
            fputs(usage, which == OPT_HELP ? stdout : stderr);
        if (bad)
            return which == OPT_HELP ? -1 : 1;
    }
    if (optind < argc) {
        if (rank == 0)
            fprintf(stderr, "halo: %s is not an option\n", argv[optind]);
        return 1;
    }
    if (check_options(&o, rank))
        return 1;
    *out = o;
    return 0;
}
