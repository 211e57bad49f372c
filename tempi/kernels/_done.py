"""How a kernel tells the host that it is done: the end that every kernel gets.

    every block    threads meet; one makes the block's accesses visible to the device and counts the block
    the last one   makes all of them visible to the whole system, sets the counter back to 0 and writes 1 to the flag, in
                   pinned memory, which the host polls

So no call of the driver is needed behind the launch (csrc/cuda/completion.c). A launch with `done` 0 skips it.

By the memory consistency model of PTX (PTX ISA, chapter 8; sm_70 and later):

- The barrier orders the block's accesses before the thread that fences: `bar` and `barrier` synchronize (8.9.4).
  ``barrier.sync`` needs no converged warp.
- A fence and the relaxed atomic behind it are a release pattern, the last block's atomic and the fence behind that an
  acquire pattern (8.8); a reduction, `red`, would be none. Each earlier atomic is observed by the last one through
  those in between (8.9.2). The scope of each fence includes the other one's thread, which is all that makes them morally
  strong (8.7): that of the device is enough for the blocks. So the two synchronize.
- The last block's fence, of system scope, and its store are a release pattern for the host's threads (8.5), of all that
  precedes it in causality order, which is transitive whatever the scopes in between (8.9.5): also of what other blocks
  wrote to the host's memory. The flag has one address for host and device (csrc/cuda/pinned.c); with two a
  proxy fence would be needed (8.6).

One fence of system scope, not one a block and two in the last: on an H200 that takes 1 microsecond less where 16 blocks
write device memory, 1.5 where they write the host's.

It is PTX, not Python: the same text for every kernel, and Numba has no such store.
"""

from __future__ import annotations

__all__ = ["append"]

_END = """\
$L_tempi_end:
	ld.param.u64 %end_d1, [{name}_param_done];
	setp.eq.u64 %end_p1, %end_d1, 0;
	@%end_p1 bra $L_tempi_ret;
	barrier.sync 0;
	mov.u32 %end_r1, %tid.x;
	setp.ne.u32 %end_p2, %end_r1, 0;
	@%end_p2 bra $L_tempi_ret;
	fence.acq_rel.gpu;
	ld.param.u64 %end_d2, [{name}_param_counter];
	mov.u32 %end_r2, %nctaid.x;
	add.s32 %end_r3, %end_r2, -1;
	atom.relaxed.gpu.global.inc.u32 %end_r4, [%end_d2], %end_r3;
	setp.ne.u32 %end_p3, %end_r4, %end_r3;
	@%end_p3 bra $L_tempi_ret;
	fence.acq_rel.sys;
	mov.u32 %end_r5, 1;
	st.relaxed.sys.global.u32 [%end_d1], %end_r5;
$L_tempi_ret:
	ret;
"""
_REGISTERS = "\t.reg .pred %end_p<4>;\n\t.reg .b32 %end_r<6>;\n\t.reg .b64 %end_d<3>;\n"


def append(entry: str, name: str) -> str:
    """The PTX of a kernel with the two parameters and the end."""
    head, brace, body = entry.partition("\n{")
    at = head.rindex("\n)")
    head = f"{head[:at]},\n\t.param .u64 {name}_param_done,\n\t.param .u64 {name}_param_counter{head[at:]}"
    body, last, rest = body.rpartition("\tret;\n")
    body = body.replace("\tret;\n", "\tbra $L_tempi_end;\n")
    if not last or not brace or "exit;" in body:
        raise ValueError(f"{name}: no return to put the end before")
    return f"{head}{brace}\n{_REGISTERS}{body}{_END.format(name=name)}{rest}"
