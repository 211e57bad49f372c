"""PTX that the translator refuses, by name and line, and images that the driver refuses to load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from emulator import kernels
from emulator.driver import INVALID_PTX, NEW_PTX, NO_BINARY, Driver
from tempi.emulator import PtxError, translate

REGISTERS = ".reg .pred %p, %q; .reg .b16 %h; .reg .b32 %a, %b; .reg .b64 %x, %y; .reg .b32 %v<4>;"


def one(text: str) -> str:
    return f"{kernels.HEADER}.visible .entry k(.param .u64 n)\n{{\n{REGISTERS}\n{text}\nret;\n}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tex.2d.v4.f32.s32 {%a}, [%x];", "unknown instruction tex"),
        ("add.rz.f32 %a, %a, %a;", "unknown modifier: .rz"),
        ("ld.global.L3::hint.u32 %a, [%x];", "unknown modifier: .L3::hint"),
        ("ld.global.u128 %a, [%x];", "unknown modifier: .u128"),
        ("add.u32 %a, %b;", "2 operands where 3 belong"),
        ("add.u32 %x, %a, %b;", "a result of .u32 in a register of 64 bits"),
        ("add.u32 %a, %x, %b;", "a register of 64 bits read as .u32"),
        ("add.u32 %a, %p, %b;", "a predicate and a number mixed"),
        ("ld.global.v4.u32 {%v0, %v1}, [%x];", "{...} of 4 expected"),
        ("ld.global.u32 %a, [%b];", "an address of the wrong width"),
        ("bra NOWHERE;", "an unknown label"),
        ("mov.u32 %a, %clock;", "unknown name %clock"),
        ("setp.lo.s32 %p, %a, %b;", ".lo of .s32"),
        (".reg .f16 %z;", "unknown type .f16"),
        ("call.uni f, ();", "unknown instruction call"),
        ("cvt.rn.f32.f64.sat %a, %x;", "unknown modifier: .sat"),
    ],
)
def test_unknown_ptx_is_refused_by_name_and_line(text: str, message: str) -> None:
    with pytest.raises(PtxError) as caught:
        translate(one(text))
    assert message in str(caught.value)
    assert caught.value.line == 7


def test_functions_and_foreign_variables_are_refused() -> None:
    with pytest.raises(PtxError, match=r"\.func is not supported"):
        translate(f"{kernels.HEADER}.visible .func f() {{ ret; }}")
    with pytest.raises(PtxError, match="defined elsewhere"):
        translate(f"{kernels.HEADER}.extern .global .u32 x;")


def test_names_in_inner_scopes_hide_outer_ones() -> None:
    inner = "{ .reg .b64 %a; L: mov.u64 %a, 1; bra L; } { .reg .b16 %a; L: mov.u16 %a, 1; bra L; }"
    source = translate(one(inner))
    assert "uint64_t v2_a" in source
    assert "uint16_t v3_a" in source
    assert "goto l2_L;" in source
    assert "goto l3_L;" in source


def test_command_line_translates_a_file(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.ptx", tmp_path / "bad.ptx"
    good.write_text(kernels.HEADER + kernels.INCREMENT)
    bad.write_text(one("tex.2d.v4.f32.s32 {%a}, [%x];"))
    command = [sys.executable, "-m", "tempi.emulator", "translate", "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, str(good)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(done.stdout.strip()).is_file()
    done = subprocess.run([*command, str(bad)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "bad.ptx: PTX line 7: unknown instruction tex" in done.stderr


def load(cuda: Driver, image: bytes) -> int:
    import ctypes

    return cuda.result("cuModuleLoadData", ctypes.byref(ctypes.c_void_p()), image)


def test_ptx_without_translation_names_the_way_out(cuda: Driver, capfd: pytest.CaptureFixture[str]) -> None:
    assert load(cuda, (kernels.HEADER + "// not translated\n").encode()) == INVALID_PTX
    assert "python -m tempi.emulator translate" in capfd.readouterr().err


@pytest.mark.parametrize("image", [b"\x7fELF" + bytes(60), bytes.fromhex("50ed55ba") + bytes(60)])
def test_machine_code_is_for_other_devices(cuda: Driver, image: bytes) -> None:
    assert load(cuda, image) == NO_BINARY


@pytest.mark.parametrize(
    ("header", "code"), [(".version 9.1\n.target sm_70\n", NEW_PTX), (".version 8.0\n.target sm_100\n", NO_BINARY)]
)
def test_ptx_for_newer_drivers_and_devices_is_refused(cuda: Driver, header: str, code: int) -> None:
    from tempi.emulator import compile_ptx

    ptx = f"{header}.address_size 64\n{kernels.INCREMENT}"
    compile_ptx(ptx, cuda.modules)
    assert load(cuda, ptx.encode()) == code
