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


def test_a_flipped_bit_of_a_checkpoint_is_refused_or_changes_nothing(tmp_path):
    path, weights = tmp_path / "a.pt", torch.arange(9.0)
    save_checkpoints({path: {"w": weights, "name": "a"}})
    content = path.read_bytes()
    at = content.index(weights.numpy().tobytes())
    for place in (*range(at, at + 36), *range(0, len(content), 13)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        try:
            read = load_checkpoint(path)
        except UserError as error:
            assert "cannot be read" in str(error)
        else:
            assert torch.equal(read["w"], weights) and read["name"] == "a" and place not in range(at, at + 36)


def test_a_checkpoint_runs_no_code(tmp_path):
    torch.save({"format": 4, "model": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(UserError, match="cannot be read"):
        load_checkpoint(tmp_path / "evil.pt")


@pytest.mark.parametrize(("version", "words"), [(99, "upgrade labkit"), (3, "start a new run")])
def test_a_checkpoint_of_another_labkit_says_what_to_do(tmp_path, version, words):
    torch.save({"format": version}, tmp_path / "other.pt")
    with pytest.raises(UserError, match=words):
        load_checkpoint(tmp_path / "other.pt")


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


def test_copies_of_weights_stay_when_the_weights_change():
    weights = {"w": torch.zeros(3), "n": torch.tensor(1)}
    copies = clone_into(weights, {})
    place = copies["w"].data_ptr()
    weights["w"] += 1
    assert copies["w"].tolist() == [0, 0, 0]
    assert clone_into(weights, copies)["w"].data_ptr() == place  # in the memory there was
    assert copies["w"].tolist() == [1, 1, 1]
