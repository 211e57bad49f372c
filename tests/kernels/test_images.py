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
        assert tuple(params) == kernel.types, kernel.name


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


def test_words_of_16_bytes_are_one_instruction(ptx: str) -> None:
    body = bodies(ptx)["tempi_strided_w16_i32"]
    assert body.count("ld.global.v4.u32") == 4
    assert body.count("st.global.v4.u32") == 4
    assert "ld.global.u" not in body


def test_four_loads_are_under_way_before_the_first_store(ptx: str) -> None:
    for name, body in bodies(ptx).items():
        if "strided" in name:
            moves = re.findall(r"\b(ld|st)\.global", body)
            assert moves == ["ld"] * 4 + ["st"] * 4, name


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
    assert all(row["registers"] <= 64 for row in rows)  # 1024 threads a multiprocessor at the least
    assert (tmp_path / "out" / "tempi.ptx").read_text() == embedded_ptx()[:-1].decode()
