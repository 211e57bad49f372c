"""Predicted time of each method for device memory: the sum of its parts, and the choice of the fastest."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tempi.expression import parse
from tempi.model import grid, predict, store

CARD = store.Gpu("NVIDIA Abacus", "570.1", 12080, False)
HERE = replace(store.machine("some MPI 1.0"), gpu=CARD)
SIZES = (256, 4096, 65536, 1 << 20, 1 << 24)
COLUMNS = [grid.Column("regular", run, stride) for run in (8, 64) for stride in (2 * run, 576, 4160)]
SHIFTED = grid.Column(grid.SHIFTED, 64, 128)
LAUNCH, PIECE = 8e-6, 1 << 20
#: Seconds of nothing, and of a byte.
COSTS = {
    "device_pack": (LAUNCH, 5e-12), "device_unpack": (LAUNCH, 7e-12), "mapped_pack": (LAUNCH, 6e-11),
    "mapped_unpack": (LAUNCH, 9e-11), "copy_out": (LAUNCH + 2e-6, 4e-11), "copy_in": (LAUNCH + 3e-6, 5e-11),
    "pinned_message": (1e-6, 1e-10), "device_message": (2e-5, 1e-11), "device_library": (1e-5, 2e-10),
    "device_library_pack": (5e-6, 2e-10), "device_library_unpack": (6e-6, 3e-10), "mapped_library_pack": (6e-6, 4e-10),
    "mapped_library_unpack": (7e-6, 5e-10),
}  # fmt: skip


def cost(quantity: str, size: int, run: int = 8) -> float:
    latency, byte = COSTS[quantity]
    return latency + byte * size * (8 / run if "pack" in quantity else 1)


def points(memory: str = "device") -> list[store.Point]:
    made = [store.Point("launch", grid.PLAIN, 1, None, (LAUNCH,) * 9, "device")]
    for quantity in COSTS:
        peer = "node" if quantity in grid.DEVICE_MESSAGES else None
        shaped = "pack" in quantity or quantity == "device_library"
        for column in (*COLUMNS, SHIFTED) if shaped else [grid.PLAIN]:
            factor = 3.0 if column == SHIFTED else 1.0
            for n in SIZES:
                seconds = factor * cost(quantity, n, column.run)
                made.append(store.Point(quantity, column, n, peer, (seconds,) * 9, memory if shaped else "device"))
    return made


def model_of(folder: Path, found: list[store.Point]) -> predict.Model:
    path = folder / "device.table"
    path.write_bytes(store.table_of(store.Calibration(HERE, tuple(found))))
    return predict.Model(path)


@pytest.fixture
def model(tmp_path: Path) -> predict.Model:
    return model_of(tmp_path, points())


def vector(size: int, run: int, stride: int) -> tuple[object, object]:
    kept = parse(f"hvector({size // run},1,{stride},contiguous({run},BYTE))")
    return kept.canonical(), kept


def halves(size: int, run: int) -> tuple[dict[str, float], dict[str, float]]:
    """The parts of both sides, as docs/model.md writes them."""
    made = []
    for kernels, copies, mapped in (
        ("device_pack", "copy_out", "mapped_pack"),
        ("device_unpack", "copy_in", "mapped_unpack"),
    ):
        staged = cost(kernels, size, run) + cost(copies, size) - LAUNCH
        pipelined = staged
        if size > PIECE:
            k, c = cost(kernels, PIECE, run), cost(copies, PIECE)
            pipelined = k + c + (size / PIECE - 1) * max(max(k, c) - LAUNCH, max(k, c) / 8)
        made.append({"oneshot": cost(mapped, size, run), "staged": staged, "pipelined": pipelined})
    return made[0], made[1]


@pytest.mark.parametrize(("run", "stride"), [(8, 16), (64, 4160)])
@pytest.mark.parametrize("size", SIZES)
def test_predictions_are_composed_of_their_parts(model: predict.Model, size: int, run: int, stride: int) -> None:
    layout, _owner = vector(size, run, stride)
    packs, unpacks = halves(size, run)
    message = cost("pinned_message", size)
    for operation, own, other in (("send", packs, unpacks), ("recv", unpacks, packs)):
        prediction = model.predict_device(layout, size, operation, cuda_aware=True)
        assert prediction is not None
        for name, seconds in own.items():
            assert prediction.seconds[name] == pytest.approx(seconds + message + min(other.values()))
        kernels = cost("device_pack", size, run), cost("device_message", size), cost("device_unpack", size, run)
        assert prediction.parts["device"] == pytest.approx(kernels)
        assert prediction.seconds["library"] == pytest.approx(cost("device_library", size))


def test_the_fastest_method_is_chosen_and_the_library_unless_another_is_faster_by_the_margin(
    model: predict.Model,
) -> None:
    chosen = set()
    for size, (run, stride), cuda_aware in itertools.product(SIZES, ((8, 16), (64, 576)), (False, True)):
        layout, _owner = vector(size, run, stride)
        prediction = model.predict_device(layout, size, cuda_aware=cuda_aware)
        assert prediction is not None
        assert ("device" in prediction.seconds, "library" in prediction.seconds) == (cuda_aware, cuda_aware)
        assert prediction.method == least(prediction.seconds)
        chosen.add(prediction.method)
    assert {"library", "device", "oneshot"} < chosen
    assert chosen & {"staged", "pipelined"}


def least(seconds: dict[str, float]) -> str:
    """The library is chosen only if no other method is well below it; of near equals the one with fewer steps."""
    own = {name: value for name, value in seconds.items() if name != "library"}
    best = min((name for name in own if name in ("device", "oneshot")), key=lambda name: own[name], default="staged")
    for name in ("staged", "pipelined"):
        best = name if own.get(name, math.inf) < 0.97 * own[best] else best
    return "library" if own[best] >= 0.97 * seconds.get("library", math.inf) else best


def test_a_message_without_gaps_is_left_to_the_library_or_copied(tmp_path: Path, model: predict.Model) -> None:
    chosen = set()
    for size, operation in itertools.product(SIZES, ("send", "recv")):
        dense, run = parse(f"contiguous({size},BYTE)"), parse(f"resized(0,{2 * size},contiguous({size},BYTE))")
        prediction = model.predict_device(dense.canonical(), size, operation, cuda_aware=True)
        assert prediction is not None
        parts = cost("copy_out", size), cost("pinned_message", size), cost("copy_in", size)
        assert prediction.parts["staged"] == pytest.approx(parts)
        assert prediction.seconds == pytest.approx({"library": cost("device_message", size), "staged": sum(parts)})
        assert prediction.method == least(prediction.seconds)
        assert prediction == model.predict_device(run.canonical(), size, operation, contiguous=True, cuda_aware=True)
        without = model.predict_device(dense.canonical(), size, operation)
        assert without is not None
        assert set(without.seconds) == {"staged"}
        chosen.add(prediction.method)
    assert chosen == {"library"}
    quick = [replace(p, seconds=(1e-12,) * 9) if "copy" in p.quantity else p for p in points()]
    prediction = model_of(tmp_path, quick).predict_device(dense.canonical(), 256, cuda_aware=True)
    assert prediction is not None
    assert prediction.method == "staged"


def test_contiguous_messages_that_were_not_measured_are_decided_by_the_rule(tmp_path: Path) -> None:
    made = model_of(tmp_path, [p for p in points() if p.quantity != "device_message"])
    dense = parse("contiguous(512,DOUBLE)")
    assert made.predict_device(dense.canonical(), 4096, cuda_aware=True) is None


@pytest.mark.parametrize("operation", ["pack", "unpack"])
def test_packing_is_one_sides_part_and_the_least_is_chosen(model: predict.Model, operation: str) -> None:
    chosen = set()
    for size, (run, stride), cuda_aware in itertools.product(SIZES, ((8, 16), (64, 576)), (False, True)):
        layout, _owner = vector(size, run, stride)
        own = halves(size, run)[operation == "unpack"]
        expected = {"pinned": own, "device": {"device": cost(f"device_{operation}", size, run)}}
        expected["plain"] = {"staged": own["staged"]}
        for packed, seconds in expected.items():
            kind = "device" if packed == "device" else "mapped"
            library = {"library": cost(f"{kind}_library_{operation}", size, run)} if cuda_aware else {}
            prediction = model.predict_device(layout, size, operation, packed=packed, cuda_aware=cuda_aware)
            assert prediction is not None
            assert prediction.seconds == pytest.approx(seconds | library)
            assert prediction.method == least(prediction.seconds)
            assert prediction.parts[prediction.method][operation == "pack"] == 0
            chosen.add((packed, prediction.method))
    assert {("device", "library"), ("device", "device"), ("pinned", "oneshot"), ("pinned", "library")} < chosen
    assert {("plain", "library"), ("plain", "staged")} < chosen


@pytest.mark.parametrize(("whole", "segments"), [(1 << 24, 1), (1 << 24, 16), (1 << 24, 256), (1 << 20, 16)])
def test_a_part_of_a_message_is_copied_in_its_segments(model: predict.Model, whole: int, segments: int) -> None:
    """A pipelined part is cut into the pieces of the whole message."""
    size = whole // 16  # with these numbers every lookup hits a node
    layout, _owner = vector(size, 8, 16)
    prediction = model.predict_device(layout, size, "pack", whole=whole, segments=segments)
    assert prediction is not None

    def without_launch(seconds: float) -> float:
        return max(seconds - LAUNCH, seconds / 8)

    def copied(n: float, into: float) -> float:
        one = cost("copy_out", int(n / into))
        return one + (into - 1) * without_launch(one)

    staged = cost("device_pack", size) + without_launch(copied(size, segments))
    pieces = whole / PIECE
    kernels, copies = cost("device_pack", int(size / pieces)), copied(size / pieces, max(1.0, segments / pieces))
    pipelined = kernels + without_launch(copies) + (pieces - 1) * without_launch(max(kernels, copies)) + LAUNCH
    assert prediction.seconds["staged"] == pytest.approx(staged)
    assert prediction.seconds["pipelined"] == pytest.approx(pipelined if pieces > 1 else staged)
    assert prediction.seconds["oneshot"] == pytest.approx(cost("mapped_pack", size))
    assert prediction.method == least(prediction.seconds)


def test_a_copy_that_takes_less_than_a_launch_saves_its_own_start(tmp_path: Path) -> None:
    """As on an H200: the shortest copy and a wait take 7 us, a launch and a wait 10."""
    short = LAUNCH - 3e-6
    found = [
        replace(one, seconds=(short + 4e-11 * one.size,) * 9) if one.quantity in ("copy_out", "copy_in") else one
        for one in points()
    ]
    layout, _owner = vector(65536, 8, 16)
    prediction = model_of(tmp_path, found).predict_device(layout, 65536, "pack")
    assert prediction is not None
    copy = short + 4e-11 * 65536
    assert prediction.seconds["staged"] == pytest.approx(
        cost("device_pack", 65536) + max(copy - (short + 4e-11 * SIZES[0]), copy / 8)
    )


@pytest.mark.parametrize("size", [4096, 5000, 32768, 131072, 500_000, 1 << 20])
def test_between_two_sizes_the_time_grows_by_the_byte(model: predict.Model, size: int) -> None:
    """So a latency and a time a byte are predicted as they are, not only at the sizes that were measured."""
    layout, _owner = vector(size // 8 * 8, 8, 16)
    prediction = model.predict_device(layout, size // 8 * 8, "pack")
    assert prediction is not None
    assert prediction.seconds["oneshot"] == pytest.approx(cost("mapped_pack", size // 8 * 8), rel=1e-3)


def test_predictions_are_monotone_and_grow_beyond_the_largest(model: predict.Model) -> None:
    layout, _owner = vector(8192, 8, 16)
    before: dict[str, float] = {}
    for size in (2 ** (step / 3) for step in range(18, 90)):
        prediction = model.predict_device(layout, int(size), cuda_aware=True)
        assert prediction is not None
        for name, seconds in prediction.seconds.items():
            assert math.isfinite(seconds)
            assert seconds >= before.get(name, 0) * (1 - 1e-9), (name, size)
        before = prediction.seconds
    assert before["device"] > 20 * cost("device_library", 1 << 20)


def test_an_address_that_allows_smaller_words_has_tables_of_its_own(model: predict.Model) -> None:
    layout, _owner = vector(65536, 64, 128)
    straight, misaligned = (
        model.predict_device(layout, 65536, misaligned=bad, cuda_aware=True) for bad in (False, True)
    )
    assert straight is not None
    assert misaligned is not None
    assert misaligned.parts["device"][0] == pytest.approx(3 * straight.parts["device"][0])
    assert misaligned.parts["device"][1] == straight.parts["device"][1]


def test_managed_memory_has_its_own_kernels_where_they_were_measured(tmp_path: Path, model: predict.Model) -> None:
    layout, _owner = vector(4096, 8, 16)
    assert model.predict_device(layout, 4096, memory="managed") == model.predict_device(layout, 4096)
    slow = [replace(p, memory="managed", seconds=(1.0,) * 9) for p in points() if p.quantity == "mapped_pack"]
    prediction = model_of(tmp_path, points() + slow).predict_device(layout, 4096, memory="managed")
    assert prediction is not None
    assert prediction.parts["oneshot"][0] == pytest.approx(1.0)
    assert prediction.method != "oneshot"


def test_without_tables_the_rule_decides(model: predict.Model) -> None:
    layout, _owner = vector(4096, 8, 16)
    assert model.predict_device(layout, 4096, peer="other") is None
    irregular = parse("indexed([1,1,1],[0,5,7],DOUBLE)")
    assert model.predict_device(irregular.canonical(), 24) is None
    assert model.predict_device(irregular.canonical(), 24, "pack") is None
    dense = parse("contiguous(512,DOUBLE)")
    assert model.predict_device(dense.canonical(), 4096, "pack") is None  # one copy, whoever makes it
    assert model.predict_device(dense.canonical(), 4096, peer="other") is None
    assert [predict.rule_method(4096, cuda_aware=cuda_aware, contiguous=True) for cuda_aware in (False, True)] == [
        "staged",
        "library",
    ]
    assert predict.rule_method(1 << 10, cuda_aware=False) == "oneshot"
    assert predict.rule_method(1 << 30, cuda_aware=True) == "device"
    assert model.predict(layout, 4096) is None  # it has no tables of host memory


def test_tables_are_for_one_card_and_driver(tmp_path: Path) -> None:
    model = model_of(tmp_path, points())
    emulated = replace(CARD, emulated=True)
    for card, why in (
        (CARD, None),
        (None, None),
        (replace(CARD, name="NVIDIA Slide Rule"), "another GPU"),
        (replace(CARD, driver="571.2"), "another CUDA driver"),
        (replace(CARD, cuda=13000), "another CUDA driver"),
        (emulated, "this is the EMULATED device"),
    ):
        prediction = model.mismatch(replace(HERE, gpu=card))
        assert prediction is None if why is None else why in str(prediction)
    test_device = store.Calibration(replace(HERE, gpu=emulated), tuple(points()))
    (tmp_path / "emulated.table").write_bytes(store.table_of(test_device))
    prediction = predict.Model(tmp_path / "emulated.table").mismatch(HERE)
    assert "EMULATED device" in str(prediction)
    (tmp_path / "host.table").write_bytes(store.table_of(store.Calibration(replace(HERE, gpu=None), ())))
    assert "no tables of device memory" in str(predict.Model(tmp_path / "host.table").mismatch(HERE))


def test_a_card_has_its_file_beside_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPI_CACHE_DIR", str(tmp_path))
    host = store.Calibration(replace(HERE, gpu=None), (store.Point("own_pack", COLUMNS[0], 64, None, (1e-6,) * 9),))
    cards = [CARD, replace(CARD, name="NVIDIA Slide Rule"), replace(CARD, emulated=True)]
    devices = [store.Calibration(replace(HERE, gpu=card), tuple(points())) for card in cards]
    paths = [store.save(one) for one in (host, *devices)]
    assert len(set(paths)) == 4
    assert [("EMULATED" in path.name) for path in paths] == [False, False, False, True]
    assert [found for _, found in store.local()] == [host]
    assert dict(store.local(devices=True)) == dict(zip(paths[1:], devices, strict=True))
    assert [store.read(path).emulated for path in paths] == [False, False, False, True]
    newer = replace(CARD, driver="580.9")
    assert replace(HERE, gpu=newer).table == replace(HERE, gpu=CARD).table  # refused then, and measured anew


def test_calibrations_that_are_shipped_together_are_read_separately(tmp_path: Path) -> None:
    host = store.Calibration(replace(HERE, gpu=None), (store.Point("own_pack", COLUMNS[0], 64, None, (1e-6,) * 9),))
    both = [host, store.Calibration(HERE, tuple(points()))]
    store.write(tmp_path / "both.json", *both)
    assert store.read_all(tmp_path / "both.json") == both
    text = (tmp_path / "both.json").read_text()
    other = text.replace('"memory": "device"', '"memory": "attic"', 1)
    for damaged in (text[:-9], other, text.replace("[1e-06", "[2e-06", 1)):
        (tmp_path / "damaged.json").write_text(damaged)
        with pytest.raises(store.StoreError):
            store.read_all(tmp_path / "damaged.json")
