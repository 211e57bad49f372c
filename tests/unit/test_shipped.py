"""Shipped calibrations: the nearest of this machine's kind is used, and none of another kind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tempi import _engine
from tempi.model import store

MPICH = "MPICH Version:      5.0.2"
PARTS = re.compile(r"(\w+)-(\w+)-(\d+)-(\d+)-(\w+)-(\d+)-(\d+)(-nocma)?\.table")
ASK = """
import ctypes, sys
room = ctypes.create_string_buffer(4096)
found = ctypes.CDLL(sys.argv[1]).tempi_shipped_find(sys.argv[2].encode(), room, ctypes.c_size_t(4096))
print(room.value.decode().rpartition("/")[2] if found == 0 else "none")
"""


def own_name(version: str = MPICH, **environment: str) -> str:
    program = ASK.replace("tempi_shipped_find", "tempi_shipped_name")
    done = subprocess.run(
        [sys.executable, "-c", program, _engine.library_path(), version],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    if done.stdout.strip() == "none":
        pytest.skip("this system does not report its processor's vendor or caches")
    return done.stdout.strip()


def found(folder: Path, names: list[str], version: str = MPICH) -> str:
    """The table that an engine chooses among these names."""
    (folder / "lib").mkdir(parents=True)
    (folder / "tables").mkdir()
    library = Path(shutil.copy2(_engine.library_path(), folder / "lib"))
    for name in names:
        (folder / "tables" / name).write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-c", ASK, library, version], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def changed(name: str, part: int, text: str) -> str:
    match = PARTS.fullmatch(name)
    assert match is not None
    return name[: match.start(part)] + text + name[match.end(part) :]


def scaled(name: str, part: int, factor: int) -> str:
    match = PARTS.fullmatch(name)
    assert match is not None
    return changed(name, part, str(int(match[part]) * factor))


def test_the_table_of_this_machine_is_found_among_others(tmp_path: Path) -> None:
    own = own_name()
    others = [scaled(own, 6, 2), scaled(own, 7, 4), scaled(own, 4, 2), "README", "mpich5-broken.table"]
    assert found(tmp_path, [*others, own]) == own


@pytest.mark.parametrize(("part", "text"), [(1, "openmpi5"), (1, "mpich4"), (2, "Acorn"), (3, "999"), (5, "neon")])
def test_a_table_of_another_kind_is_not_used(tmp_path: Path, part: int, text: str) -> None:
    assert found(tmp_path, [changed(own_name(), part, text)]) == "none"


def test_without_tables_there_is_none(tmp_path: Path) -> None:
    assert found(tmp_path, []) == "none"


def test_of_one_kind_the_nearest_caches_count_before_the_model(tmp_path: Path) -> None:
    own = own_name()
    near, far = changed(own, 4, "200"), scaled(own, 7, 2)
    assert found(tmp_path, [near, far]) == near


INTEL = "Intel(R) MPI Library 2021.18.1 for Linux* OS"
OPENMPI4, OPENMPI5 = "Open MPI v4.1.4, package: Debian", "Open MPI v5.0.11, package: x"
WITHOUT_CMA = [
    (MPICH, "MPIR_CVAR_CH4_CMA_ENABLE", "0"),
    (OPENMPI4, "OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    (OPENMPI4, "OMPI_MCA_btl_vader_single_copy_mechanism", "knem"),
    (OPENMPI5, "OMPI_MCA_smsc", "^cma"),
    (OPENMPI5, "OMPI_MCA_smsc", "^knem,cma"),
    (OPENMPI5, "OMPI_MCA_smsc", "xpmem"),
]
WITH_CMA = [
    (MPICH, "MPIR_CVAR_CH4_CMA_ENABLE", "1"),
    (MPICH, "OMPI_MCA_smsc", "^cma"),
    (OPENMPI4, "OMPI_MCA_btl_vader_single_copy_mechanism", "cma"),
    (OPENMPI5, "OMPI_MCA_smsc", "^xpmem"),
    (OPENMPI5, "OMPI_MCA_smsc", "xpmem,cma"),
    (OPENMPI5, "OMPI_MCA_smsc", ""),
    (OPENMPI5, "MPIR_CVAR_CH4_CMA_ENABLE", "0"),
]


@pytest.fixture
def cma(monkeypatch: pytest.MonkeyPatch) -> None:
    """CMA as the kernel has it, which the test is skipped without."""
    for name in {variable for _, variable, _ in WITHOUT_CMA}:
        monkeypatch.delenv(name, raising=False)
    if own_name().endswith("-nocma.table"):
        pytest.skip("no CMA here")


@pytest.mark.usefixtures("cma")
@pytest.mark.parametrize(("version", "variable", "value"), WITHOUT_CMA)
def test_without_cma_there_are_tables_of_their_own(version: str, variable: str, value: str) -> None:
    assert own_name(version, **{variable: value}) == own_name(version).replace(".table", "-nocma.table")


@pytest.mark.usefixtures("cma")
@pytest.mark.parametrize(("version", "variable", "value"), WITH_CMA)
def test_other_settings_leave_cma_on(version: str, variable: str, value: str) -> None:
    assert own_name(version, **{variable: value}) == own_name(version)


@pytest.mark.usefixtures("cma")
@pytest.mark.parametrize(("version", "variable", "value"), WITHOUT_CMA)
def test_a_calibration_is_for_one_state_of_cma(
    monkeypatch: pytest.MonkeyPatch, version: str, variable: str, value: str
) -> None:
    on = store.machine(version)
    monkeypatch.setenv(variable, value)
    off = store.machine(version)
    assert off.mpi == f"{on.mpi}, without CMA"
    assert off.table != on.table
    assert replace(off, mpi=on.mpi) == on


XPMEM = """
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int access(const char *path, int mode)
{
    return strcmp(path, "/dev/xpmem") == 0 ? 0 : (int)syscall(SYS_access, path, mode);
}
"""


@pytest.mark.parametrize(
    ("version", "variables", "by"),
    [
        (OPENMPI5, {}, ", with XPMEM"),
        (OPENMPI5, {"OMPI_MCA_smsc": "xpmem"}, ", with XPMEM"),
        (OPENMPI5, {"OMPI_MCA_smsc": "^xpmem,cma"}, ", without CMA"),
        (OPENMPI4, {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"}, ", without CMA"),
        (MPICH, {}, ", with XPMEM"),
        (INTEL, {}, ", without CMA"),
        (MPICH, {"MPIR_CVAR_CH4_XPMEM_ENABLE": "0", "MPIR_CVAR_CH4_CMA_ENABLE": "0"}, ", without CMA"),
    ],
)
def test_a_calibration_with_xpmem_is_one_of_its_own(
    tmp_path: Path, version: str, variables: dict[str, str], by: str
) -> None:
    """Where the kernel has its module, by a function in front of the C library's."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (tmp_path / "there.c").write_text(XPMEM)
    there = tmp_path / "there.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", there, tmp_path / "there.c"], check=True)
    code = "import sys; from tempi.model import store; print(store.machine(sys.argv[1]).mpi)"
    command = [sys.executable, "-P", "-c", code, version]
    own = os.environ | variables | {"LD_PRELOAD": str(there)}
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == " ".join(version.split()) + by


def test_an_unknown_library_has_no_table(tmp_path: Path) -> None:
    assert found(tmp_path, [own_name()], "Some MPI 1.0") == "none"


def test_shipped_tables_have_no_fault() -> None:
    """Each file of the repository is one that the engine maps, with a name that it understands."""
    for table in (Path(__file__).resolve().parents[2] / "tempi" / "tables").glob("*.table"):
        assert PARTS.fullmatch(table.name), table.name
        fault = _engine.ffi.new("char const **")
        model = _engine.lib.tempi_model_open(str(table).encode(), fault)
        assert model != _engine.ffi.NULL, _engine.text(fault[0])
        _engine.lib.tempi_model_close(model)
