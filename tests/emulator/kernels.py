"""PTX kernels that the driver's tests launch."""

from __future__ import annotations

HEADER = ".version 7.0\n.target sm_70\n.address_size 64\n"

# out[i] = in[i] + 1 for i of all threads: 32-bit words
INCREMENT = """
.visible .entry increment(.param .u64 source, .param .u64 target)
{
  .reg .b64 %s, %t, %o; .reg .b32 %i, %n, %c, %v;
  ld.param.u64 %s, [source]; ld.param.u64 %t, [target];
  mov.u32 %i, %tid.x; mov.u32 %n, %ntid.x; mov.u32 %c, %ctaid.x; mad.lo.u32 %i, %c, %n, %i;
  mul.wide.u32 %o, %i, 4; add.u64 %s, %s, %o; add.u64 %t, %t, %o;
  ld.global.u32 %v, [%s]; add.u32 %v, %v, 1; st.global.u32 [%t], %v; ret;
}
"""

# Reverses a block through dynamic shared memory.
REVERSE = """
.extern .shared .align 4 .b8 room[];
.visible .entry reverse(.param .u64 data)
{
  .reg .b64 %d, %o; .reg .b32 %i, %n, %v, %a;
  ld.param.u64 %d, [data]; mov.u32 %i, %tid.x; mov.u32 %n, %ntid.x;
  mul.wide.u32 %o, %i, 4; add.u64 %d, %d, %o;
  ld.global.u32 %v, [%d]; mov.u32 %a, room; mad.lo.u32 %a, %i, 4, %a; st.shared.u32 [%a], %v;
  bar.sync 0;
  sub.u32 %i, %n, %i; sub.u32 %i, %i, 1; mov.u32 %a, room; mad.lo.u32 %a, %i, 4, %a;
  ld.shared.u32 %v, [%a]; st.global.u32 [%d], %v; ret;
}
"""

# Half of the threads leave before the barrier.
DIVERGENT = """
.visible .entry divergent()
{
  .reg .b32 %i; .reg .pred %p;
  mov.u32 %i, %tid.x; setp.gt.u32 %p, %i, 15; @%p ret;
  bar.sync 0; ret;
}
"""

# The lanes of a warp come to the same barrier by two instructions.
SPLIT = """
.visible .entry split(.param .u64 aligned)
{
  .reg .b32 %i; .reg .pred %p; .reg .b64 %a;
  mov.u32 %i, %tid.x; setp.gt.u32 %p, %i, 15; @%p bra ELSE; ld.param.u64 %a, [aligned];
  setp.ne.u64 %p, %a, 0; @%p bra STRICT;
  barrier.sync 1; ret;
STRICT:
  barrier.sync.aligned 1; ret;
ELSE:
  barrier.sync 1; ret;
}
"""

# Every lane stores what lane ^ 1 holds, then how many lanes are odd, then sums the block by atomics.
LANES = """
.visible .entry lanes(.param .u64 out)
{
  .reg .b64 %o, %x; .reg .b32 %i, %v, %b; .reg .pred %p, %q;
  ld.param.u64 %o, [out]; mov.u32 %i, %tid.x;
  shfl.sync.bfly.b32 %v|%q, %i, 1, 31, -1;
  and.b32 %b, %i, 1; setp.eq.u32 %p, %b, 1; vote.sync.ballot.b32 %b, %p, -1;
  atom.global.add.u32 %b, [%o], %v;
  red.global.max.u32 [%o+4], %v;
  mul.wide.u32 %x, %i, 4; add.u64 %x, %o, %x; st.global.u32 [%x+8], %v; ret;
}
"""

# Waits until the word at `flag` is not zero, then stores it at `out`.
SPIN = """
.visible .entry spin(.param .u64 flag, .param .u64 out)
{
  .reg .b64 %f, %o; .reg .b32 %v; .reg .pred %p;
  ld.param.u64 %f, [flag]; ld.param.u64 %o, [out];
AGAIN:
  ld.acquire.sys.global.u32 %v, [%f]; setp.eq.u32 %p, %v, 0; @%p bra AGAIN;
  st.release.sys.global.u32 [%o], %v; ret;
}
"""

# Copies 16 bytes by a load and a store of every vector shape.
VECTORS = """
.visible .entry vectors(.param .u64 source, .param .u64 target)
{
  .reg .b64 %s, %t, %x<2>; .reg .b32 %a<4>; .reg .b16 %h<4>;
  ld.param.u64 %s, [source]; ld.param.u64 %t, [target];
  ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%s]; st.global.v4.u32 [%t], {%a0, %a1, %a2, %a3};
  ld.global.v2.u64 {%x0, %x1}, [%s+16]; st.global.v2.u64 [%t+16], {%x0, %x1};
  ld.volatile.global.v2.u32 {%a0, %a1}, [%s+32]; st.volatile.global.v2.u32 [%t+32], {%a0, %a1};
  ld.global.nc.L1::no_allocate.v4.u16 {%h0, %h1, %h2, %h3}, [%s+40];
  st.global.cs.v4.u16 [%t+40], {%h0, %h1, %h2, %h3};
  ld.u8 %h0, [%s+48]; st.u8 [%t+48], %h0;
  ld.global.s8 %a0, [%s+48]; st.global.u32 [%t+52], %a0;
  mov.b64 {%a0, %a1}, %x1; mov.b64 %x0, {%a1, %a0}; st.global.u64 [%t+56], %x0; ret;
}
"""

# Static shared, local, const and global variables, each through its own window of generic addresses.
SPACES = """
.global .align 4 .u32 counter = 7;
.const .align 4 .b8 table[8] = {1, 2, 3, 4, 5};
.visible .entry spaces(.param .u64 out)
{
  .local .align 8 .b8 depot[16]; .shared .align 4 .b8 tile[64];
  .reg .b64 %o, %g, %l; .reg .b32 %v, %w;
  ld.param.u64 %o, [out];
  mov.u64 %g, counter; ld.global.u32 %v, [%g]; st.global.u32 [%o], %v; add.u32 %v, %v, 1; st.global.u32 [counter], %v;
  ld.const.u32 %v, [table+4]; st.global.u32 [%o+4], %v;
  mov.u64 %l, tile; cvta.shared.u64 %l, %l; mov.u32 %v, 1234; st.u32 [%l+8], %v; ld.shared.u32 %w, [tile+8];
  st.global.u32 [%o+8], %w;
  mov.u64 %l, depot; cvta.local.u64 %l, %l; st.u32 [%l+4], %v; ld.local.u32 %w, [depot+4]; st.global.u32 [%o+12], %w;
  ret;
}
"""

ALL = HEADER + INCREMENT + REVERSE + DIVERGENT + SPLIT + LANES + SPIN + VECTORS + SPACES
