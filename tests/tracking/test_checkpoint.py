import errno
import os

import pytest
import torch

from labkit.errors import UserError
from labkit.tracking.log import load_checkpoint, save_checkpoints


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/labkit-was-here",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"format": 5, "model": Evil()}, r"a\.pt.*cannot be read"),
        ({"format": 4}, "format is 4 .*version that wrote it"),
    ],
    ids=["code to run", "another labkit's"],
)
def test_a_checkpoint_that_cannot_be_read_says_what_to_do(tmp_path, content, words):
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(UserError, match=words):
        load_checkpoint(tmp_path / "a.pt")
    (tmp_path / "a.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:500])
    with pytest.raises(UserError, match=r"a\.pt.*cannot be read"):
        load_checkpoint(tmp_path / "a.pt")


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
