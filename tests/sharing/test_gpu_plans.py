"""Whole plans on GPUs that are fakes: what each job is given, and what is left when they have ended."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from fake_gpu_tools import process, slices_in, write_mig
from fake_nvml import AMPERE, FIRST, HOPPER, SECOND, fake_mps, fake_nvml, put_on_path
from processes import wait_for

from labkit.hardware import Nvml
from labkit.launch import Launches

SCRIPT = """\
import json, os, sys
from pathlib import Path
names = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
         "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
seen = {name: os.environ.get(name) for name in names}
seen["daemon"] = (Path(seen["CUDA_MPS_PIPE_DIRECTORY"] or "/nowhere") / "control").exists()
Path(sys.argv[1]).write_text(json.dumps(seen))
import torch
weight = torch.zeros(1, requires_grad=True)
weight.sum().backward()
torch.optim.SGD([weight], lr=0.1).step()
"""
PAIR = "see.py[memory=1GiB] one, see.py[memory=1GiB] two"


@pytest.fixture
def collocate(tmp_path, monkeypatch, cli):
    """Runs `labkit collocate` without a baseline, with a script that writes down what it was given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "see.py").write_text(SCRIPT)

    def run(library, jobs: str, mode: str, *more: str, status: int = 0):
        # every session of this process talks to the fake
        monkeypatch.setattr(Nvml.__init__, "__defaults__", (library,))
        return cli("collocate --baseline none --jobs", jobs, "--mode", mode, *more, status=status)

    return run


def seen(tmp_path: Path) -> list[dict]:
    return [json.loads((tmp_path / name).read_text()) for name in ("one", "two")]


def test_jobs_under_mps_are_clients_of_a_daemon_that_ends_with_them(tmp_path, collocate, monkeypatch):
    fake_mps(tmp_path, monkeypatch)
    theirs = tmp_path / "foreign"
    theirs.mkdir()
    environment = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(theirs)}
    foreign = subprocess.Popen(["nvidia-cuda-mps-control", "-f"], env=environment)
    try:
        wait_for((theirs / "control").exists)
        before = sorted(theirs.iterdir())
        jobs = "see.py[gpu_percent=40,memory=4GiB] one, see.py[memory=4GiB] two"
        collocate(fake_nvml(*HOPPER), jobs, "mps", "--device", "1")
        assert foreign.poll() is None, "someone else's daemon lives on"
        assert sorted(theirs.iterdir()) == before, "and was asked nothing"
    finally:
        foreign.kill()
        foreign.wait()
    one, two = seen(tmp_path)
    assert one["CUDA_VISIBLE_DEVICES"] == two["CUDA_VISIBLE_DEVICES"] == SECOND
    assert one["CUDA_MPS_PIPE_DIRECTORY"] == two["CUDA_MPS_PIPE_DIRECTORY"] != str(theirs)
    assert (one["daemon"], two["daemon"]) == (True, True)
    assert (one["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], two["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]) == ("40", None)
    assert one["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096MB"
    assert not Path(one["CUDA_MPS_PIPE_DIRECTORY"]).exists(), "our daemon's folder is gone, and it with it"


def test_a_daemon_that_does_not_start_fails_its_round(tmp_path, collocate, monkeypatch):
    put_on_path(tmp_path, monkeypatch, "nvidia-cuda-mps-control", "import sys; sys.exit('no rights here')")
    assert "no rights here" in collocate(fake_nvml(*HOPPER), PAIR, "mps", status=1).out
    (folder,) = Launches.folders(tmp_path / "runs", "mix")
    assert [part.status for part in Launches.read(folder).parts.values()] == ["failed"] * 2


def test_where_slices_are_missing_the_commands_that_make_them_are_printed(tmp_path, collocate):
    library = fake_nvml(*AMPERE, mig=slices_in(write_mig(tmp_path / "mig", instances=["3g.20gb"])))
    said = collocate(library, PAIR, "mig", "--device", "0", status=2).err
    assert f"`sudo nvidia-smi mig -i {FIRST} -cgi 4g.20gb -C`" in said and "-dgi -gi IDS`" in said
    library = fake_nvml(*AMPERE, mig=slices_in(write_mig(tmp_path / "mig", instances=["3g.20gb", "3g.20gb"])))
    collocate(library, PAIR, "mig", "--device", "0")
    assert {each["CUDA_VISIBLE_DEVICES"] for each in seen(tmp_path)} == {"MIG-1", "MIG-2"}


def test_what_a_device_cannot_give_is_refused_and_nothing_is_started(tmp_path, collocate):
    said = collocate(fake_nvml(*HOPPER, computing={FIRST: [process(1)]}), PAIR, "naive", status=2).err
    assert "is used by someone else: process 1" in said and "nothing was started" in said
    jobs = "see.py[memory=30GiB,device=0] one, see.py[memory=30GiB] two"
    # one GPU, by two names
    said = collocate(fake_nvml(*AMPERE), jobs, "naive", "--device", FIRST, "--check", status=2).err
    assert "the jobs need 60 GiB of memory at once, and 40 GiB are free" in said
