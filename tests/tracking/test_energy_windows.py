"""What `labkit.energy.window` records; what it comes to in joules is in tests/tta."""

import itertools

import pytest
import torch
from folders import events, in_harness

import labkit
from labkit.errors import UserError
from labkit.tracking import energy


@pytest.fixture
def ticks(monkeypatch):
    """A clock that goes on by 1 s at each look."""
    seconds = itertools.count()
    clock = type("Clock", (), {"monotonic_ns": lambda: next(seconds) * 10**9, "time_ns": lambda: 10**18})
    monkeypatch.setattr(energy, "time", clock)
    clock.monotonic = lambda: 0.0  # a batch is written at the end
    return clock


def recorded(folder):
    """(name, begin in seconds, end) of each window."""
    told = events(folder, "windows")
    spans = [(each["name"], *span) for each in told for span in zip(each["begin_ns"], each["end_ns"], strict=True)]
    return [(name, begin // 10**9 - 10**9, end // 10**9 - 10**9) for name, begin, end in spans]


def test_windows_nest_and_a_name_comes_again(run, ticks):
    with run() as open_run:
        open_run.step(samples=1)
        for _ in range(2):
            with labkit.energy.window("epoch") as epoch, labkit.energy.window("forward"):
                assert epoch.seconds is None
        with pytest.raises(ZeroDivisionError), labkit.energy.window("forward"):
            raise ZeroDivisionError
        assert not events(open_run.folder, "windows")
    assert epoch.seconds == 3
    assert sorted(recorded(open_run.folder)) == [
        ("epoch", 1, 4), ("epoch", 5, 8), ("epoch/forward", 2, 3), ("epoch/forward", 6, 7), ("forward", 9, 10),
    ]  # fmt: skip


def test_windows_reach_the_disk_while_the_run_goes_on(run, ticks, monkeypatch):
    with run() as open_run:
        for now in (1, energy.WRITE_EVERY_S, 2 * energy.WRITE_EVERY_S - 1):
            ticks.monotonic = lambda now=now: now
            with labkit.energy.window("step"):
                pass
        assert len(recorded(open_run.folder)) == 2
    assert len(recorded(open_run.folder)) == 3


@pytest.mark.parametrize(("torch_name", "sync", "waits"), [("cuda:1", True, 2), ("cuda:1", False, 0), ("cpu", True, 0)])
def test_a_window_waits_for_the_gpu_that_the_run_computes_on(run, monkeypatch, torch_name, sync, waits):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    with run() as open_run:
        open_run.step(samples=1)
        energy._windows.torch_name = torch_name
        with labkit.energy.window("step", sync=sync):
            pass
    assert waited == [torch_name] * waits


def test_without_a_run_and_without_a_name_there_is_no_window(run, runs):
    with pytest.raises(UserError, match=r"needs an open run.*labkit\.Run"):
        labkit.energy.window("step")
    with run(), pytest.raises(UserError, match="give the window a name"):
        labkit.energy.window(" ")
    with pytest.raises(UserError, match="needs an open run"):
        labkit.energy.window("step")
    (runs / "a-file").touch()
    with in_harness(runs / "a-file"), pytest.raises(UserError, match="a run folder cannot be made"), run():
        pass
    with pytest.raises(UserError, match="needs an open run"):
        labkit.energy.window("step")


def test_the_end_of_a_run_leaves_the_windows_of_a_later_one():
    earlier, later = (energy.Windows(lambda event, **of: None) for _ in range(2))
    earlier.close()
    with labkit.energy.window("step"):
        pass
    later.close()
    assert energy._windows is None
