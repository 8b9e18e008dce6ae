from types import SimpleNamespace

import psutil
import pytest

from labkit.data import prepared_root
from labkit.errors import UserError
from labkit.jobs import DlrmJob, job_command
from labkit.models import DlrmConfig
from labkit.sharing import memory_need as need
from labkit.sharing.memory_need import GROWTH_BYTES, first_steps_bytes
from labkit.tracking import LaunchedRun, ScriptCommand

NEAR = 0.15  # one job's peak differs so much from process to process, and grows by less in an epoch (`GROWTH_BYTES`)
WITHOUT_RUN = """
import torch
large = torch.ones(50_000_000)
weight = torch.nn.Parameter(torch.zeros(10))
optimiser = torch.optim.SGD([weight], lr=0.1)
for step in range(10**9):
    weight.grad = torch.ones(10)
    optimiser.step()
"""
WITH_FLAG = "import argparse as a\np = a.ArgumentParser()\np.add_argument('-n', type=int)\np.parse_args()"


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    return lambda text, *arguments: path.write_text(text) and ScriptCommand(str(path), arguments, folder=str(tmp_path))


def test_the_first_steps_tell_what_a_short_run_takes(tmp_path):
    settings = {"data": "synthetic-small", "precision": "fp32", "max_epochs": 1, "target": "none"}
    found = first_steps_bytes(job_command("dlrm", **settings), "cpu")
    with LaunchedRun(job_command("dlrm", runs_dir=tmp_path, **settings)) as launched:
        list(launched.events())
    peak = launched.answer["result"]["peak_memory_bytes"]
    assert found == pytest.approx(peak, rel=NEAR)
    assert found + GROWTH_BYTES >= peak


def test_any_script_is_tried_once_and_leaves_nothing(script, tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path_factory.mktemp("cache")))  # where no other test tries anything
    found = first_steps_bytes(script(WITHOUT_RUN, "--lr", "1", "--seed", "{seed}"), "cpu")
    assert 200_000_000 < found < 2**30  # 50 million numbers, and Python with torch
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]
    assert not list(prepared_root().glob("trial-*"))
    monkeypatch.setattr(need, "_Trial", None)  # would have to be tried again
    assert first_steps_bytes(script(WITHOUT_RUN, "--lr", "1", "--seed", "{seed}"), "cpu") == found
    for other in (script(WITHOUT_RUN, "--lr", "2"), script(WITHOUT_RUN + "\n", "--lr", "1")):
        with pytest.raises(TypeError):
            first_steps_bytes(other, "cpu")
    for module in (tmp_path / "model.py", tmp_path / "parts" / "layer.py"):
        module.parent.mkdir(exist_ok=True)
        module.write_text("SIZE = 1")
        with pytest.raises(TypeError):
            first_steps_bytes(script(WITHOUT_RUN, "--lr", "1", "--seed", "{seed}"), "cpu")
        module.unlink()


def test_a_trial_ends_before_it_takes_what_is_not_free(script, monkeypatch):
    monkeypatch.setattr("labkit.hardware.read_cpu", lambda: SimpleNamespace(memory_available_bytes=9 << 26))
    greedy = "import time\nheld = []\nfor _ in range(99): held.append(bytearray(1 << 24)); time.sleep(0.01)"
    with pytest.raises(UserError, match=r"train\.py was tried .* takes more memory than is free \(512 MiB"):
        first_steps_bytes(script(greedy), "cpu")


def test_a_script_that_fails_says_why(script):
    with pytest.raises(UserError, match=r"train\.py was tried .* failed: .*ValueError: no such file"):
        first_steps_bytes(script("raise ValueError('no such file')"), "cpu")
    with pytest.raises(UserError, match=r"ended with status 2 before its first step: .*: invalid int value: 'x'"):
        first_steps_bytes(script(WITH_FLAG, "-n", "x"), "cpu")
    with pytest.raises(UserError, match="made for a dataset"):
        first_steps_bytes(job_command("dlrm", preset="kaggle"), "cpu")


def test_a_script_without_a_step_has_no_known_need_however_stubborn(script, monkeypatch):
    monkeypatch.setattr(need, "LONGEST_TRIAL_S", 1.0)
    monkeypatch.setattr(need._Trial, "grace_s", 2.0)
    text = "import time, signal\nsignal.signal(2, lambda *_: 0)\nwhile True: time.sleep(1)"
    assert first_steps_bytes(script(text), "cpu") is None
    assert not [each for each in psutil.Process().children() if "labkit.tracking.worker" in " ".join(each.cmdline())]


def test_tables_that_are_more_than_is_free_are_refused(monkeypatch):
    monkeypatch.setattr("labkit.hardware.read_cpu", lambda: SimpleNamespace(memory_available_bytes=50_000))
    with pytest.raises(UserError, match=r"needs .* for its embedding tables .* free"):
        DlrmJob(optimiser="adagrad", lr=0.1).refuse_large_tables(DlrmConfig(13, (500, 100), 15, (15,), (1,)))
