/* datatype/canonical.c: from a raw layout to the canonical one.
 *
 * 1. Copy the boxes into a builder.
 * 2. Repeat the passes in order until none changes anything.
 * 3. Types of few runs: derive the boxes anew from the runs, then repeat step 2.
 * 4. Look the result up among the live layouts; return an equal one if there is one.
 */
#include "datatype/intern.h"
#include "datatype/passes.h"

static const tempi_pass passes[] = {
    {"elide", tempi_pass_elide}, {"fold", tempi_pass_fold}, {"flatten", tempi_pass_flatten},
    {"merge", tempi_pass_merge}, {"join", tempi_pass_join}, {"table", tempi_pass_table},
};

typedef struct tracer {
    tempi_layout_trace call;
    void *context;
} tracer;

static void trace(const tracer *t, const char *pass, const tempi_builder *builder)
{
    tempi_layout view;
    if (t->call && tempi_builder_view(builder, &view) == TEMPI_OK)
        t->call(t->context, pass, &view);
}

static int run_to_fixed_point(tempi_builder *builder, const tracer *t)
{
    bool again = true;
    while (again) {
        again = false;
        for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
            bool changed = false;
            const int status = passes[i].run(builder, &changed);
            if (status)
                return status;
            if (changed)
                trace(t, passes[i].name, builder);
            again = again || changed;
        }
    }
    return TEMPI_OK;
}

static int canonicalize(tempi_builder *builder, const tracer *t)
{
    int status = run_to_fixed_point(builder, t);
    bool changed = false;
    if (!status)
        status = tempi_pass_derive(builder, &changed);
    if (status || !changed)
        return status;
    trace(t, "derive", builder);
    return run_to_fixed_point(builder, t);
}

/* Copies boxes, bounds and size. Bounds and size are the type's own: boxes may cover less. */
static int builder_from(const tempi_layout *raw, tempi_builder *builder)
{
    tempi_builder_init(builder);
    int status = tempi_builder_reserve(builder, raw->nboxes);
    for (int32_t i = 0; i < raw->nboxes && !status; i++)
        status = tempi_builder_append(builder, &raw->boxes[i]);
    builder->size = raw->size;
    builder->lb = raw->lb;
    if (!status && tempi_add64(raw->lb, raw->extent, &builder->ub))
        status = TEMPI_ERR_OVERFLOW;
    return status;
}

int tempi_layout_canonical(const tempi_layout *raw, tempi_layout_trace call, void *context,
                           const tempi_layout **out)
{
    if (!raw || !out)
        return TEMPI_ERR_ARG;
    const tracer t = {call, context};
    tempi_builder builder;
    tempi_layout_object *object = NULL;
    int status = builder_from(raw, &builder);
    if (!status) {
        trace(&t, "decode", &builder);
        status = canonicalize(&builder, &t);
    }
    if (!status)
        status = tempi_builder_finish(&builder, &object);
    tempi_builder_clear(&builder);
    if (!status)
        *out = tempi_intern(object);
    return status;
}
