"""``tempi doctor``: programs that can and cannot be interposed, the environment, the MPIs found."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tempi import _elf, _engine
from tempi.cli import _gpu, _machine, _pages, _program
from tempi.cli.main import main
from tempi.measure import launch
from tempi.model import single_copy, store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PLAIN = "int main(void) { return 0; }\n"


def statuses(findings: Iterable[_machine.Finding]) -> list[tuple[str, str]]:
    return [(each.status, each.text) for each in findings]


def only(findings: Iterable[_machine.Finding]) -> _machine.Finding:
    found = list(findings)
    assert len(found) == 1, found
    return found[0]


@pytest.fixture
def build(compiler: str, tmp_path: Path) -> Callable[..., Path]:
    """Compiles a C text with flags to an executable; a skip where the flags do not work here."""

    def make(text: str, *flags: str, name: str = "app") -> Path:
        source = tmp_path / f"{name}.c"
        source.write_text(text, encoding="utf-8")
        target = tmp_path / name
        done = subprocess.run([compiler, source, "-o", target, *flags], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"{compiler} {' '.join(flags)} does not work: {done.stderr.splitlines()[-1]}")
        return target

    return make


def test_a_static_program_cannot_be_interposed(build: Callable[..., Path]) -> None:
    finding = only(_program.program(str(build(PLAIN, "-static"))))
    assert (finding.status, "linked statically" in finding.text) == ("problem", True)
    assert finding.advice is not None


def test_a_setuid_program_cannot_be_interposed(build: Callable[..., Path]) -> None:
    app = build(PLAIN)
    app.chmod(0o4755)
    finding = only(_program.program(str(app)))
    assert (finding.status, "setuid" in finding.text) == ("problem", True)


def test_a_program_that_holds_its_own_mpi_is_seen(build: Callable[..., Path]) -> None:
    own = "int PMPI_Init(void) { return 0; }\nint main(void) { return PMPI_Init(); }\n"
    finding = only(_program.program(str(build(own))))
    assert (finding.status, "a statically linked MPI" in finding.text) == ("problem", True)


def test_a_program_without_mpi_is_no_problem(build: Callable[..., Path]) -> None:
    finding = only(_program.program(str(build(PLAIN))))
    assert (finding.status, "links no MPI" in finding.text) == ("note", True)


def mpi_like(build: Callable[..., Path], tmp_path: Path, symbols: str) -> Path:
    """A program linked to a library that has an MPI's symbols, and no more."""
    text = f"int PMPI_Init(void) {{ return 0; }}\nint {symbols};\n"
    build(text, "-shared", "-fPIC", name="libmpi_of_this_test.so")
    return build(
        "int PMPI_Init(void);\nint main(void) { return PMPI_Init(); }\n",
        f"-L{tmp_path}",
        "-l:libmpi_of_this_test.so",
        f"-Wl,-rpath,{tmp_path}",
    )


@pytest.mark.parametrize(
    ("symbols", "abi"), [("ompi_mpi_comm_world", "openmpi"), ("MPI_UNWEIGHTED", "mpich"), ("other", "standard")]
)
def test_the_abi_of_a_linked_mpi_follows_from_its_symbols(
    build: Callable[..., Path], tmp_path: Path, library: Path, symbols: str, abi: str
) -> None:
    finding = only(_program.program(str(mpi_like(build, tmp_path, symbols))))
    assert finding.data["abi"] == abi
    built = (library.parent / f"libtempi-{abi}.so").exists()
    assert finding.status == ("ok" if built else "problem")


def test_a_missing_library_is_a_problem(build: Callable[..., Path], tmp_path: Path) -> None:
    app = mpi_like(build, tmp_path, "other")
    (tmp_path / "libmpi_of_this_test.so").unlink()
    found = statuses(_program.program(str(app)))
    assert ("problem", f"{app} misses libmpi_of_this_test.so") in found


