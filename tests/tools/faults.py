"""The faults that planted.py plants. Each is one substitution in one file; test_planted.py checks that it applies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    area: str  # of planted.AREAS
    name: str  # what is wrong with it, in one line
    file: str
    old: str  # once in the file
    new: str
    tests: tuple[str, ...] = ()  # tried before the area's

    def planted(self, text: str) -> str:
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: {self.name}: the text is there {text.count(self.old)} times, not once")
        return text.replace(self.old, self.new)


FAULTS = (
    # ---- datatype ------------------------------------------------------------------------------------
    Fault(
        "datatype",
        "runs that do not touch in memory are merged",
        "csrc/datatype/passes.c",
        "b->offset - a->offset != a->run || b->packed",
        "b->packed",
    ),
    Fault(
        "datatype",
        "boxes of different shapes are joined",
        "csrc/datatype/passes.c",
        "step->stride ||\n            !tempi_box_same_shape(a, b))",
        "step->stride)",
    ),
    Fault(
        "datatype",
        "a nest may end in the middle of a piece",
        "csrc/datatype/regular.c",
        "if (count < 2 || at % piece)",
        "if (count < 2)",
    ),
    Fault(
        "datatype",
        "a pattern's copies may differ in the length of their runs",
        "csrc/datatype/regular.c",
        "i < n && run_length(e, i) == run_length(e, i - p) &&",
        "i < n &&",
    ),
    Fault(
        "datatype",
        "a process too many has one more block of a cyclic array",
        "csrc/datatype/array.c",
        "(d->r < blocks % d->p ? 1 : 0)",
        "(d->r <= blocks % d->p ? 1 : 0)",
    ),
    Fault(
        "datatype",
        "a subarray takes its dimensions in the other order",
        "csrc/datatype/array.c",
        "const int d = order == TEMPI_ORDER_C ?",
        "const int d = order != TEMPI_ORDER_C ?",
    ),
    Fault(
        "datatype",
        "an array's short block lies where its first one is",
        "csrc/datatype/array.c",
        "(d->full * d->p + d->r) * d->k);",
        "d->r * d->k);",
    ),
    Fault(
        "datatype",
        "blocks are equal if the last two are",
        "csrc/datatype/irregular.c",
        "b->equal = b->equal && length == b->length;",
        "b->equal = length == b->length;",
    ),
    Fault(
        "datatype",
        "elements of a block lie at their size, not their extent",
        "csrc/datatype/irregular.c",
        "(tempi_entry){b->displacements[i] + j * inner->extent, packed}",
        "(tempi_entry){b->displacements[i] + j * inner->size, packed}",
    ),
    Fault(
        "datatype",
        "a loop's items need no even spacing",
        "csrc/datatype/derive.c",
        "it[j].offset - it[j - p].offset == loop->stride &&",
        "true &&",
    ),
    # ---- pack ------------------------------------------------------------------------------------
    Fault(
        "pack",
        "a fragment has one whole index too few",
        "csrc/pack/fragment.c",
        "(hi - inside) / step + 1 : 0",
        "(hi - inside) / step : 0",
    ),
    Fault(
        "pack",
        "a part of a run goes to where the run begins",
        "csrc/pack/fragment.c",
        ".packed = whole->packed + at + from,",
        ".packed = whole->packed + at,",
    ),
    Fault(
        "pack",
        "axes are folded though only one side continues",
        "csrc/pack/loop_plan.c",
        "if (n > 0 && d == axes[n - 1].n * axes[n - 1].d && s == axes[n - 1].n * axes[n - 1].s)",
        "if (n > 0 && d == axes[n - 1].n * axes[n - 1].d)",
    ),
    Fault(
        "pack",
        "what is behind the last block of an axis is left out",
        "csrc/pack/loop_plan.c",
        "plan->rest = (tempi_axis){x.n - blocks * block,",
        "plan->rest = (tempi_axis){0 * x.n,",
    ),
    Fault(
        "pack",
        "the second half of a run of 16 to 31 bytes is a byte off",
        "csrc/pack/runs.inc",
        "*(const vec16 *)(src + run - 16);",
        "*(const vec16 *)(src + run - 15);",
    ),
    Fault(
        "pack",
        "four words that are merged take the next from three on",
        "csrc/pack/loops.inc",
        "        dst += 16;\n        src += 4 * x.s;",
        "        dst += 16;\n        src += 3 * x.s;",
    ),
    Fault(
        "pack",
        "of work put off only the first operation is done",
        "csrc/pack/submit.c",
        "    work->n = n;",
        "    work->n = 1;",
    ),
    # ---- memory ------------------------------------------------------------------------------------
    Fault(
        "memory",
        "a run in a table of variable runs reaches to the packed end",
        "csrc/memory/partition.c",
        "inner.run = box->run ? box->run : e[1].packed - e[0].packed;",
        "inner.run = box->run ? box->run : e[1].packed;",
    ),
    Fault(
        "memory",
        "a box is where its first byte is",
        "csrc/memory/partition.c",
        "if (owner == UNKNOWN || covers(&l->known, from, end))",
        "if (owner == UNKNOWN || covers(&l->known, from, from))",
    ),
    Fault(
        "memory",
        "managed memory is taken for the host's",
        "csrc/shim/p2p/message.c",
        "if (memory.kind == TEMPI_MEMORY_DEVICE || memory.kind == TEMPI_MEMORY_MANAGED) {",
        "if (memory.kind == TEMPI_MEMORY_DEVICE) {",
    ),
    Fault(
        "memory",
        "what was known of freed memory holds for what comes after it",
        "csrc/memory/kind.c",
        "id == known->buffer_id;",
        "id != known->buffer_id + 1;",
    ),
    # ---- transfer ------------------------------------------------------------------------------------
    Fault(
        "transfer",
        "a record that belongs into the gap is not moved there",
        "csrc/transfer/records.c",
        ">= ((i - gap) & tempi_records.mask)",
        "> ((i - gap) & tempi_records.mask)",
    ),
    Fault(
        "transfer",
        "a staging buffer is of the next smaller class",
        "csrc/transfer/staging.c",
        "* STEPS + step + 1;",
        "* STEPS + step;",
    ),
    Fault(
        "transfer",
        "a staging buffer that comes back is not given to the budget",
        "csrc/transfer/staging.c",
        "    tempi_budget_give(capacity);\n}",
        "}",
    ),
    Fault(
        "transfer",
        "a slab is cut beyond its end",
        "csrc/transfer/slab.c",
        "if (!open_slab || open_slab->used + whole > SLAB_BYTES)",
        "if (!open_slab)",
    ),
    Fault(
        "transfer",
        "a stretch within another one shortens it",
        "csrc/transfer/sparse_mapping.c",
        "else if (apart->of[i].high > last->high)",
        "else",
        tests=("tests/unit/test_sparse_mapping.py",),
    ),
    Fault(
        "transfer",
        "a bounce buffer of several pieces has the place of the first only",
        "csrc/transfer/bounce_buffer.c",
        "*hi = i == 0 || to > *hi ? to : *hi;",
        "*hi = i == 0 ? to : *hi;",
        tests=("tests/unit/test_bounce_buffer.py",),
    ),
    # ---- choose ------------------------------------------------------------------------------------
    Fault(
        "choose",
        "MPICH: runs of 16 bytes far apart are left to the library",
        "csrc/choose/rule.c",
        "return s.run <= 8 ? never : from_to(1, 256 * KIB);",
        "return s.run <= 16 ? never : from_to(1, 256 * KIB);",
    ),
    Fault(
        "choose",
        "Open MPI: between the eager limit and the first long message tempi acts",
        "csrc/choose/rule.c",
        "window.gap = EAGER_LAST + 1;\n    window.resume = window.first;",
        "window.gap = EAGER_LAST + 1;\n    window.resume = EAGER_LAST + 1;",
    ),
    Fault(
        "choose",
        "a predicted message is not unpacked",
        "csrc/choose/predict.c",
        "p.host = p.pack + p.message + p.unpack;",
        "p.host = p.pack + p.message;",
    ),
    Fault(
        "choose",
        "tempi acts where it is predicted to be a little slower",
        "csrc/choose/predict.c",
        "(1 - TEMPI_MODEL_MARGIN)",
        "(1 + TEMPI_MODEL_MARGIN)",
    ),
    # ---- cuda ------------------------------------------------------------------------------------
    Fault(
        "cuda",
        "an axis is cut where it cannot be",
        "csrc/cuda/plan_strided.c",
        "if (s->table || (!last && s->axis.n % n != 0))",
        "if (s->table)",
        tests=("tests/kernels/test_plans_fuzz.py",),
    ),
    Fault(
        "cuda",
        "axes of different packed steps are one",
        "csrc/cuda/plan_strided.c",
        "dst->axis.p != src->axis.p && n > 1;",
        "dst->axis.p != src->axis.p && n < 1;",
        tests=("tests/kernels/test_plans_fuzz.py",),
    ),
    Fault(
        "cuda",
        "the map names the box that begins behind a chunk",
        "csrc/cuda/plan_boxes.c",
        "to->boxes[box + 1].chunk <= g << shift",
        "to->boxes[box + 1].chunk <= (g + 1) << shift",
    ),
    Fault(
        "cuda",
        "a table's uneven steps are taken for even ones",
        "csrc/cuda/plan_offsets.c",
        "if (position(table, j) != j * step)",
        "if (position(table, j) < 0)",
    ),
    Fault(
        "cuda",
        "work that is not ready is taken for done",
        "csrc/cuda/batch.c",
        'return *ready ? tempi_cuda_check(result, "cuEventQuery") : TEMPI_OK;',
        "*ready = true;\n    return TEMPI_OK;",
    ),
    Fault(
        "cuda",
        "buffers of a failed launch are given back while it may run",
        "csrc/cuda/batch.c",
        "    if (status != TEMPI_OK) {\n        (void)drain(batch);\n        end(batch, status);",
        "    if (status != TEMPI_OK) {\n        end(batch, status);",
    ),
    # ---- shim: point-to-point ------------------------------------------------------------------------
    Fault(
        "p2p",
        "a short message is unpacked as a full one",
        "csrc/shim/p2p/recv.c",
        "tempi_message_unpack(message, tempi_status_bytes(k->status), call)",
        "tempi_message_unpack(message, message->op.n, call)",
    ),
    Fault(
        "p2p",
        "the status of a message to oneself has no tag",
        "csrc/shim/p2p/loopback.c",
        "    status->MPI_TAG = tag;",
        "    (void)tag;",
    ),
    Fault(
        "p2p",
        "a message to oneself may go from one device to another",
        "csrc/shim/p2p/loopback.c",
        "out.op.device == in.op.device &&\n",
        "\n",
    ),
    Fault(
        "p2p",
        "a message to oneself overtakes an earlier one",
        "csrc/shim/p2p/loopback.c",
        "tempi_posted_own(comm, dest) &&\n           tempi_posted_clear(tempi_posted_of(comm, false));",
        "tempi_posted_own(comm, dest);",
    ),
    Fault(
        "p2p",
        "a combined call has the program's count with our packed bytes",
        "csrc/shim/p2p/recv.c",
        "        h.count = tempi_wire_count(&h.message);\n",
        "",
    ),
    Fault(
        "p2p",
        "a deferred synchronous send does not wait for its receive",
        "csrc/shim/request/deferred_sends.c",
        "record->error = tempi_fwd_Issend(",
        "record->error = tempi_fwd_Isend(",
        tests=("tests/mpi/test_deferred.py",),
    ),
    Fault(
        "p2p",
        "a deferred send is posted though its pack failed",
        "csrc/shim/request/deferred_sends.c",
        "if (tempi_pack_error(&record->ticket) != TEMPI_OK) {",
        "if (tempi_pack_error(&record->ticket) > TEMPI_ERR_DEVICE + 100) {",
        tests=("tests/mpi/test_device_errors.py",),
    ),
    # ---- shim: requests ------------------------------------------------------------------------------
    Fault(
        "request",
        "a request that Test did not complete is forgotten",
        "csrc/shim/request/complete.c",
        "    if (rc == MPI_SUCCESS && !*flag) {\n        put_back(c.first, request);\n",
        "    if (rc == MPI_SUCCESS && !*flag) {\n",
    ),
    Fault(
        "request",
        "a status' error counts though the call had none",
        "csrc/shim/request/complete.c",
        "const bool reported = rc == MPI_ERR_IN_STATUS && status;",
        "const bool reported = status != NULL;",
    ),
    Fault(
        "request",
        "statuses of a long Waitall are lost when the arrays grow",
        "csrc/shim/request/complete.c",
        "    memcpy(statuses, a->statuses, n * sizeof *statuses);",
        "    memset(statuses, 0, n * sizeof *statuses);",
    ),
    Fault(
        "request",
        "records of a long Waitall are lost when the arrays grow",
        "csrc/shim/request/complete.c",
        "    memcpy(ops, a->ops, n * sizeof *ops);",
        "    memset(ops, 0, n * sizeof *ops);",
    ),
    Fault(
        "request",
        "deferred sends are posted the youngest first",
        "csrc/shim/request/deferred_sends.c",
        "    *deferred.tail = record;\n    deferred.tail = &record->next;",
        "    record->next = deferred.head;\n    deferred.head = record;\n"
        "    deferred.tail = record->next ? deferred.tail : &record->next;",
        tests=("tests/mpi/test_deferred.py", "tests/mpi/test_completion.py@deferred"),
    ),
    # ---- shim: types ------------------------------------------------------------------------------
    Fault(
        "type",
        "elements astray in blocks are not seen",
        "csrc/shim/type/traits.c",
        "            p.spread |= (uint64_t)c->addresses[i] - (uint64_t)first;",
        "            p.spread |= 0;",
    ),
    Fault(
        "type",
        "a vector's stride is in bytes",
        "csrc/shim/type/traits.c",
        ": (uint64_t)tempi_contents_number(c, 2) * (uint64_t)extent;",
        ": (uint64_t)tempi_contents_number(c, 2);",
    ),
    # ---- shim: bounces ------------------------------------------------------------------------------
    Fault(
        "bounce",
        "bytes that a call leaves alone are not kept",
        "csrc/shim/bounce/bounce.c",
        "!(h->does & (TEMPI_READS | TEMPI_KEEPS)))",
        "!(h->does & TEMPI_READS))",
    ),
    Fault(
        "bounce",
        "a buffer that is read and written does not come back",
        "csrc/shim/bounce/bounce.c",
        "if (h->host.bytes == 0 || !(h->does & TEMPI_WRITES))",
        "if (h->host.bytes == 0 || h->does & TEMPI_READS)",
    ),
    Fault(
        "bounce",
        "leaves of a broadcast get nothing",
        "csrc/shim/bounce/bounce.c",
        "tempi_bounce_at_leaf(comm, root) ? TEMPI_WRITES : 0;",
        "tempi_bounce_at_leaf(comm, root) ? TEMPI_READS : 0;",
    ),
    Fault(
        "bounce",
        "a window's synchronisation does not bring in what was fetched",
        "csrc/shim/bounce/bounce.c",
        "    if (bounce && rc == MPI_SUCCESS)\n        tempi_bounce_list(bounce, target);",
        "    (void)target;",
        tests=("tests/mpi/test_bounce_windows.py",),
    ),
    # ---- shim: communicators -----------------------------------------------------------------------
    Fault(
        "comm",
        "every rank is taken for one of the node",
        "csrc/shim/comm/peer_class.c",
        "here == entry->size ? TEMPI_PEER_NODE : TEMPI_PEER_OTHER;",
        "here >= 0 ? TEMPI_PEER_NODE : TEMPI_PEER_OTHER;",
    ),
    Fault(
        "comm",
        "an intercommunicator's peers are those of the own group",
        "csrc/shim/comm/peer_class.c",
        "(inter ? tempi_lib.Comm_remote_group : tempi_lib.Comm_group)(comm, &group)",
        "tempi_lib.Comm_group(comm, &group)",
    ),
    # ---- interposer ----------------------------------------------------------------------------------
    Fault(
        "interposer",
        "without an MPI, PMPI_Initialized is an error",
        "csrc/interposer/resolve.c",
        "    name += name[0] == 'P';\n",
        "",
    ),
    Fault(
        "interposer",
        "tempi that is off calls past a tool behind it",
        "csrc/interposer/resolve.c",
        "name[0] == 'P' ? lib(name + 1) : next(name);",
        "name[0] == 'P' ? lib(name + 1) : lib(name);",
    ),
    Fault(
        "interposer",
        "tempi is on in a simulation",
        "csrc/interposer/resolve.c",
        "void *const *entries = mpi.simulated ? NULL : shim_load(0);",
        "void *const *entries = shim_load(0);",
        tests=("tests/preload/test_errors.py",),
    ),
    # ---- topology ------------------------------------------------------------------------------------
    Fault(
        "topology",
        "one late look makes a peer a far one",
        "csrc/topology/locality.c",
        "return 2 * far > n;",
        "return far > 0;",
    ),
    Fault(
        "topology",
        "a line that nobody has written counts as looked at",
        "csrc/topology/locality.c",
        "if (beats == s->beats)",
        "if (false)",
    ),
    # ---- exchange: messages that wait in shared memory ---------------------------------------------------
    Fault(
        "exchange",
        "a message is used again before its receiver has gone on",
        "csrc/exchange/post_box.c",
        "if (mine->oldest == mine->newest || passed <= mine->index)",
        "if (mine->oldest == mine->newest)",
    ),
    Fault(
        "exchange",
        "the bytes of a message are used again before they were read",
        "csrc/exchange/post_box.c",
        "if (!__atomic_load_n(&post->taken, __ATOMIC_ACQUIRE))",
        "if (passed < mine->index)",
    ),
    Fault(
        "exchange",
        "a block is as long as the step below its length",
        "csrc/exchange/post_box.c",
        "steps = (n + step - 1) / step;",
        "steps = n / step;",
    ),
    Fault(
        "exchange",
        "a block without pages is used without memory for them",
        "csrc/exchange/post_box.c",
        "return allocate(box, place + page(), room - page()) ? pop(box, without, room) : 0;",
        "return 0;",
    ),
    Fault(
        "exchange",
        "no long block gives its pages back",
        "csrc/exchange/post_box.c",
        "if (room > SHORT && box->idle + room > IDLE) {",
        "if (room > REGION) {",
    ),
    Fault(
        "exchange",
        "a block that cannot be mapped is lost",
        "csrc/exchange/post_box.c",
        "        give_pages_back(box, place, room);\n        return 0;",
        "        box->top += room;\n        return 0;",
    ),
    Fault(
        "exchange",
        "a signal makes memory run out",
        "csrc/exchange/segment.c",
        "while (error == EINTR);",
        "while (false);",
    ),
    # ---- coll: nonblocking and persistent collectives -----------------------------------------------------
    Fault(
        "coll",
        "all persistent requests of a communicator have one channel",
        "csrc/shim/coll/coll_request.c",
        "    r->channel = ++call->node->channels;\n",
        "    r->channel = 1;\n",
    ),
    Fault(
        "coll",
        "a message that comes before its request is dropped",
        "csrc/shim/coll/coll_request.c",
        "            node->unmatched = later;\n            continue;",
        "            node->unmatched = later->next;\n            continue;",
    ),
    Fault(
        "coll",
        "a type may be gone when its blocks come",
        "csrc/shim/coll/coll_request.c",
        "    r->in.outlives = !r->kept;\n",
        "",
    ),
    Fault(
        "coll",
        "processes are not told of an error before theirs were described",
        "csrc/shim/coll/coll_request.c",
        "const int64_t bytes = failed ? -1 : bytes_to(out, to);",
        "const int64_t bytes = failed && bytes_to(out, to) > 0 ? -1 : bytes_to(out, to);",
    ),
    Fault(
        "coll",
        "an inactive persistent request stands for the one of its last start",
        "csrc/shim/coll/coll_request.c",
        "if (!record->active || !r->kept)",
        "if (!r->kept)",
    ),
    Fault(
        "coll",
        "the types of buffers that are not used are looked at",
        "csrc/shim/coll/kept_call.c",
        "if (edges->n == 0 || !buffer->does)",
        "if (edges->n < 0)",
    ),
    Fault(
        "coll",
        "staging buffers are freed twice",
        "csrc/shim/coll/blocks.c",
        "    blocks->nstaged = blocks->n = 0;\n",
        "",
    ),
    Fault(
        "coll",
        "a message that is too long is no error",
        "csrc/shim/coll/coll_request.c",
        "return post->bytes > a->bytes ? MPI_ERR_TRUNCATE : MPI_SUCCESS;",
        "return MPI_SUCCESS;",
        ("tests/preload/test_exchanges.py",),
    ),
)
