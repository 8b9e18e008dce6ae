import errno
import os

import pytest
import torch

from labkit.errors import UserError
from labkit.tracking.checkpoint import clone_into, load_checkpoint, save_checkpoints


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/labkit-was-here",)


def test_what_is_saved_is_read_back(tmp_path):
    save_checkpoints({tmp_path / "a.pt": {"model": {"w": torch.arange(3)}, "step": 7}})
    content = load_checkpoint(tmp_path / "a.pt")
    assert content["step"] == 7
    assert content["model"]["w"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]


def test_a_cut_checkpoint_is_named_as_such(tmp_path):
    path = tmp_path / "a.pt"
    save_checkpoints({path: {"w": torch.arange(1000)}})
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(UserError, match=r"a\.pt.*cannot be read"):
        load_checkpoint(path)


def test_a_flipped_weight_of_a_checkpoint_without_digest_is_refused(tmp_path):
    path, weights = tmp_path / "a.pt", torch.arange(1000.0)
    torch.save({"format": 4, "w": weights}, path)  # as before there were digests
    content = bytearray(path.read_bytes())
    at = bytes(content).index(weights.numpy().tobytes())
    for place in (at, at + 1999, at + 3999):
        content[place] ^= 1
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"a\.pt.*not what was written"):
            load_checkpoint(path)
        content[place] ^= 1
    path.write_bytes(content)
    assert torch.equal(load_checkpoint(path)["w"], weights)


def test_any_flipped_bit_of_a_checkpoint_is_refused(tmp_path):
    path = tmp_path / "a.pt"
    save_checkpoints({path: {"w": torch.arange(9), "name": "a"}})
    content = path.read_bytes()
    for place in range(0, len(content), 13):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        with pytest.raises(UserError, match="cannot be read"):
            load_checkpoint(path)


def test_a_checkpoint_runs_no_code(tmp_path):
    torch.save({"format": 4, "model": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(UserError, match="cannot be read"):
        load_checkpoint(tmp_path / "evil.pt")


def test_a_checkpoint_of_a_newer_labkit_says_upgrade(tmp_path):
    torch.save({"format": 99}, tmp_path / "new.pt")
    with pytest.raises(UserError, match="upgrade labkit"):
        load_checkpoint(tmp_path / "new.pt")


def test_a_full_disk_keeps_the_old_checkpoints(tmp_path, monkeypatch):
    paths = [tmp_path / "best.pt", tmp_path / "latest.pt"]
    save_checkpoints({path: {"step": 1} for path in paths})
    plain = torch.save

    def no_space_for_the_second(content, file):
        if "latest" in file.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(content, file)

    monkeypatch.setattr(torch, "save", no_space_for_the_second)
    with pytest.raises(UserError, match="disk is full"):
        save_checkpoints({path: {"step": 2} for path in paths})
    assert [load_checkpoint(path)["step"] for path in paths] == [1, 1]  # a best that is newer would be tested for it
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["best.pt", "latest.pt"]


def test_a_checkpoint_of_an_older_labkit_says_start_anew(tmp_path):
    torch.save({"format": 3}, tmp_path / "old.pt")
    with pytest.raises(UserError, match="start a new run"):
        load_checkpoint(tmp_path / "old.pt")


def test_copies_of_weights_stay_when_the_weights_change():
    weights = {"w": torch.zeros(3), "n": torch.tensor(1)}
    copies = clone_into(weights, {})
    place = copies["w"].data_ptr()
    weights["w"] += 1
    assert copies["w"].tolist() == [0, 0, 0]
    assert clone_into(weights, copies)["w"].data_ptr() == place  # in the memory there was
    assert copies["w"].tolist() == [1, 1, 1]
