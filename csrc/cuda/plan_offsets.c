/* plan_offsets.c: encodes offset tables for the kernels. */
#include "cuda/plan.h"

#include <string.h>

enum { SECTION = 16 };

static int64_t position(const tempi_table *table, int64_t j)
{
    return table->entries[j].packed - table->entries[0].packed;
}

static int64_t section(int64_t bytes)
{
    return (bytes + SECTION - 1) / SECTION;
}

/* The constant step between all entries' positions, or 0. */
static int64_t common_step(const tempi_table *table)
{
    const int64_t step = table->n > 1 ? position(table, 1) : 1;
    for (int64_t j = 2; j < table->n; j++)
        if (position(table, j) != j * step)
            return 0;
    return step;
}

static void measure(const tempi_table *table, tempi_table_form *form)
{
    for (int64_t j = 0; j < table->n; j++) {
        const int64_t offset = table->entries[j].offset, far = offset < 0 ? -(offset + 1) : offset;
        form->bits |= (uint64_t)(offset | position(table, j));
        form->reach = far > form->reach ? far : form->reach;
    }
}

/* Shift for guide cells of about one entry each. */
static uint32_t cell_shift(int64_t span, int64_t n)
{
    uint32_t shift = 0;
    while (span >> shift > n)
        shift++;
    return shift;
}

static int64_t guide_cells(const tempi_table_form *form)
{
    return ((form->span - 1) >> form->guide_shift) + 2;
}

int tempi_table_form_of(const tempi_table *table, bool variable, tempi_table_form *out)
{
    if (table->n < 1 || table->n > INT32_MAX)
        return TEMPI_ERR_UNSUPPORTED;
    tempi_table_form form = {.n = (uint32_t)table->n};
    measure(table, &form);
    form.span = position(table, variable ? table->n : table->n - 1);
    form.step = variable ? 0 : common_step(table);
    form.bits |= (uint64_t)(form.step | form.span);
    form.wide = form.reach >= INT32_MAX || form.span >= INT32_MAX;
    const int64_t numbers = section(table->n * (form.wide ? 8 : 4));
    int64_t sections = numbers;
    if (form.step == 0) {
        form.packed_at = (uint32_t)sections;
        sections += numbers;
    }
    if (variable) {
        form.guide_at = (uint32_t)sections;
        form.guide_shift = cell_shift(form.span, table->n);
        sections += section(guide_cells(&form) * 4);
    }
    form.bytes = sections * SECTION;
    *out = form;
    return TEMPI_OK;
}

static void write_number(char *at, bool wide, int64_t j, int64_t value)
{
    const int32_t low = (int32_t)value;
    if (wide)
        memcpy(at + 8 * j, &value, sizeof value);
    else
        memcpy(at + 4 * j, &low, sizeof low);
}

/* Cell g: the last entry that starts at or before packed byte g << shift, plus a closing cell. */
static void write_guide(const tempi_table *table, const tempi_table_form *form, char *at)
{
    const int64_t cells = guide_cells(form);
    int64_t j = 0;
    for (int64_t g = 0; g < cells; g++) {
        while (j + 1 < table->n &&
               (g == cells - 1 || position(table, j + 1) <= g << form->guide_shift))
            j++;
        write_number(at, false, g, j);
    }
}

void tempi_table_encode(const tempi_table *table, bool variable, const tempi_table_form *form,
                        void *bytes)
{
    char *const at = bytes;
    memset(at, 0, (size_t)form->bytes);
    for (int64_t j = 0; j < table->n; j++) {
        write_number(at, form->wide, j, table->entries[j].offset);
        if (form->step == 0)
            write_number(at + SECTION * (int64_t)form->packed_at, form->wide, j,
                         position(table, j));
    }
    if (variable)
        write_guide(table, form, at + SECTION * (int64_t)form->guide_at);
}