def test_a_library_and_its_copies_are_one(
    build: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has copies where a package of the system has links."""
    text = "int PMPI_Init(void) {{ return {0}; }}\nint MPI_UNWEIGHTED;\n"
    first = build(text.format(0), "-shared", "-fPIC", name="libmpi.so.12")
    shutil.copy(first, tmp_path / "libmpi.so")
    other = build(text.format(1), "-shared", "-fPIC", name="libmpi_other.so")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(first, elsewhere / "libmpi.so.12")
    (elsewhere / "libmpi.so").symlink_to("missing")
    monkeypatch.setattr(_machine, "_folders", lambda: [tmp_path, elsewhere, tmp_path])
    found = [path for path, _ in _machine._libraries()]
    assert found == [tmp_path / "libmpi.so", other, elsewhere / "libmpi.so.12"]


def test_a_launcher_that_starts_another_by_its_name_finds_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intel MPI's mpirun starts the mpiexec.hydra of the PATH: MPICH's, if that is first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert launch.environment(str(folder / "mpirun"))["PATH"] == os.environ["PATH"]
    (folder / "impi_info").touch()
    assert launch.environment(str(folder / "mpirun"))["PATH"] == f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_a_script_is_followed_to_its_interpreter(executable: Callable[[str, str], Path]) -> None:
    script = executable("job", "#!/usr/bin/env -S sh\n")
    found = list(_program.program(str(script)))
    assert "is a script of" in found[0].text
    assert {each.status for each in found} == {"note"}


def test_a_file_that_is_no_program_is_a_problem(tmp_path: Path, executable: Callable[[str, str], Path]) -> None:
    assert only(_program.program(str(tmp_path / "none"))).status == "problem"
    assert only(_program.program(str(executable("data", "hello")))).status == "problem"


def test_elf_reads_what_the_linker_wrote(library: Path, tmp_path: Path) -> None:
    elf = _elf.read(library)
    assert (elf.dynamic, elf.interpreter) == (True, False)
    assert {"MPI_Send", "PMPI_Send", "tempi_version"} <= elf.defines
    assert "PMPI_Comm_world_is_no_function" not in elf.defines
    # Nothing but libc and what older ones had beside it: each library costs every child process some 50 us.
    beside = ("libc.so", "ld-linux", "libpthread.so", "libdl.so", "libtempi.so")
    assert [name for name in elf.needed if not name.startswith(beside)] == []
    broken = tmp_path / "broken"
    broken.write_bytes(library.read_bytes()[:100])
    with pytest.raises(_elf.NotElfError, match="broken"):
        _elf.read(broken)


def test_set_variables_are_listed_and_unknown_ones_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPI_STATS", "1")
    monkeypatch.setenv("TEMPI_STATZ", "1")
    monkeypatch.setenv("TEMPI_DISABLE", "1")
    found = {each.data.get("name"): each for each in _machine.environment()}
    assert found["TEMPI_STATS"].status == "ok"
    assert (found["TEMPI_STATZ"].status, found["TEMPI_STATZ"].text) == ("warning", "TEMPI_STATZ is not known to tempi")
    assert "TEMPI_STATS" in (found["TEMPI_STATZ"].advice or "")
    assert (found["TEMPI_DISABLE"].status, "off" in found["TEMPI_DISABLE"].text) == ("warning", True)


def test_the_engine_and_its_kernels_are_reported(library: Path) -> None:
    texts = [each.text for each in _machine.engine()]
    assert str(library) in texts[0]
    assert f"host kernels for {_engine.text(_engine.lib.tempi_isa_name())}" in texts
    abis = next(each.data["abis"] for each in _machine.engine() if "abis" in each.data)
    assert set(abis) <= {"mpich", "openmpi", "standard"}


def test_the_exit_status_says_whether_there_is_a_problem(build: Callable[..., Path]) -> None:
    good = CliRunner().invoke(main, ["doctor", str(build(PLAIN, name="good"))])
    bad = CliRunner().invoke(main, ["doctor", str(build(PLAIN, "-static", name="bad"))])
    assert (good.exit_code, bad.exit_code) == (0, 1), good.output + bad.output
    assert "x program" in bad.output


def test_json_is_one_object_a_line_and_nothing_else(build: Callable[..., Path]) -> None:
    done = CliRunner().invoke(main, ["doctor", "--json", "-", str(build(PLAIN))])
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert objects
    for each in objects:
        assert each.keys() == {"topic", "status", "text", "advice", "data"}
    assert objects[-1]["topic"] == "program"


def probe(*words: str, **variables: str) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "tempi.cli._probe", *words]
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60, check=True
    )
    return dict(json.loads(done.stdout))


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_the_proof_of_interposition_can_fail(library: Path) -> None:
    common = {"TEMPI_LIBRARY": str(library), "TEMPI_FORCE": "1", "LD_PRELOAD": ""}
    assert probe("mpi4py", **common)["packs"] == 1
    off = probe("mpi4py", **common, TEMPI_DISABLE="1")
    assert (off["packs"], "TEMPI_DISABLE" in off["reason"]) == (0, True)
    finding = _machine._verdict("mpi4py", "x", off, None)
    assert (finding.status, "not interposed" in finding.text) == ("problem", True)


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_the_mpis_of_this_environment_are_interposed() -> None:
    found = list(_machine.mpis())
    proved = [each for each in found if each.data.get("packs")]
    assert any(each.topic == "mpi4py" for each in proved), statuses(found)
    assert any(each.topic == "mpi" for each in proved), statuses(found)


# ---- the GPU ----------------------------------------------------------------------------------------

CARD = {"name": "NVIDIA H100", "capability": "9.0", "multiprocessors": 132, "memory": 80 << 30, "kernels": "sm_90"}
DRIVER = {"driver": "libcuda.so.1", "emulated": False, "version": "12.4", "devices": [CARD], "error": None}


def reported(answer: dict[str, Any], *nodes: str) -> list[tuple[str, str, str]]:
    return [(each.status, each.text, each.advice or "") for each in _gpu.findings(answer, list(nodes))]


def test_a_device_is_reported_with_the_kernels_that_fit() -> None:
    first, device, *_ = reported(DRIVER, "nvidia0")
    assert first[:2] == ("ok", "CUDA driver libcuda.so.1, CUDA 12.4, 1 device")
    assert device[:2] == (
        "ok",
        "device 0: NVIDIA H100, compute capability 9.0, 80.0 GiB; kernels: machine code for sm_90",
    )
    newer = reported({**DRIVER, "devices": [{**CARD, "kernels": "ptx"}]})[1]
    assert newer[0] == "ok"
    assert newer[1].endswith("kernels: PTX, which the driver compiles at first use")
    none = reported({**DRIVER, "devices": [{**CARD, "kernels": None}]})[1]
    assert (none[0], "no kernels" in none[1], "TEMPI_NO_KERNELS" in none[2]) == ("warning", True, True)


def test_a_driver_without_devices_says_why() -> None:
    status, text, advice = reported({**DRIVER, "devices": [], "error": "CUDA_ERROR_NO_DEVICE"})[0]
    assert (status, text) == ("warning", "CUDA driver libcuda.so.1, CUDA 12.4, 0 devices: CUDA_ERROR_NO_DEVICE")
    assert "nvidia-smi" in advice


def test_a_machine_without_a_driver_is_no_problem() -> None:
    nothing = {**DRIVER, "driver": "none", "version": None, "devices": []}
    assert reported(nothing)[0][:2] == ("note", "no CUDA driver and no NVIDIA device: host memory only")
    status, text, advice = reported(nothing, "nvidia0")[0]
    assert (status, "libcuda.so.1 cannot be loaded" in text, "driver" in advice) == ("warning", True, True)


def test_a_driver_that_crashes_its_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu, "ask", lambda *_: {"error": "exit status -11: no output"})
    assert only(_gpu.gpu()).text == "the CUDA driver cannot be queried: exit status -11: no output"


def test_peer_access_is_reported_of_several_devices() -> None:
    def peers(*pairs: tuple[int, int, bool] | None) -> list[tuple[str, str]]:
        answer = {**DRIVER, "devices": [CARD, CARD, CARD], "peers": None if None in pairs else list(pairs)}
        return [(status, text) for status, text, _ in reported(answer) if text.startswith("peer access")]

    assert peers((0, 1, True), (0, 2, True), (1, 2, True)) == [("ok", "peer access: between all devices")]
    some = peers((0, 1, True), (0, 2, False), (1, 2, False))
    assert some == [("note", "peer access: none between devices 0 and 2, 1 and 2")]
    assert peers(None) == [("note", "peer access: the driver does not say")]
    assert not [text for _, text, _ in reported({**DRIVER, "peers": []}) if text.startswith("peer")]


def test_the_order_of_streams_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def order() -> list[str]:
        return [text for _, text, _ in reported(DRIVER) if text.startswith("stream order")]

    monkeypatch.delenv("TEMPI_STREAM_ORDER", raising=False)
    assert [text.rpartition(", ")[2] for text in order()] == ["else for the legacy default stream"]
    monkeypatch.setattr(_gpu._engine, "items", lambda table: [("TEMPI_STREAM_ORDER", "", 0)])
    monkeypatch.setenv("TEMPI_STREAM_ORDER", "none")
    assert [text.rpartition("; ")[2] for text in order()] == ["others for nothing: the program synchronizes by itself"]
    none = {**DRIVER, "devices": [], "error": "CUDA_ERROR_NO_DEVICE"}
    assert not [text for _, text, _ in reported(none) if text.startswith("stream order")]


def test_array_libraries_are_reported_and_the_extra_for_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu, "_version", lambda packages: None)
    for version, extra in (("12.4", "cuda12"), ("13.0", "cuda13"), ("14.1", "cuda13")):
        assert reported({**DRIVER, "version": version})[-1][2] == f"pip install 'tempi[{extra}]'"
    monkeypatch.setattr(_gpu, "_version", lambda packages: "1.2" if "torch" in packages else None)
    assert reported(DRIVER)[-1][:2] == ("ok", "device arrays in Python: PyTorch 1.2")


def test_the_emulator_is_named_loudly(library: Path) -> None:
    if not (library.parent / "libtempi-cuda.so").is_file():
        pytest.skip("this build has no emulated CUDA")
    answer = probe("gpu", TEMPI_LIBRARY=str(library), TEMPI_CUDA_DRIVER="emulated", TEMPI_EMULATOR_DEVICES="2")
    found = reported(answer)
    assert (found[0][0], "EMULATED" in found[0][1], "no GPU" in found[0][1]) == ("warning", True, True)
    assert "EMULATED device 1" in found[2][1]
    assert "PTX" in found[2][1]
    assert answer["peers"] == [[0, 1, True]]
    assert found[3][1] == "peer access: between all devices"
    assert found[4][1].startswith("stream order: messages wait for the stream that the program names")


def test_without_cuda_the_probe_still_answers(library: Path) -> None:
    answer = probe("gpu", TEMPI_LIBRARY=str(library), TEMPI_CUDA_DRIVER="none")
    assert (answer["driver"], answer["version"], answer["devices"]) == ("none", None, [])


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_the_probe_reports_whether_the_library_is_cuda_aware(library: Path) -> None:
    for aware, text in (("1", "; CUDA-aware: "), ("0", "; not CUDA-aware: tempi carries")):
        answer = probe("mpi4py", TEMPI_LIBRARY=str(library), TEMPI_FORCE="1", LD_PRELOAD="", TEMPI_CUDA_AWARE=aware)
        assert answer["aware"] == int(aware)
        assert text in _machine._verdict("mpi4py", "x", answer, None).text


# ---- an installation path with a space ------------------------------------------------------------------


@pytest.mark.once
def test_a_path_invalid_in_ld_preload_is_reported_alike_everywhere(
    build: Callable[..., Path], tmp_path: Path, library: Path
) -> None:
    """One verdict: `tempi run` does not work, Python does. No line says that a program can be interposed."""
    place = tmp_path / "with space"
    place.mkdir()
    for each in library.parent.glob("*.so"):
        (place / each.name).symlink_to(each)
    app = mpi_like(build, tmp_path, "MPI_UNWEIGHTED")
    own = {**os.environ, "TEMPI_LIBRARY": str(shutil_copy(library, place))}
    own.pop("LD_PRELOAD", None)
    for words in ((), (str(app),), ("/bin/true",)):
        command = [sys.executable, "-P", "-m", "tempi", "doctor", "--json", "-", *words]
        done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=300, check=False)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == 1
        assert "cannot be preloaded" not in done.stderr
        (engine,) = [each for each in found if each["topic"] == "engine" and each["status"] == "problem"]
        assert "LD_PRELOAD cannot hold" in engine["text"]
        for each in found:
            assert "tempi run can interpose it" not in each["text"]
            if "packs counted" in each["text"] and each["topic"] == "mpi":
                assert "in Python only" in each["text"]
            assert "it runs under tempi" not in each["text"]
        assert words != (str(app),) or any("`tempi run` cannot interpose it" in each["text"] for each in found)


def shutil_copy(library: Path, place: Path) -> Path:
    """A file of its own: a link would be followed to a path without a space."""
    (place / library.name).unlink()
    return Path(shutil.copy(library, place))


# ---- single copy ----------------------------------------------------------------------------------------


def single(
    mechanism: str, *, abi: str = "mpich", refused: str | None = None, scope: str | None = None
) -> tuple[str, str]:
    answer = {"single_copy": mechanism, "abi": abi}
    found = _machine.single_copy_of(Path("/lib/libmpi.so"), answer, {"refused": refused, "ptrace_scope": scope})
    assert found.topic == "single-copy"
    assert "benchmarks and calibrations are valid for this state only" in found.text or found.status == "warning"
    return found.status, found.text


def test_the_single_copy_mechanism_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _machine._SWITCHES:
        monkeypatch.delenv(name, raising=False)
    no = "Operation not permitted"
    assert single("cma") == ("ok", "/lib/libmpi.so: cma between the ranks of a node; benchmarks and "
                                   "calibrations are valid for this state only")  # fmt: skip
    assert single("xpmem", refused=no)[0] == "ok"
    assert "none (Yama's ptrace_scope is 1)" in single("none", scope="1")[1]
    assert "none (this build has no other way)" in single("none")[1]
    assert f"none (process_vm_readv: {no})" in single("cma", abi="openmpi", refused=no)[1]
    status, text = single("cma", refused=no)
    assert (status, "may hang" in text, no in text) == ("warning", True, True)
    monkeypatch.setenv("MPIR_CVAR_CH4_CMA_ENABLE", "0")
    assert "none (MPIR_CVAR_CH4_CMA_ENABLE=0)" in single("none")[1]


@pytest.mark.parametrize(
    ("enabled", "shared", "status", "stays"),
    [
        ("always madvise [never]", "always [advise] never deny", "ok", False),
        ("[always] madvise never", "always within_size advise [never] deny", "note", True),
        ("always [madvise] never", "always within_size advise [never] deny", "note", False),
        ("[always] madvise never", None, "note", True),
        (None, None, "note", False),
    ],
)
def test_the_pages_of_mapped_memory_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enabled: str | None, shared: str | None, status: str, stays: bool
) -> None:
    for name, text in (("enabled", enabled), ("shmem_enabled", shared)):
        if text is not None:
            (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(_pages, "SETTINGS", tmp_path)
    found = _pages.finding()
    assert found.status == status
    assert ("stays the library's" in found.text) == stays
    assert (found.advice is None) == (status == "ok")


def test_the_library_itself_is_asked(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switched off by the user's variable, each library says so."""
    off = {"MPIR_CVAR_CH4_CMA_ENABLE": "0", "OMPI_MCA_smsc": "^cma,xpmem,knem",
           "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}  # fmt: skip
    asked = 0
    for variables in ({}, off):
        for name in off:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        for each in _machine.mpis():
            if each.topic == "single-copy":
                asked += 1
                assert each.data["mechanism"] in single_copy.MECHANISMS
                assert not variables or each.data["mechanism"] == "none"
    if asked == 0:
        pytest.skip("no MPI library could be started")


def test_reading_another_process_is_tried(compiler: str, tmp_path: Path) -> None:
    """As it is here; and with a kernel that refuses it, by a function in front of the C library's."""
    code = "from tempi.model import single_copy; print(single_copy.refused())"
    source, target = tmp_path / "deny.c", tmp_path / "deny.so"
    source.write_text("#include <errno.h>\nlong process_vm_readv(void) { errno = EPERM; return -1; }\n")
    subprocess.run([compiler, source, "-shared", "-fPIC", "-fno-builtin", "-o", target], check=True)
    base = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    reported = {}
    for name, preload in (("here", {}), ("refused", {"LD_PRELOAD": str(target)})):
        command = [sys.executable, "-P", "-c", code]
        done = subprocess.run(command, env=base | preload, capture_output=True, text=True, timeout=60, check=True)
        reported[name] = done.stdout.strip()
    assert reported["refused"] == os.strerror(errno.EPERM)
    assert reported["here"] in ("None", *map(os.strerror, (errno.EPERM, errno.ENOSYS)))


MPICH = "MPICH Version:      5.0.2"


def chooses(version: str = MPICH) -> list[_machine.Finding]:
    return list(_machine.chooses(version))


@pytest.fixture
def uncalibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPI_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TEMPI_MODEL", raising=False)


@pytest.mark.usefixtures("uncalibrated")
def test_what_chooses_without_a_calibration_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The shipped tables that the engine finds, or the rule, and what a calibration brings and takes."""
    shipped = tmp_path / "mpich5-Acorn.table"
    for table in (None, shipped):
        answers = (_engine.lib.TEMPI_OK, table) if table else (_engine.lib.TEMPI_ERR_UNSUPPORTED, "")

        def find(version: bytes, room: Any, size: int, answers: tuple[int, object] = answers) -> int:
            assert version == MPICH.encode()
            text = str(answers[1]).encode() + b"\0"
            assert len(text) <= size
            _engine.ffi.memmove(room, text, len(text))
            return answers[0]

        own = _engine.lib
        library = SimpleNamespace(
            tempi_shipped_find=find, tempi_calibration_advice=own.tempi_calibration_advice, TEMPI_OK=own.TEMPI_OK
        )
        engine = SimpleNamespace(ffi=_engine.ffi, text=_engine.text, lib=library)
        monkeypatch.setattr(_machine, "_engine", engine)
        found = only(chooses())
        assert (found.topic, found.status) == ("model", "note")
        assert ("cautious rule" in found.text) == (table is None)
        assert (shipped.name in found.text) == (table is not None)
        assert found.data["table"] == (str(table) if table else None)
        assert str(found.advice).startswith("run `tempi calibrate` (two and a half minutes at most) ")


@pytest.mark.usefixtures("uncalibrated")
@pytest.mark.parametrize(
    ("version", "gain"),
    [
        (MPICH, "over MPICH 5, EPYC Zen 3: 2.1 times the library's speed before and after"),
        ("Open MPI v5.0.11, package: Debian", "over Open MPI 5, EPYC Zen 3: 1.2 times the library's speed before"),
        ("Open MPI v4.1.4", "over Open MPI 5, EPYC Zen 3: 1.2 times"),
        ("Intel(R) MPI Library 2021.18.1 for Linux* OS", "over Intel MPI, EPYC Zen 3: 2.2 times the library's"),
        ("Some MPI 1.0", "not measured"),
    ],
)
def test_what_a_calibration_brings_is_said_of_the_library_at_hand(version: str, gain: str) -> None:
    advice = str(only(chooses(version)).advice)
    assert "two and a half minutes" in advice
    assert gain in advice


@pytest.mark.usefixtures("uncalibrated")
def test_the_engine_itself_is_asked_what_chooses() -> None:
    own = only(chooses())
    table = own.data["table"]
    assert ("cautious rule" in own.text) == (table is None)
    assert table is None or Path(table).is_file()
    assert "cautious rule" in only(chooses("Some MPI 1.0")).text


@pytest.mark.usefixtures("uncalibrated")
def test_nothing_is_said_of_the_rule_beside_a_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    own = store.machine(MPICH).table
    own.write_bytes(b"")
    assert chooses() == []
    own.unlink()
    assert only(chooses()).topic == "model"
    monkeypatch.setenv("TEMPI_MODEL", "0")
    assert chooses() == []
