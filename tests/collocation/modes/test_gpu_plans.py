"""Whole plans on GPUs that are fakes: what each job is given, and what is left when they have ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_gpu_tools import FIRST, MPS_CONTROL, SECOND, fake_nvml, nvidia_smi, process, put_on_path, read_mig, write_mig

from labkit.cli import main
from labkit.collocation.launching.group_record import GroupRecord, read_group
from labkit.hardware.nvml import Nvml

SCRIPT = """\
import json, os, sys
from pathlib import Path
names = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
         "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
seen = {name: os.environ.get(name) for name in names}
pipes = Path(seen["CUDA_MPS_PIPE_DIRECTORY"] or "/nowhere")
seen["daemon"] = (pipes / "control").exists()
Path(sys.argv[1]).write_text(json.dumps(seen))
import torch
weight = torch.zeros(1, requires_grad=True)
weight.sum().backward()
torch.optim.SGD([weight], lr=0.1).step()
"""
PAIR = "see.py[memory=1GiB] one, see.py[memory=1GiB] two"


@pytest.fixture
def script(tmp_path, monkeypatch) -> Path:
    """A script that writes down what it was given."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("CUDA_")]:
        monkeypatch.delenv(name)
    path = tmp_path / "see.py"
    path.write_text(SCRIPT)
    return path


def give(monkeypatch, library) -> None:
    """Let every session of this process talk to a fake NVML."""
    monkeypatch.setattr(Nvml.__init__, "__defaults__", (library,))


def seen(tmp_path: Path, *names: str) -> list[dict]:
    return [json.loads((tmp_path / name).read_text()) for name in names]


def test_jobs_under_mps_are_clients_of_a_daemon_that_ends_with_them(tmp_path, script, monkeypatch):
    give(monkeypatch, fake_nvml("hopper"))
    put_on_path(tmp_path, monkeypatch, "nvidia-cuda-mps-control", MPS_CONTROL)
    (tmp_path / "foreign").mkdir()
    foreign = subprocess.Popen(
        ["nvidia-cuda-mps-control", "-f"], env=os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "foreign")}
    )
    jobs = "see.py[gpu_percent=40,memory=4GiB] one, see.py two"
    try:
        wait_for(lambda: (tmp_path / "foreign" / "control").exists())
        before = sorted((tmp_path / "foreign").iterdir())
        assert main(["collocate", "--jobs", jobs, "--mode", "mps", "--device", "1", "--baseline", "none"]) == 0
        assert foreign.poll() is None, "someone else's daemon lives on"
        assert sorted((tmp_path / "foreign").iterdir()) == before, "and was asked nothing"
    finally:
        foreign.kill()
        foreign.wait()
    one, two = seen(tmp_path, "one", "two")
    assert one["CUDA_VISIBLE_DEVICES"] == two["CUDA_VISIBLE_DEVICES"] == SECOND
    assert one["CUDA_MPS_PIPE_DIRECTORY"] == two["CUDA_MPS_PIPE_DIRECTORY"] != str(tmp_path / "foreign")
    assert (one["daemon"], two["daemon"]) == (True, True)
    assert (one["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], two["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]) == ("40", None)
    assert (one["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], two["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]) == ("0=4096MB", None)
    assert not Path(one["CUDA_MPS_PIPE_DIRECTORY"]).exists(), "our daemon's folder is gone, and it with it"


def test_naive_jobs_share_a_gpu_by_uuid_and_outside_of_every_mps(tmp_path, script, monkeypatch):
    give(monkeypatch, fake_nvml("ampere"))
    assert main(["collocate", "--jobs", PAIR, "--mode", "naive", "--baseline", "none"]) == 0
    for each in seen(tmp_path, "one", "two"):
        assert each["CUDA_VISIBLE_DEVICES"] == FIRST
        assert each["CUDA_MPS_PIPE_DIRECTORY"] == "/dev/null"


def test_each_job_has_a_mig_slice_of_its_own(tmp_path, script, monkeypatch):
    state = write_mig(tmp_path / "mig", instances=[("3g.20gb", 0), ("1g.5gb", 4)])
    give(monkeypatch, fake_nvml("ampere", mig=state))
    jobs = "see.py[mig_profile=3g.20gb,memory=1GiB] one, see.py[memory=1GiB] two"
    assert main(["collocate", "--jobs", jobs, "--mode", "mig", "--device", "0", "--baseline", "none"]) == 0
    one, two = seen(tmp_path, "one", "two")
    assert (one["CUDA_VISIBLE_DEVICES"], two["CUDA_VISIBLE_DEVICES"]) == ("MIG-1", "MIG-2")
    assert read_mig(state)["calls"] == []


