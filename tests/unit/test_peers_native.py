"""The ranks of a node: the node registry in shared memory and the launcher's variables, under the sanitizers."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}
SLURM = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "1"}
PMIX = {"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-a-7@1", "PMIX_SERVER_URI41": "prterun-a-7@0.0;tcp4://10.0.0.1:7"}


def compiled(folder: Path, name: str, *parts: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    flags = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}", "-O1", "-g1")
    sanitizers = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    sources = [HERE / f"{name}.c", *(CSRC / f"{part}.c" for part in parts)]
    subprocess.run(["gcc", *flags, *sanitizers, *sources, "-o", folder / name], check=True, timeout=300)
    return folder / name


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(
        tmp_path_factory.mktemp("driver"),
        "node_registry_driver",
        "topology/node_registry",
        "topology/launcher",
        "base/text",
    )


@pytest.fixture(scope="module")
def locality_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("driver"), "locality_driver")


def output(driver: Path, *words: object, fds: Any = (), **variables: str) -> str:
    own = {"PATH": os.environ["PATH"], "ASAN_OPTIONS": "detect_leaks=0"} | variables
    done = subprocess.run(
        [driver, *map(str, words)], env=own, capture_output=True, text=True, timeout=60, check=False, pass_fds=fds
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.strip()


# -- the node registry ------------------------------------------------------------------------------------------


def test_every_rank_is_seen_and_the_last_one_removes_the_file(driver: Path, tmp_path: Path) -> None:
    assert output(driver, "registry", tmp_path, "job", 6, 4, 0, 2, 8, 6, 1) == "6 ranks: 0 1 2 4 6 8"
    assert not list(tmp_path.iterdir())


def test_ranks_without_tempi_are_not_seen_and_the_first_to_leave_removes_the_file(driver: Path, tmp_path: Path) -> None:
    for local in (0, 4):
        assert output(driver, "registry", tmp_path, "job", local, 4, 0, 2) == "3 ranks: 0 2 4, file"
        assert not list(tmp_path.iterdir())


def test_a_rank_that_comes_again_has_one_entry(driver: Path, tmp_path: Path) -> None:
    assert output(driver, "registry", tmp_path, "job", 3, 4, 4, 0, 4) == "2 ranks: 0 4, file"


def test_other_jobs_files_are_left_alone_unless_they_are_old(driver: Path, tmp_path: Path) -> None:
    recent, old = (tmp_path / f"tempi-{os.geteuid()}-{name}" for name in ("0" * 16, "1" * 16))
    foreign = tmp_path / "tempi-other"
    for path in (recent, old, foreign):
        path.write_bytes(bytes(16384))
    for path in (old, foreign):
        os.utime(path, (1, 1))
    assert output(driver, "registry", tmp_path, "job", 0, 4) == "1 ranks: 4, file"
    assert set(tmp_path.iterdir()) == {recent, foreign}


def name_of(job: str) -> str:
    """By the rule in node_registry.c: FNV-1a of the job, which begins with the layout's number."""
    layout = re.search(r"LAYOUT = (\d+)", (CSRC / "topology" / "node_registry.c").read_text())
    assert layout
    total = 0xCBF29CE484222325 ^ int(layout[1])
    for byte in job.encode():
        total = (total ^ byte) * 0x100000001B3 % (1 << 64)
    return f"tempi-{os.geteuid()}-{total:016x}"


def test_a_file_that_is_not_ours_alone_is_refused(driver: Path, tmp_path: Path) -> None:
    path = tmp_path / name_of("job")
    path.write_bytes(b"")
    path.chmod(0o644)
    assert output(driver, "registry", tmp_path, "job", 0, 4) == "no registry"
    path.chmod(0o600)
    path.write_bytes(bytes(1 << 20))
    assert output(driver, "registry", tmp_path, "job", 0, 4) == "no registry"
    path.unlink()
    (tmp_path / "target").write_bytes(b"")
    path.symlink_to(tmp_path / "target")
    assert output(driver, "registry", tmp_path, "job", 0, 4) == "no registry"
    assert (tmp_path / "target").read_bytes() == b""


def test_without_shared_memory_there_is_no_node_registry(driver: Path, tmp_path: Path) -> None:
    assert output(driver, "registry", tmp_path / "none", "job", 0, 4) == "no registry"


# -- agreement --------------------------------------------------------------------------------------------------


