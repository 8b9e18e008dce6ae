"""MIG instances that are made for a workload: exactly these are removed again."""

import subprocess

import pytest
from fake_gpu_tools import FIRST, fake_nvml, nvidia_smi, process, read_mig, write_mig

from labkit.collocation.modes import mig_changes
from labkit.collocation.modes.choice import mode_shares
from labkit.collocation.modes.mig import proposed_layout
from labkit.collocation.modes.mig_changes import changed_layout
from labkit.collocation.modes.place import Place
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml

JOBS = [PlannedJob("a", "dlrm"), PlannedJob("b", "dlrm")]
THEIRS = {"1": ["3g.20gb", 0]}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(mig_changes, "AGAIN_S", 0.01)


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A GPU with one instance of somebody, and an nvidia-smi that may change it."""
    path = write_mig(tmp_path / "mig", instances=THEIRS.values())
    nvidia_smi(tmp_path, monkeypatch, path)
    return path


def layout_of(state, jobs=JOBS):
    library = fake_nvml("ampere", mig=state)
    with Nvml(library) as nvml:
        devices = get_devices(Nvml(library))
        layout, why = proposed_layout(jobs, Place(devices[1], devices, nvml))
    assert why is None
    return layout


def rewrite(state, **more):
    now = read_mig(state)
    write_mig(state, on=now["on"], instances=now["instances"].values(), **more)


def changes(state):
    """Calls of nvidia-smi that change something, without `mig -i UUID`."""
    return [call[3:] for call in read_mig(state)["calls"]]


def test_instances_are_made_used_and_removed_and_those_of_others_stay(state):
    library = fake_nvml("ampere", mig=state)
    jobs = [*JOBS, PlannedJob("c", "dlrm")]
    with changed_layout(layout_of(state, jobs), Nvml(library)):
        assert set(read_mig(state)["instances"]) == {"1", "2", "3"}
        devices = get_devices(Nvml(library))
        shares = mode_shares("mig", jobs, devices[1], devices, nvml=Nvml(library))
        assert {share.environment["CUDA_VISIBLE_DEVICES"] for share in shares.values()} == {"MIG-1", "MIG-2", "MIG-3"}
    assert read_mig(state)["instances"] == THEIRS
    assert changes(state) == [
        ["-cgi", "1g.10gb:4,1g.10gb:6", "-C"],
        ["-dci", "-gi", "3"], ["-dgi", "-gi", "3"], ["-dci", "-gi", "2"], ["-dgi", "-gi", "2"],
    ]  # fmt: skip


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_instances_are_removed_after_an_error(state, error):
    layout = layout_of(state)
    with pytest.raises(error), changed_layout(layout, Nvml(fake_nvml("ampere", mig=state))):
        assert len(read_mig(state)["instances"]) == 2
        raise error
    assert read_mig(state)["instances"] == THEIRS


def test_ctrl_c_while_nvidia_smi_works_leaves_nothing(state, monkeypatch):
    """The wait is interrupted once; nvidia-smi is in a session of its own and finishes."""
    waits = []

    class Interrupted(subprocess.Popen):
        def wait(self, timeout=None):
            waits.append(timeout)
            if len(waits) == 1:
                raise KeyboardInterrupt
            return super().wait(timeout)

    layout = layout_of(state)
    monkeypatch.setattr(mig_changes.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt), changed_layout(layout, Nvml(fake_nvml("ampere", mig=state))):
        raise AssertionError("the layout is not there")
    assert read_mig(state)["instances"] == THEIRS
    assert len(changes(state)) > 1


def test_what_was_made_before_nvidia_smi_failed_is_removed(state):
    layout = layout_of(state, [*JOBS, PlannedJob("c", "dlrm")])
    rewrite(state, breaks_after=1)
    with (
        pytest.raises(UserError, match=r"did not make the MIG layout: .*Insufficient Resources"),
        changed_layout(layout, Nvml(fake_nvml("ampere", mig=state))),
    ):
        raise AssertionError("the layout is not there")
    assert read_mig(state)["instances"] == THEIRS
    assert changes(state)[1:] == [["-dci", "-gi", "2"], ["-dgi", "-gi", "2"]]


def test_without_rights_the_command_for_the_administrator_is_told(state):
    layout = layout_of(state)
    rewrite(state, no_rights=True)
    with (
        pytest.raises(
            UserError, match=rf"Insufficient Permissions .*`sudo nvidia-smi mig -i {FIRST} -cgi 3g.20gb:4 -C`"
        ),
        changed_layout(layout, Nvml(fake_nvml("ampere", mig=state))),
    ):
        raise AssertionError("the layout is not there")


@pytest.mark.parametrize("used", [FIRST, "MIG-1"])
@pytest.mark.parametrize("how", ["computing", "drawing"])
def test_a_gpu_that_somebody_uses_is_not_changed(state, used, how):
    library = fake_nvml("ampere", mig=state, **{how: {used: [process(1)]}})
    layout = layout_of(state)
    with pytest.raises(UserError, match="in use by process 1 "), changed_layout(layout, Nvml(library)):
        raise AssertionError("the layout is not there")
    assert changes(state) == []


def test_without_nvidia_smi_nothing_is_tried(state, monkeypatch, tmp_path):
    layout = layout_of(state)
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(UserError, match="nvidia-smi is not on PATH"),
        changed_layout(layout, Nvml(fake_nvml("ampere", mig=state))),
    ):
        raise AssertionError("the layout is not there")


def test_an_instance_that_is_still_in_use_is_asked_for_again(state):
    layout = layout_of(state)
    rewrite(state, busy=3)
    with changed_layout(layout, Nvml(fake_nvml("ampere", mig=state))):
        pass
    assert read_mig(state)["instances"] == THEIRS
    assert sum(call[0] == "-dgi" for call in changes(state)) == 4


def test_an_instance_that_cannot_be_removed_is_told(state, monkeypatch):
    layout = layout_of(state)
    rewrite(state, busy=10**6)
    monkeypatch.setattr(mig_changes, "REMOVE_S", 0.0)
    with (
        pytest.raises(UserError, match=r"instances 2 that labkit made stay .*In use by another client.* -dgi -gi 2`"),
        changed_layout(layout, Nvml(fake_nvml("ampere", mig=state))),
    ):
        pass
