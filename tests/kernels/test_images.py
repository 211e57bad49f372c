"""The compiled kernels: complete, in the promised PTX version, and without costly instructions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emulated import embedded_ptx
from planning import ffi, kernel_table, lib

TABLE = kernel_table()


@pytest.fixture(scope="module")
def ptx() -> str:
    text = embedded_ptx()
    if not text:
        pytest.skip("this build has no GPU kernels")
    assert text.endswith(b"\0")
    return text[:-1].decode()


def bodies(ptx: str) -> dict[str, str]:
    """The text of each kernel by its name."""
    parts = re.split(r"\.visible \.entry (\w+)", ptx)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_kernel_has_one_entry_and_its_parameters(ptx: str) -> None:
    found = bodies(ptx)
    assert list(found) == [kernel.name for kernel in TABLE.ALL]
    for kernel in TABLE.ALL:
        params = re.findall(r"\.param \.(u\d+)", found[kernel.name].split(")")[0])
        assert tuple(params) == (*kernel.types, *TABLE.DONE_PARAMS), kernel.name


def test_the_engine_knows_the_same_names() -> None:
    names = [ffi.string(lib.tempi_kernel_names[i]).decode() for i in range(lib.TEMPI_KERNEL_COUNT)]
    assert names == [kernel.name for kernel in TABLE.ALL]


def test_machine_code_for_every_target_comes_before_the_ptx(ptx: str) -> None:
    images = ffi.cast("tempi_kernel_image *", ffi.addressof(lib, "tempi_kernel_images"))
    targets = [ffi.string(images[i].target).decode() for i in range(len(TABLE.TARGETS) + 1)]
    assert targets == [*TABLE.TARGETS, "ptx"]
    for i in range(len(TABLE.TARGETS)):
        image = bytes(ffi.buffer(images[i].data, images[i].size))
        assert image[:4] == b"\x7fELF"
        assert int.from_bytes(image[18:20], "little") == 190  # EM_CUDA


def test_drivers_since_cuda_11_accept_the_ptx(ptx: str, tmp_path: Path) -> None:
    """Their PTX ISA is 7.0 or newer; the oldest target of the build is in it."""
    header = dict(re.findall(r"^\.(version|target) (\S+)$", ptx, re.MULTILINE))
    assert header == {"version": "7.0", "target": TABLE.TARGETS[0]}
    assembler = shutil.which("ptxas")
    if assembler is None:
        pytest.skip("no ptxas on the PATH to assemble it with")
    for target in ("sm_80", "sm_90"):
        # Not /dev/null: ptxas unlinks its output where it fails, and root may unlink a device.
        command = [assembler, f"--gpu-name={target}", "-o", str(tmp_path / f"{target}.cubin"), "-"]
        done = subprocess.run(command, input=ptx, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr


def accesses(body: str) -> list[str]:
    """Each stretch of code without a branch, as letters.

    f: a load of what never changes; l, s: a load, a store of global memory; L, S: of shared memory.
    """
    letters = {
        ("ld", "global.nc"): "f",
        ("ld", "global"): "l",
        ("st", "global"): "s",
        ("ld", "shared"): "L",
        ("st", "shared"): "S",
    }
    found = []
    for block in re.split(r"^\$L\w+:|\bbra\b.*", body, flags=re.MULTILINE):
        moves = re.findall(r"\b(ld|st)\.(global\.nc|global|shared)", block)
        found.append("".join(letters[move] for move in moves))
    return found


def test_words_of_16_bytes_are_one_instruction(ptx: str) -> None:
    body = bodies(ptx)["tempi_strided_w16_i32"]
    assert body.count("ld.global.v4.u32") == body.count("st.global.v4.u32") == 5  # four words a thread, or one
    assert "ld.global.u" not in body


def test_four_loads_are_under_way_before_the_first_store(ptx: str) -> None:
    for name, body in bodies(ptx).items():
        widths = {"strided": 1, "table": 5, "tables": 5, "boxes": 5}.get(name.split("_")[1], 0)
        assert sum(block.startswith("llll") for block in accesses(body)) >= widths, name


def test_a_transpose_has_four_loads_under_way(ptx: str) -> None:
    for name, body in bodies(ptx).items():
        if "transpose" in name:
            moves = "".join(accesses(body))
            assert moves.startswith("llllSSSS"), name
            assert moves.endswith("LLLLssss"), name


def test_narrow_words_are_moved_by_groups(ptx: str) -> None:
    """Two groups a round of the grid: eight narrow loads before two stores of 4 or 8 bytes, or the reverse."""
    for name, body in bodies(ptx).items():
        _, family, width, *_ = name.split("_")
        narrow, group = {"w1": ("u8", "u32"), "w2": ("u16", "v2.u32|u64")}.get(width, ("", ""))
        if family == "gather":
            assert "llllllll" in "".join(accesses(body)), name
            assert body.count("prmt.b32") == 3 * {"w1": 3, "w2": 2}[width], name
            assert len(re.findall(rf"st\.global\.({group})\b", body)) == 3, name
        if family == "scatter":
            assert len(re.findall(rf"ld\.global\.({group})\b", body)) == 2, name
            assert any(block.startswith("ssss") for block in accesses(body)), name
            assert body.count(f"ld.global.{narrow}") == 1, name  # the words before the first group and behind the last


def test_a_descriptor_is_loaded_at_once(ptx: str) -> None:
    """In lines of 16 bytes, with no branch between them."""
    for name, body in bodies(ptx).items():
        lines = {"boxes_i32": 6, "boxes_i64": 8, "tables_i32": 8, "tables_i64": 10}.get(name.removeprefix("tempi_"))
        if lines is not None:
            assert "f" * lines in accesses(body), name
            assert len(re.findall(r"ld\.global\.nc\.(v4\.u32|v2\.u64)", body)) >= lines, name


def test_four_look_ups_are_under_way_at_once(ptx: str) -> None:
    """Of the guide both ends of four cells; of the table and its positions four numbers each."""
    for name, body in bodies(ptx).items():
        if "table" in name:
            blocks = accesses(body)
            assert any(block.startswith("f" * 8) for block in blocks), name
            assert sum("ffff" in block for block in blocks) >= 4, name


def test_nothing_is_computed_in_floating_point_or_divided(ptx: str) -> None:
    for name, body in bodies(ptx).items():
        assert not re.search(r"\.f(32|64)\s", body), name
        assert not re.search(r"\b(div|rem)\.\w64", body), name
        assert "transpose" in name or not re.search(r"\b(div|rem)\.", body), name
        assert "call" not in body, name
        assert ".local" not in body, name


def test_the_compiler_lists_the_resources_of_every_kernel(tmp_path: Path) -> None:
    pytest.importorskip("numba_cuda", reason="the kernels' compilers are not installed (pip install 'tempi[kernels]')")
    command = [sys.executable, "-m", "tempi.kernels", "--out", str(tmp_path / "out"), "--json", "-", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {(row["kernel"], row["target"]) for row in rows} == {
        (kernel.name, target) for kernel in TABLE.ALL for target in TABLE.TARGETS
    }
    assert all(row["spill_loads"] == row["spill_stores"] == 0 for row in rows)
    # 1024 threads a multiprocessor at the least; 768 where the descriptors have 64-bit strides.
    wide = ("tempi_boxes_i64", "tempi_tables_i64")
    assert all(row["registers"] <= (80 if row["kernel"] in wide else 64) for row in rows)
    assert (tmp_path / "out" / "tempi.ptx").read_text() == embedded_ptx()[:-1].decode()
