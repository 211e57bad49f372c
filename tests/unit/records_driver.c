/* records_driver.c: requests that come into the table of records and leave it in random order. Each
 * must be found until it is claimed, and not after. Exits with 1 at the first error. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "pack/parts.h"
#include "transfer/records.h"

tempi_settings tempi_config;

/* Of records with data, which there are none of. */
void tempi_packed_put(tempi_op *op)
{
    (void)op;
}
void tempi_parts_delete(tempi_parts *parts)
{
    (void)parts;
}
void tempi_layout_release(const tempi_layout *layout)
{
    (void)layout;
}

enum { REQUESTS = 400, STEPS = 40000 };

static tempi_record records[REQUESTS];
static bool posted[REQUESTS];
static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static void check_all(void)
{
    for (int i = 0; i < REQUESTS; i++) {
        const tempi_record_slot *slot = tempi_records_find(records[i].request);
        if ((slot ? slot->record : NULL) != (posted[i] ? &records[i] : NULL))
            exit(1);
    }
}

int main(void)
{
    for (int i = 0; i < REQUESTS; i++) /* addresses, as of requests */
        records[i].request =
            (uintptr_t)(0x7f0000000000u + draw(1 << 20) * 4096u + 16u * (unsigned)i);
    int claimed = 0;
    for (int step = 0; step < STEPS; step++) {
        const int i = (int)draw(REQUESTS);
        if (posted[i])
            claimed += tempi_records_claim(records[i].request) == &records[i];
        else if (!tempi_records_put(&records[i]))
            return 1;
        posted[i] = !posted[i];
        if (step % 16 == 0)
            check_all();
    }
    printf("%d\n", claimed);
    return claimed > STEPS / 4 ? 0 : 1;
}