def test_all_members_come_to_the_same_answer_in_any_order(driver: Path, tmp_path: Path) -> None:
    """Each registers, settles and asks, 1680 orders: yes exactly if all had registered before the first settled."""
    assert output(driver, "agree", tmp_path, -1) == "1680 orders, 540 yes, 1680 of one mind"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("outsider", [0, 2])
def test_nobody_agrees_with_a_member_that_does_not_join(driver: Path, tmp_path: Path, outsider: int) -> None:
    assert output(driver, "agree", tmp_path, outsider) == "1680 orders, 0 yes, 1680 of one mind"


def test_a_child_process_of_a_rank_has_no_entry(driver: Path, tmp_path: Path) -> None:
    for local in (0, 2):
        lines = output(driver, "child", tmp_path, "job", local, 5).splitlines()
        assert lines == ["child -1 of 1", "own 0, again 0 of 1, knows itself: 0"]
        assert not list(tmp_path.iterdir())


# -- the launcher -----------------------------------------------------------------------------------------------


def test_ranks_of_the_node_are_counted_by_each_launcher(driver: Path) -> None:
    for variables, local in ((HYDRA, 2), (OPENMPI, 3), (SLURM, 4), ({}, 0)):
        assert output(driver, "launcher", 1, 4, **variables).split(" ")[0] == str(local)


@pytest.mark.parametrize("variables", [HYDRA, OPENMPI, SLURM], ids=["hydra", "openmpi", "slurm"])
def test_variables_of_another_job_do_not_count(driver: Path, variables: dict[str, str]) -> None:
    """Inherited by a rank's child processes: its own rank or size differs."""
    assert output(driver, "launcher", 0, 4, **variables) == "0"
    assert output(driver, "launcher", 1, 2, **variables) == "0"


def test_slurm_steps_over_nodes_are_not_one_node(driver: Path) -> None:
    assert output(driver, "launcher", 1, 4, **SLURM | {"SLURM_STEP_NUM_NODES": "2"}) == "0"


@pytest.mark.parametrize(
    ("tasks", "node", "local"),
    [
        ("2(x2)", 1, 2),
        ("4(x2),3", 1, 4),
        ("4(x2),3", 2, 3),
        ("4(x2),3", 3, 0),
        ("1,3", 0, 1),
        ("1,3", 1, 3),
        ("12(x100),5(x2)", 101, 5),
        ("", 0, 0),
        ("4(x", 1, 0),
        ("4(x2", 0, 0),
        ("four", 0, 0),
    ],
)
def test_slurm_lists_the_ranks_of_each_node(driver: Path, tasks: str, node: int, local: int) -> None:
    own = SLURM | {"SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_NODEID": str(node)}
    assert output(driver, "launcher", 1, 4, **own) == str(local)


def test_a_pmix_job_is_named_by_its_namespace_and_server(driver: Path) -> None:
    own = output(driver, "launcher", 1, 4, **PMIX)
    assert own.startswith(f"0 {socket.gethostname()[:64]} pmix prterun-a-7@1 ")
    assert output(driver, "launcher", 2, 4, **PMIX | {"PMIX_RANK": "2"}) == own
    for name, value in (("PMIX_NAMESPACE", "prterun-a-7@2"), ("PMIX_SERVER_URI41", "prterun-a-8@0.0;tcp4://x:8")):
        assert output(driver, "launcher", 1, 4, **PMIX | {name: value}) != own
    assert output(driver, "launcher", 2, 4, **PMIX) == "0"
    assert output(driver, "launcher", 1, 4, **{k: v for k, v in PMIX.items() if "URI" not in k}) == "0"


def test_a_pmi_job_is_named_by_the_process_behind_its_socket(driver: Path) -> None:
    """Whatever is between that process and the rank: a shell here."""
    ends = socket.socketpair()
    number = ends[0].fileno()
    with ends[0], ends[1]:
        own = output(driver, "launcher", 1, 4, fds=(number,), **HYDRA | {"PMI_FD": str(number)})
        began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]  # its 22nd field
        assert own.split(" ")[:5] == ["2", socket.gethostname()[:64], "pmi", str(os.getpid()), began]
        second = output(driver, "launcher", 2, 4, fds=(number,), **HYDRA | {"PMI_FD": str(number), "PMI_RANK": "2"})
        assert second == own
        spawned = output(driver, "launcher", 1, 4, fds=(number,), **HYDRA | {"PMI_FD": str(number), "PMI_SPAWNED": "1"})
        assert spawned == "2"
    assert output(driver, "launcher", 1, 4, **HYDRA | {"PMI_FD": "0"}) == "2"  # no socket


