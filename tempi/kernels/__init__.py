"""GPU kernels, written with Numba and compiled when tempi is built: running them needs no Python.

    _table     names and parameters of all kernels, for the engine's planner and the compiler
    _ops       instructions that Numba cannot express: 32-bit arithmetic, words of 1 to 16 bytes
    _place, _lookup, _move    from a word's number to its position, by axes and tables; moving it
    _strided, _narrow, _table_box, _boxes, _transpose    the families
    _compile   Python -> PTX -> machine code for every target
    _build     the build step: reuse or compile images, and generate the C that embeds them

``python -m tempi.kernels`` compiles all of them and lists registers, spills and sizes.

Every kernel is a copy from `src` to `dst` with a stride for either side on every axis; packing,
unpacking and strided to strided differ in the numbers only. Threads are numbered along the packed
side, so its accesses are full lines for runs of any length. No kernel reads or writes a byte
outside the runs. Words are numbered with 32 bits: the planner (csrc/cuda/plan.c) splits larger
copies. ``_i32`` kernels have 32-bit byte offsets too, ``_i64`` kernels 64-bit ones.
"""
