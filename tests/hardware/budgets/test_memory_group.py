"""The memory control group of a budget, on files like the kernel's, and on the kernel's own where it lets us."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.hardware.budgets import memory_group
from labkit.hardware.budgets.memory_group import LEFT, NoGroup, ended_by_limit, enter, home, take_away

FILES = ("cgroup.procs", "memory.max", "memory.swap.max", "memory.oom.group", "memory.events")


def tree(root: Path, own: str = "/app.slice/terminal.scope", mount: str = "sys/fs/cgroup", controllers="cpu memory"):
    """A system whose groups give the memory controller on down to that of this process, whose group is `own`."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"1:name=systemd:/\n0::{own}\n")
    group = root / mount
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text(controllers)
    parts = own.strip("/").split("/") if own != "/" else []
    for part in parts:
        (group / "cgroup.subtree_control").write_text(controllers)
        (group / "cgroup.procs").write_text("")
        group = group / part
        group.mkdir()
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (group / "cgroup.subtree_control").write_text("")
    return group


@pytest.fixture
def kernel(monkeypatch):
    """Makes the files of a group with its folder, as the kernel does."""
    real = Path.mkdir

    def mkdir(path, *args, **kwargs):
        real(path, *args, **kwargs)
        for name in FILES if path.name.startswith(memory_group.PREFIX) else ():
            (path / name).touch()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.delenv(LEFT, raising=False)
    yield
    os.environ.pop(LEFT, None)


@pytest.mark.parametrize("mount", ["sys/fs/cgroup", "sys/fs/cgroup/unified"])
def test_a_group_is_made_beside_the_one_of_this_process(tmp_path, mount):
    own = tree(tmp_path, mount=mount)
    assert home(tmp_path) == (own, own.parent)


def test_the_root_of_all_groups_gives_on_what_it_has(tmp_path):
    own = tree(tmp_path, "/")
    (own / "cgroup.subtree_control").write_text("memory")
    assert home(tmp_path) == (own, own)


def no_version_2(own):
    (own.parents[1] / "cgroup.controllers").unlink()


def hidden(own):
    own.rename(own.with_name("elsewhere"))


def not_given_on(own):
    (own.parent / "cgroup.subtree_control").write_text("cpu")


@pytest.mark.parametrize(
    ("change", "words"),
    [(no_version_2, "no control groups of version 2"), (hidden, "hides"), (not_given_on, "do not give the memory")],
)
def test_where_none_can_be_had_the_reason_is_told(tmp_path, change, words):
    change(tree(tmp_path))
    with pytest.raises(NoGroup, match=words):
        home(tmp_path)


def test_memory_that_is_with_version_1_is_told(tmp_path):
    tree(tmp_path, controllers="cpu hugetlb")
    with pytest.raises(NoGroup, match="memory controller"):
        home(tmp_path)


def test_a_group_of_another_user_is_told(tmp_path, monkeypatch):
    tree(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(NoGroup, match="another user"):
        home(tmp_path)


def test_a_process_is_confined_and_observers_are_put_outside(tmp_path, kernel):
    own = tree(tmp_path)
    group = enter(2**30, tmp_path)
    assert group == own.parent / f"labkit-{os.getpid()}"
    assert {name: (group / name).read_text() for name in FILES} == {
        "cgroup.procs": str(os.getpid()),
        "memory.max": str(2**30),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "memory.events": "",
    }
    (tmp_path / "proc/self/cgroup").write_text(f"0::/app.slice/{group.name}\n")
    assert enter(2**31, tmp_path) == group  # the next budget of this process
    assert (group / "memory.max").read_text() == str(2**31)
    (own / "cgroup.procs").write_text("")
    memory_group.put_outside(77)
    assert (own / "cgroup.procs").read_text() == "77"


def test_a_process_within_the_group_of_another_budget_gets_none_of_its_own(tmp_path):
    tree(tmp_path, "/app.slice/labkit-1")
    with pytest.raises(NoGroup, match="another budget"):
        home(tmp_path)


def test_what_killed_guards_left_is_taken_away_and_what_is_just_starting_is_not(tmp_path, kernel):
    parent = tree(tmp_path).parent
    gone, starting = parent / "labkit-99999999", parent / f"labkit-{os.getppid()}"
    for group in (gone, starting):
        (tmp_path / "made").mkdir()
        (tmp_path / "made").rename(group)
    enter(2**30, tmp_path)
    assert not gone.exists() and starting.exists()


def test_a_group_that_cannot_be_entered_is_not_left_behind(tmp_path, kernel, monkeypatch):
    own = tree(tmp_path)
    real = memory_group._write

    def write(path, value):
        if path.name == "cgroup.procs":
            for name in FILES:  # the kernel's vanish with their folder
                (path.parent / name).unlink()
        real(path, value)

    monkeypatch.setattr(memory_group, "_write", write)
    with pytest.raises(NoGroup, match=r"cgroup\.procs: No such file"):
        enter(2**30, tmp_path)
    assert not list(own.parent.glob("labkit-*"))


EVENTS = {
    "oom 0\noom_kill 0\n": False,
    "oom 1\noom_kill 3\n": True,
    "oom 0\noom_kill 3\n": False,  # the machine's memory was at its end, not the budget's
    "": False,
}


@pytest.mark.parametrize("events", EVENTS)
def test_whose_limit_it_was_is_known(tmp_path, events):
    (tmp_path / "memory.events").write_text(events)
    assert ended_by_limit(tmp_path) is EVENTS[events]


def test_a_group_is_taken_away_once_its_processes_have_gone(tmp_path, monkeypatch):
    (tmp_path / "labkit-1").mkdir()
    take_away(tmp_path / "labkit-1")
    assert not (tmp_path / "labkit-1").exists()
    monkeypatch.setattr(memory_group, "GONE_S", 0.0)
    (tmp_path / "labkit-2" / "of a process that stays").mkdir(parents=True)
    take_away(tmp_path / "labkit-2")


def can_be_had() -> bool:
    try:
        home()
    except NoGroup:
        return False
    return True


CODE = """
import mmap, os, sys
from labkit.hardware.budgets.budget import Budget
print(os.getpid())
print(Budget("small", 1, memory_bytes=300 * 2**20).enforce(), flush=True)
shared = mmap.mmap(-1, 600 * 2**20)
for place in range(0, len(shared), 4096):
    shared[place] = 1
print("survived")
"""


@pytest.mark.skipif(not can_be_had(), reason="needs a memory controller of cgroup v2 that this process may use")
def test_shared_memory_beyond_the_budget_ends_the_run_with_its_name():
    parent = home()[1]
    job = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=120)
    pid, notes = job.stdout.splitlines()
    assert notes == "[]"
    assert job.returncode != 0
    assert "The run needs more memory than its budget 'small' allows (300 MiB)" in job.stderr
    assert not (parent / f"labkit-{pid}").exists()
