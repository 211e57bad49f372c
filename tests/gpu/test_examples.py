"""The examples of README.md and docs/ on the device of this run: a GPU, or the emulated one if TEMPI_CUDA_DRIVER says
so. Python's with tempi's own device arrays, and with CuPy where it works; commands as they stand in the text.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tempi import _engine
from tempi.measure import launch

ROOT = Path(__file__).resolve().parents[2]
EMULATED = os.environ.get("TEMPI_CUDA_DRIVER") == "emulated"

#: Before an example: CuPy's functions that it uses, on tempi's own arrays.
OWN = """
import sys, types
import numpy as np
from tempi.emulator.array import DeviceArray
cupy = types.ModuleType("cupy")
cupy.full = lambda shape, value: DeviceArray.from_numpy(np.full(shape, value))
cupy.asarray, cupy.asnumpy = DeviceArray.from_numpy, lambda array: array.to_numpy()
sys.modules["cupy"] = cupy
"""
REAL = """
import sys
import numpy as np
try:
    import cupy
    cupy.zeros(1).get()
except Exception as error:
    print("no CuPy:", error)
    sys.exit(77)
"""
#: The names that the first example of docs/python.md uses, and the receives for its messages.
FIRST = """
import cupy
from tempi import MPI
from tempi._libraries import stream_number
source = np.arange(16 * 8 * 5.0).reshape(16, 8, 5)
x, y, rank, stream = cupy.asarray(source), cupy.asarray(np.zeros((16, 8, 5))), 0, 1
counts = [16 // MPI.COMM_WORLD.size * 4 * 5] * MPI.COMM_WORLD.size
got = [np.zeros((8, 8)) for _ in range(MPI.COMM_WORLD.size)]
gathered = cupy.asarray(np.zeros((14 * MPI.COMM_WORLD.size, 6, 10)))
requests = [MPI.COMM_WORLD.Irecv(each, i) for i, each in enumerate(got)] if MPI.COMM_WORLD.rank == 1 else []
"""
FIRST_DONE = """
MPI.Request.Waitall(requests)
assert all((each == source[::2, :, 3]).all() for each in got) or not requests
own = np.split(source[:, ::2], comm.size)[comm.rank]
assert (cupy.asnumpy(y)[:, ::2] == np.concatenate([own] * comm.size)).all()
assert tempi.peer(comm, comm.rank) == "self"
sys.stdout.write(f"done {tempi.stats()['device_packs']}\\n")
"""
SECOND_DONE = """
expected = np.full((64, 64, 64), comm.rank)
expected[:, :, -1] = left
expected[:, -1, :] = expected[:, 1, :]
assert (cupy.asnumpy(field) == expected).all()
sys.stdout.write(f"done {tempi.stats()['device_packs']}\\n")
"""


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TEMPI_") and k != "LD_PRELOAD"}
    kept |= {"TEMPI_LIBRARY": _engine.library_path(), **({"TEMPI_CUDA_DRIVER": "emulated"} if EMULATED else {})}
    kept["PATH"] = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return kept | {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"} | more


@pytest.fixture(scope="module")
def launcher() -> launch.Launcher:
    try:
        return launch.find_launcher()
    except launch.LaunchError as error:
        pytest.skip(str(error))


def python_examples() -> list[str]:
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    return [block.split("```")[0] for block in text.split("```python\n")[1:]]


def test_there_are_no_other_python_examples() -> None:
    """A new one needs its names here."""
    found = {
        path.name for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if "```python" in path.read_text()
    }
    assert found == {"python.md"}
    assert len(python_examples()) == 2


@pytest.mark.parametrize("arrays", ["own", "cupy"])
@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_python(launcher: launch.Launcher, number: int, arrays: str) -> None:
    parts = [(FIRST, FIRST_DONE), ("import numpy as np\n", SECOND_DONE)][number]
    program = "\n".join([{"own": OWN, "cupy": REAL}[arrays], parts[0], python_examples()[number], parts[1]])
    line = launch.command(launcher, 2, [sys.executable, "-P", "-c", program])
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    if "no CuPy: " in done.stdout:
        pytest.skip(next(each for each in done.stdout.splitlines() if "no CuPy: " in each))
    assert done.returncode == 0, done.stderr
    packed = re.findall(r"done (\d+)", done.stdout)
    assert len(packed) == 2, done.stdout + done.stderr
    assert all(int(n) > 0 for n in packed)


# ---- commands -----------------------------------------------------------------------------------------

APP = """
#include <mpi.h>
int main(int n, char **arguments)
{
    double x[64], y[64];
    int rank, size, wrong = 0;
    MPI_Datatype column;
    MPI_Init(&n, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 64; i++)
        x[i] = rank, y[i] = -1;
    MPI_Type_vector(8, 1, 8, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    const int from = (rank + size - 1) % size;
    MPI_Sendrecv(x, 1, column, (rank + 1) % size, 0, y, 1, column, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 64; i++)
        wrong += y[i] != (i % 8 == 0 ? from : -1);
    MPI_Type_free(&column);
    MPI_Finalize();
    return wrong != 0;
}
"""
#: By the words that stand in the text: the file, and a word of the output.
COMMANDS = {
    "mpirun -n 4 tempi run ./app": ("README.md", ""),
    "mpirun -n 4 -x LD_PRELOAD=$(tempi preload) ./app": ("docs/usage.md", ""),
    "TEMPI_STATS_FILE=run.json mpirun -n 4 tempi run ./app": ("docs/report.md", ""),
    "tempi explain 'subarray([258,258,258],[1,256,256],[1,1,1],DOUBLE)'": ("docs/usage.md", "524,288"),
    "tempi doctor": ("docs/usage.md", "kernels"),
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("app")
    (folder / "app.c").write_text(APP)
    try:
        mpicc = launch.find_tool(("mpicc",), None, "--mpicc")
    except launch.LaunchError as error:
        pytest.skip(str(error))
    own = launch.environment(mpicc)
    subprocess.run([mpicc, str(folder / "app.c"), "-o", str(folder / "app")], env=own, check=True, timeout=60)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_docs(launcher: launch.Launcher, app: Path, command: str) -> None:
    file, word = COMMANDS[command]
    assert command in (ROOT / file).read_text(encoding="utf-8")
    if " -x " in command and launcher.kind != "openmpi":
        pytest.skip("mpirun -x is Open MPI's")
    own = {
        name: value for name, value in launch.environment(launcher.path).items() if name.startswith(("OMPI", "OPAL"))
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=app,
        env=environment(**own),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert word in done.stdout, done.stdout
    if "run.json" in command:
        assert json.loads((app / "run.json").read_text())


def test_the_program_of_the_docs_is_examined(app: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tempi", "doctor", "./app"], cwd=app, env=environment(), capture_output=True,
        text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "app" in done.stdout
