"""Every instruction that computes, against its model, on edge values and random ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from itertools import product

import pytest

from emulator.driver import Driver
from emulator.models import CASES, M64, Case

WIDTH = {"p": 1, "h": 16, "w": 32, "l": 64}
DECLARED = {"p": "pred", "h": "b16", "w": "b32", "l": "b64"}
EDGES = (0, 1, 2, 5, 7, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF)
MORE = (0x80000000, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, 1 << 63, M64, 0x3F800000, 0x3FF0000000000000)
FLOATS = (0x7F800000, 0xFF800000, 0x7FC00000, 0xC2F6E979, 0x7FF0000000000000, 0x7FF8000000000000, 0xC05EDD2F1A9FBE77)
HEADER = ".version 7.0\n.target sm_70\n.address_size 64\n"
TO_REGISTER = {
    "p": "setp.ne.u64 {to}, {source}, 0;",
    "h": "cvt.u16.u64 {to}, {source};",
    "w": "cvt.u32.u64 {to}, {source};",
    "l": "mov.b64 {to}, {source};",
}
FROM_REGISTER = {
    "p": "selp.b64 {to}, 1, 0, {source};",
    "h": "cvt.u64.u16 {to}, {source};",
    "w": "cvt.u64.u32 {to}, {source};",
    "l": "mov.b64 {to}, {source};",
}


def kernel(number: int, case: Case) -> str:
    """Thread i of a row of threads computes the i-th of the results."""
    names = "abc"[: len(case.ins)]
    registers = "".join(f".reg .{DECLARED[k]} %{n};" for n, k in zip(names, case.ins, strict=True))
    loads = "".join(
        f"ld.global.u64 %t, [%at+{8 * i}];" + TO_REGISTER[k].format(to=f"%{n}", source="%t")
        for i, (n, k) in enumerate(zip(names, case.ins, strict=True))
    )
    back = FROM_REGISTER[case.out].format(to="%t", source="%d")
    return f"""
.visible .entry k{number}(.param .u64 source, .param .u64 target) {{
  .reg .b64 %at, %to, %t, %i; .reg .b32 %x, %n, %y;
  .reg .{DECLARED[case.out]} %d; {registers}
  ld.param.u64 %at, [source]; ld.param.u64 %to, [target];
  mov.u32 %x, %tid.x; mov.u32 %n, %ntid.x; mov.u32 %y, %ctaid.x; mad.lo.u32 %x, %y, %n, %x; cvt.u64.u32 %i, %x;
  mad.lo.u64 %at, %i, 24, %at; mad.lo.u64 %to, %i, 8, %to;
  {loads}
  {case.text}
  {back} st.global.u64 [%to], %t; ret;
}}"""


@pytest.fixture(scope="module")
def ptx() -> str:
    return HEADER + "".join(kernel(i, case) for i, case in enumerate(CASES))


def vectors(case: Case) -> list[tuple[int, ...]]:
    """Operands: edge values in all pairs, then random ones, each cut to its register."""
    chance = random.Random(case.text)
    values = (*EDGES, *MORE, *FLOATS)
    pairs = list(product(values, values)) if len(case.ins) > 1 else [(v, 0) for v in values]
    rows: list[tuple[int, ...]] = [(a, b, chance.choice(values)) for a, b in pairs]
    rows += [tuple(chance.getrandbits(chance.choice((8, 33, 64))) for _ in range(3)) for _ in range(64)]
    widths = [WIDTH[k] for k in case.ins]
    return [tuple(v & ((1 << w) - 1) for v, w in zip(row, widths, strict=False)) for row in rows]


def run(cuda: Driver, function: int, rows: list[tuple[int, ...]]) -> list[int]:
    data = b"".join(struct.pack("<3Q", *row, *([0] * (3 - len(row)))) for row in rows)
    source, target = cuda.upload(data), cuda.alloc(8 * len(rows))
    cuda.launch(function, (source, target), grid=(len(rows),))
    return list(struct.unpack(f"<{len(rows)}Q", cuda.read(target, 8 * len(rows))))


@pytest.fixture(scope="module")
def loaded(driver: Driver, ptx: str) -> Callable[[int], int]:
    driver.start(0)
    driver.streams("immediate")
    module = driver.load(ptx)
    return lambda number: driver.function(module, f"k{number}")


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{i}-{c.name}" for i, c in enumerate(CASES)])
def test_instruction_computes_as_its_model(driver: Driver, loaded: Callable[[int], int], number: int) -> None:
    case = CASES[number]
    rows = vectors(case)
    mask = (1 << WIDTH[case.out]) - 1
    expected = [case.model(*row) & mask for row in rows]
    assert run(driver, loaded(number), rows) == expected