def test_missing_slices_are_made_only_where_that_is_allowed_and_removed_again(tmp_path, script, monkeypatch, capsys):
    state = write_mig(tmp_path / "mig", instances=[("3g.20gb", 0)])
    give(monkeypatch, fake_nvml("ampere", mig=state))
    nvidia_smi(tmp_path, monkeypatch, state)
    before = read_mig(state)["instances"]
    command = ["collocate", "--jobs", PAIR, "--mode", "mig", "--device", "0", "--baseline", "none"]
    assert main(command) == 2
    assert "nvidia-smi mig" in capsys.readouterr().err, "the layout is proposed"
    assert read_mig(state)["calls"] == []
    assert main([*command, "--allow-mig-changes"]) == 0
    one, two = seen(tmp_path, "one", "two")
    assert len({one["CUDA_VISIBLE_DEVICES"], two["CUDA_VISIBLE_DEVICES"]}) == 2
    assert read_mig(state)["instances"] == before
    assert read_mig(state)["calls"]


def test_a_device_that_someone_else_uses_is_refused(tmp_path, script, monkeypatch, capsys):
    give(monkeypatch, fake_nvml("hopper", computing={FIRST: [process(1)]}))
    assert main(["collocate", "--jobs", "see.py[memory=1GiB] one x2", "--mode", "naive"]) == 2
    assert "is used by someone else: process 1" in capsys.readouterr().err
    assert GroupRecord.folders(tmp_path / "runs") == []


def test_mps_on_a_gpu_without_it_and_a_profile_that_there_is_not_are_refused_together(
    tmp_path, script, monkeypatch, capsys
):
    state = write_mig(tmp_path / "mig", instances=[("3g.20gb", 0)])
    give(monkeypatch, fake_nvml("ampere", mig=state))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    jobs = "see.py[mig_profile=9g.90gb,memory=1GiB] one"
    assert main(["collocate", "--jobs", jobs, "--mode", "mps,mig", "--device", "0"]) == 2
    said = capsys.readouterr().err
    assert "nvidia-cuda-mps-control is not on PATH" in said
    assert "asks for the profile 9g.90gb" in said
    assert "nothing was started" in said


def test_a_daemon_that_does_not_start_fails_its_round_and_no_other(tmp_path, script, monkeypatch, capsys):
    give(monkeypatch, fake_nvml("hopper"))
    put_on_path(tmp_path, monkeypatch, "nvidia-cuda-mps-control", "import sys; sys.exit('no rights here')")
    assert main(["collocate", "--jobs", "see.py[memory=1GiB] one", "--mode", "mps,naive", "--baseline", "none"]) == 1
    assert "no rights here" in capsys.readouterr().out
    (folder,) = GroupRecord.folders(tmp_path / "runs")
    assert [each.status for each in read_group(folder).rounds] == ["failed", "done"]


def test_memory_is_counted_by_the_device_that_a_job_gets(tmp_path, script, monkeypatch, capsys):
    state = write_mig(tmp_path / "mig", instances=[("3g.20gb", 0), ("3g.20gb", 4)])
    give(monkeypatch, fake_nvml("ampere", mig=state))
    jobs = "see.py[memory=12GiB] one, see.py[memory=12GiB] two"
    command = ["collocate", "--jobs", jobs, "--mode", "mig", "--device", "0", "--baseline", "none"]
    assert main([*command, "--check"]) == 0, "a slice each"
    capsys.readouterr()
    give(monkeypatch, fake_nvml("ampere"))
    jobs = "see.py[memory=30GiB,device=0] one, see.py[memory=30GiB] two"
    command = ["collocate", "--jobs", jobs, "--mode", "naive", "--device", FIRST, "--baseline", "none", "--check"]
    assert main(command) == 2, "one GPU, by two names"
    assert "the jobs need 60 GiB of memory at once, and 40 GiB are free" in capsys.readouterr().err


def test_a_check_makes_no_slices_even_where_that_is_allowed(tmp_path, script, monkeypatch, capsys):
    state = write_mig(tmp_path / "mig", instances=[("3g.20gb", 0)])
    give(monkeypatch, fake_nvml("ampere", mig=state))
    nvidia_smi(tmp_path, monkeypatch, state)
    command = ["collocate", "--jobs", PAIR, "--mode", "mig", "--device", "0", "--allow-mig-changes"]
    assert main([*command, "--check"]) == 2
    assert read_mig(state)["calls"] == []
    assert main([*command, "--mode", "mig,cpu-pinned"]) == 2, "another row is refused, so nothing is changed"
    assert read_mig(state)["calls"] == []


def wait_for(condition) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.02)
