import errno
import os

import pytest
import torch

from labkit.errors import UserError
from labkit.training.checkpoint import load_checkpoint, save_checkpoint


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
    torch.save({"format": 1, "model": Evil()}, tmp_path / "evil.pt")
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