# -- locality of the peers --------------------------------------------------------------------------------------


def test_every_rank_has_a_line_of_its_own(driver: Path, tmp_path: Path) -> None:
    assert output(driver, "lines", tmp_path, "job", 4, 1, 20, 300, 4000) == "4321"
    assert output(driver, "lines", tmp_path, "job", 0, 1, 20) == "no lines"


def locality(locality_driver: Path, words: str) -> str:
    return output(locality_driver, *words.split())


def test_the_majority_of_the_last_probes_decides_the_locality(locality_driver: Path) -> None:
    assert locality(locality_driver, "? w l120 ? w l30 ? w l120 ?") == "same other same other 3 3"
    assert locality(locality_driver, "w l30 w l30 w l30 w l30 w l30 w l200 w l200 ? w l200 ?") == "same other 8 1"
    assert locality(locality_driver, "w l200 w l200 w l200 w l200 w l200 w l30 w l30 ? w l30 ?") == "other same 8 2"


def test_a_known_locality_changes_only_when_that_is_clear(locality_driver: Path) -> None:
    """Across the mesh of a large processor a line takes as long as either class allows, now more and now less."""
    words = [f"{5 * f'w l{taken} '}?" for taken in (90, 75, 60, 95, 110, 75, 95)]
    assert locality(locality_driver, " ".join(words)) == "other other same same other other other 35 3"


def test_a_line_that_was_not_written_since_gives_no_result(locality_driver: Path) -> None:
    assert locality(locality_driver, "l200 l200 ? w l200 ? l10 l10 l10 ?") == "same other other 6 1"


def test_the_lower_of_two_ranks_decides_their_locality_and_publishes_it(locality_driver: Path) -> None:
    assert locality(locality_driver, "! w l120 ? ! w l30 w l30 ? !") == "none other other same same 3 2"
    assert locality(locality_driver, "h w l120 ? r0 w l120 ? r1 w l30 w l30 w l30 ?") == "other same other 5 3"


def test_ranks_have_another_cache_only_if_both_have_found_that(locality_driver: Path) -> None:
    """A line that has left the caches arrives as slowly, at one of the two."""
    assert locality(locality_driver, "w l120 ? r0 w l120 ? ! r1 w l120 ? !") == "other same same other other 3 3"
    assert locality(locality_driver, "w l30 r1 w l30 ? !") == "same same 2 0"


def test_the_higher_rank_publishes_what_it_has_found_itself(locality_driver: Path) -> None:
    assert locality(locality_driver, "h r0 w l120 ? = r1 w l30 w l30 ? =") == "same other other same 3 1"


def test_a_result_of_the_higher_rank_counts_for_a_while(locality_driver: Path) -> None:
    """It may no longer look, where its messages are of no derived type."""
    eight = " ".join(["w l120"] * 8)
    assert locality(locality_driver, f"r0 {eight} ? w l120 ?") == "same other 9 1"
    assert locality(locality_driver, f"r0 {eight} r0 {eight} ? w l120 ?") == "same other 17 1"


def test_a_result_about_another_rank_is_not_taken_over(locality_driver: Path) -> None:
    assert locality(locality_driver, "h x0 w l120 ?") == "other 1 1"  # in the same entry
    assert locality(locality_driver, "x0 w l120 ?") == "other 1 1"


def test_messages_probe_often_until_the_locality_is_known_and_seldom_then(locality_driver: Path) -> None:
    assert locality(locality_driver, "a1") == "1 0"
    assert locality(locality_driver, "a21") == "5 0"
    assert locality(locality_driver, "a150") == "6 0"
    assert locality(locality_driver, "a151") == "7 0"


def test_long_messages_probe_more_often(locality_driver: Path) -> None:
    assert locality(locality_driver, "a21 b4000 a65") == "6 0"
    assert locality(locality_driver, "a21 b65536 a8") == "7 0"  # each counts as 17
    assert locality(locality_driver, "a21 b524288 a10") == "15 0"


def test_messages_that_evict_the_lines_do_not_probe(locality_driver: Path) -> None:
    """A line that comes from memory takes as long as one from another last-level cache."""
    assert locality(locality_driver, "a21 b4194304 a10") == "5 0"
