import errno
import os

import pytest
import torch

from labkit.errors import UserError
from labkit.tracking.checkpoint import Checkpoints, clone_into, load_checkpoint, save_checkpoint


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/labkit-was-here",)


def test_what_is_saved_is_read_back(tmp_path):
    save_checkpoint(tmp_path / "a.pt", {"model": {"w": torch.arange(3)}, "step": 7})
    content = load_checkpoint(tmp_path / "a.pt")
    assert content["step"] == 7
    assert content["model"]["w"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_a_cut_checkpoint_is_named_as_such(tmp_path):
    path = tmp_path / "a.pt"
    save_checkpoint(path, {"w": torch.arange(1000)})
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(UserError, match=r"a\.pt.*cannot be read"):
        load_checkpoint(path)


def test_a_checkpoint_runs_no_code(tmp_path):
    torch.save({"format": 4, "model": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(UserError, match="cannot be read"):
        load_checkpoint(tmp_path / "evil.pt")


def test_a_checkpoint_of_a_newer_labkit_says_upgrade(tmp_path):
    torch.save({"format": 99}, tmp_path / "new.pt")
    with pytest.raises(UserError, match="upgrade labkit"):
        load_checkpoint(tmp_path / "new.pt")


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "a.pt"
    save_checkpoint(path, {"step": 1})

    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", no_space)
    with pytest.raises(UserError, match="disk is full"):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path)["step"] == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.pt"]


def test_a_checkpoint_of_an_older_labkit_says_start_anew(tmp_path):
    torch.save({"format": 3}, tmp_path / "old.pt")
    with pytest.raises(UserError, match="start a new run"):
        load_checkpoint(tmp_path / "old.pt")


def test_after_a_kill_the_best_is_the_one_the_latest_names(tmp_path):
    """The best is saved at every better evaluation, the latest less often, and a kill can come between the two."""

    def content(step, best_step=None):
        return {"position": {"step": step, "best_step": best_step}, "kept": torch.tensor(step)}

    before = Checkpoints(tmp_path)
    before.save_best(content(2))
    before.save_latest(content(3, best_step=2))
    for step in (4, 5):
        before.save_best(content(step))
    after = Checkpoints(tmp_path)  # in another process
    assert after.load_latest()["position"]["step"] == 3
    assert load_checkpoint(after.best)["kept"] == 2
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == ["best.pt", "latest.pt"]


def test_a_best_that_no_checkpoint_names_is_forgotten(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save_latest({"position": {"step": 1, "best_step": None}})
    checkpoints.save_best({"position": {"step": 2}})
    Checkpoints(tmp_path).load_latest()
    assert not checkpoints.best.exists()


def test_copies_of_weights_stay_when_the_weights_change():
    weights = {"w": torch.zeros(3), "n": torch.tensor(1)}
    copies = clone_into(weights, {})
    place = copies["w"].data_ptr()
    weights["w"] += 1
    assert copies["w"].tolist() == [0, 0, 0]
    assert clone_into(weights, copies)["w"].data_ptr() == place  # in the memory there was
    assert copies["w"].tolist() == [1, 1, 1]
