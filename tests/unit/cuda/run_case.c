/* run_case.c: `program LIBRARY CASE` runs one case over the fake driver LIBRARY; without a case it
 * lists them. */
#include "cases.h"
#include <string.h>

static const struct {
    const char *name;
    void (*run)(const char *library);
} cases[] = {
#define ROW(name) {#name, case_##name},
    CASES(ROW)
#undef ROW
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc < 3)
            printf("%s\n", cases[i].name);
        else if (strcmp(argv[2], cases[i].name) == 0) {
            cases[i].run(argv[1]);
            return 0;
        }
    }
    return argc < 3 ? 0 : 2;
}
