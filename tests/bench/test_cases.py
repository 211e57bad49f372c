from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tempi.bench import cases

pytestmark = pytest.mark.once

KIB = cases.KIB


def _buffer(case: cases.Case) -> cases.Bytes:
    return np.random.default_rng(1).integers(0, 256, case.span, dtype=np.uint8)


def _vector(case: cases.Vector) -> npt.NDArray[np.int64]:
    starts = np.arange(case.blocks) * case.stride
    places: npt.NDArray[np.int64] = (starts[:, None] + np.arange(case.length)).reshape(-1)
    return places


def _face(case: cases.Face) -> npt.NDArray[np.int64]:
    places = [
        8 * ((z * case.edge + y) * case.edge + x) + byte
        for z in (range(1, 2) if case.axis == 0 else range(1, case.edge - 1))
        for y in (range(1, 2) if case.axis == 1 else range(1, case.edge - 1))
        for x in (range(1, 2) if case.axis == 2 else range(1, case.edge - 1))
        for byte in range(8)
    ]
    return np.array(places)


@pytest.mark.parametrize("length", [4, 8, 16, 64])
def test_a_vector_gathers_its_blocks(length: int) -> None:
    case = cases.Vector(KIB, length, 3 * length)
    buffer = _buffer(case)
    assert np.array_equal(case.gather(buffer), buffer[_vector(case)])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_face_gathers_its_interior(axis: int) -> None:
    case = cases.Face(6, axis)
    buffer = _buffer(case)
    assert np.array_equal(case.gather(buffer), buffer[_face(case)])
    assert case.run == (8 if axis == 2 else 32)


def test_a_field_gathers_one_member_of_each_struct() -> None:
    case = cases.Field(80)
    buffer = _buffer(case)
    expected = np.concatenate([buffer[40 * i + 8 : 40 * i + 16] for i in range(10)])
    assert np.array_equal(case.gather(buffer), expected)


def test_a_transpose_gathers_columns() -> None:
    case = cases.Transpose(3)
    buffer = _buffer(case)
    order = [0, 3, 6, 1, 4, 7, 2, 5, 8]
    assert np.array_equal(case.gather(buffer).view("u8"), buffer.view("u8")[order])


def test_random_blocks_are_distinct_and_in_no_order() -> None:
    places = cases.Indexed(KIB)._places()
    assert len(set(places.tolist())) == KIB // 16
    assert np.any(np.diff(places) < 0)


@pytest.mark.parametrize(
    "case",
    [
        cases.Vector(KIB, 8, 24),
        cases.Face(6, 1),
        cases.Indexed(KIB),
        cases.Field(80),
        cases.Transpose(5),
    ],
    ids=lambda case: case.name,
)
def test_scatter_undoes_gather_and_leaves_the_rest(case: cases.Case) -> None:
    buffer, target = _buffer(case), np.zeros(case.span, np.uint8)
    packed = case.gather(buffer)
    assert packed.size == case.nbytes
    case.scatter(target, packed)
    assert np.array_equal(case.gather(target), packed)
    rest = _buffer(case)
    case.scatter(rest, packed)
    assert np.array_equal(rest, buffer)


def test_a_halo_gathers_its_layers() -> None:
    case = cases.Halo(3, 1, (0, 1, -1))
    buffer = _buffer(case)
    cube = buffer.view("u8").reshape(5, 5, 5)
    assert np.array_equal(case.gather(buffer).view("u8"), cube[1:4, 3, 1])
    assert (case.nbytes, case.run) == (24, 8)


def test_names_tell_cases_apart() -> None:
    everything = cases.messages(quick=False)
    assert len({case.name for case in everything}) == len(everything)
    assert {case.name for case in cases.messages(quick=True)} <= {case.name for case in everything}


def test_all_targets_are_covered() -> None:
    vectors = {(case.size, case.length, case.stride) for case in cases.all_cases() if isinstance(case, cases.Vector)}
    for size in (4 * KIB, 64 * KIB, 1 << 20, 16 << 20):
        for run in (4, 8, 16, 64, 256, 1024, 4096):
            assert (size, run, 2 * run) in vectors
            assert all((size, run, wide) in vectors for wide in (512, 4096) if wide > run)


def test_sizes_are_named() -> None:
    assert cases.size_name(4096) == "4 KiB"
    assert cases.size_name(16 << 20) == "16 MiB"
    assert cases.size_name(100) == "100 B"
