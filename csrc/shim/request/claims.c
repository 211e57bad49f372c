#include "shim/request/claims.h"
#include "base/log.h"

static void set_request(tempi_record *record, MPI_Request requests[], bool all)
{
    MPI_Request *request = &requests[record->index];
    record->ended = all && record->ops->ended && record->ops->ended(record);
    if (record->ended)
        *request = MPI_REQUEST_NULL;
    else
        (void)record->ops->inner(record, request);
}

static void claim(MPI_Request requests[], int64_t n, bool all, tempi_claims *out)
{
    *out = (tempi_claims){.last = &out->first};
    tempi_lock_acquire(&tempi_records.lock);
    for (int64_t i = 0; i < n; ++i) {
        tempi_record_slot *slot = tempi_records_find(tempi_handle(requests[i]));
        if (!slot || !slot->record->active)
            continue;
        tempi_record *record = slot->record;
        tempi_records_remove(slot);
        record->index = i;
        record->next_claimed = NULL;
        *out->last = record;
        out->last = &record->next_claimed;
        out->receives |= record->receives || record->cancelled;
    }
    tempi_lock_release(&tempi_records.lock);
    for (tempi_record *record = out->first; record; record = record->next_claimed)
        set_request(record, requests, all);
}

void tempi_claim_all(MPI_Request requests[], int64_t n, tempi_claims *out)
{
    claim(requests, n, true, out);
}

void tempi_claim_any(MPI_Request requests[], int64_t n, tempi_claims *out)
{
    claim(requests, n, false, out);
}

void tempi_claim_put_back(tempi_record *record, MPI_Request requests[])
{
    MPI_Request unused;
    requests[record->index] = tempi_request_of(record->request);
    if (tempi_records_put(record))
        return;
    (void)record->ops->inner(record, &unused); /* from now on the library alone is asked */
    TEMPI_LOG(TEMPI_LOG_ERROR,
              "out of memory: cannot track a request; its receive may be incomplete");
}
