/* datatype/canonical.c: from a raw layout to the canonical one.
 *
 *  1. Copy the boxes into a draft.
 *  2. Run the passes in order, again and again, until none changes anything.
 *  3. Types of few runs: derive the boxes anew from the runs, then 2 again.
 *  4. Look the result up among the layouts alive; keep the one that is there already. */
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

static void trace(const tracer *t, const char *pass, const tempi_builder *draft)
{
    tempi_layout view;
    if (t->call && tempi_builder_view(draft, &view) == TEMPI_OK)
        t->call(t->context, pass, &view);
}

static int run_to_fixed_point(tempi_builder *draft, const tracer *t)
{
    bool again = true;
    while (again) {
        again = false;
        for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
            bool changed = false;
            const int status = passes[i].run(draft, &changed);
            if (status)
                return status;
            if (changed)
                trace(t, passes[i].name, draft);
            again = again || changed;
        }
    }
    return TEMPI_OK;
}

static int canonicalize(tempi_builder *draft, const tracer *t)
{
    int status = run_to_fixed_point(draft, t);
    bool changed = false;
    if (!status)
        status = tempi_pass_derive(draft, &changed);
    if (status || !changed)
        return status;
    trace(t, "derive", draft);
    return run_to_fixed_point(draft, t);
}

/* Boxes may cover less than they could name, but the bounds and the size are the type's own. */
static int builder_from(const tempi_layout *raw, tempi_builder *draft)
{
    tempi_builder_init(draft);
    int status = tempi_builder_reserve(draft, raw->nboxes);
    for (int32_t i = 0; i < raw->nboxes && !status; i++)
        status = tempi_builder_append(draft, &raw->boxes[i]);
    draft->size = raw->size;
    draft->lb = raw->lb;
    if (!status && tempi_add64(raw->lb, raw->extent, &draft->ub))
        status = TEMPI_ERR_OVERFLOW;
    return status;
}

int tempi_layout_canonical(const tempi_layout *raw, tempi_layout_trace call, void *context,
                           const tempi_layout **out)
{
    if (!raw || !out)
        return TEMPI_ERR_ARG;
    const tracer t = {call, context};
    tempi_builder draft;
    tempi_layout_object *object = NULL;
    int status = builder_from(raw, &draft);
    if (!status) {
        trace(&t, "decode", &draft);
        status = canonicalize(&draft, &t);
    }
    if (!status)
        status = tempi_builder_finish(&draft, &object);
    tempi_builder_clear(&draft);
    if (!status)
        *out = tempi_intern(object);
    return status;
}
