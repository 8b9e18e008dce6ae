"""Preparing once, whole, and again when the source changed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.data import store
from labkit.errors import UserError


def test_the_cache_folder_can_be_chosen_and_the_shipped_schemas_are_found(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    assert store.prepared_root() == tmp_path
    monkeypatch.delenv("LABKIT_CACHE")
    assert store.prepared_root().name == "labkit"
    assert (store.shipped_datasets() / "schemas" / "adult.toml").is_file()


def test_a_prepared_folder_appears_only_when_it_is_whole(tmp_path):
    folder = tmp_path / "data"

    def fails(temporary: Path) -> None:
        (temporary / "half").write_text("x")
        assert not folder.exists()
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        store.prepare_once(folder, fails)
    assert [path.name for path in tmp_path.iterdir()] in ([], [".data.lock"])
    left = tmp_path / ".data.partial"  # by a process that was killed
    left.mkdir()
    (left / "old").write_text("x")

    store.prepare_once(folder, lambda temporary: (temporary / "whole").write_text("x"))
    assert (folder / "whole").is_file() and not (folder / "old").exists() and not left.exists()
    store.prepare_once(folder, fails)  # there already: not built again


def test_of_two_processes_one_prepares_and_both_get_it(tmp_path):
    # The builder waits until the other process wants the folder too, so they do meet.
    program = """
import sys, time
from pathlib import Path
from labkit.data.store import prepare_once
root, me, other = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
def build(folder):
    with (root / "builds").open("a") as file:
        file.write("build\\n")
    deadline = time.monotonic() + 60
    while not (root / other).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    (folder / "file").write_text("x")
(root / me).touch()
assert (prepare_once(root / "data", build) / "file").read_text() == "x"
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), *names])
        for names in (("first", "second"), ("second", "first"))
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert (tmp_path / "builds").read_text() == "build\n"


DAMAGES = {
    "flipped": lambda folder: (folder / "small").write_bytes(b"contenu"),
    "shorter": lambda folder: (folder / "small").write_bytes(b""),
    "gone": lambda folder: (folder / "small").unlink(),
    "large and shorter": lambda folder: (folder / "large").write_bytes(bytes(store.SMALL_BYTES)),
    "listed otherwise": lambda folder: (folder / store.CONTENTS).write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_folder_damaged_since_is_built_anew(tmp_path, damage):
    def build(temporary: Path) -> None:
        (temporary / "small").write_bytes(b"content")
        (temporary / "large").write_bytes(bytes(store.SMALL_BYTES + 1))

    folder = store.prepare_once(tmp_path / "data", build)
    store.prepare_once(folder, lambda _: pytest.fail("built again, though it is whole"))
    DAMAGES[damage](folder)
    store.prepare_once(folder, build)
    assert (folder / "small").read_bytes() == b"content" and (folder / "large").stat().st_size == store.SMALL_BYTES + 1


def test_a_full_disk_is_named_with_the_free_space(tmp_path):
    def full(temporary: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match=r"ran out of disk.*GiB free.*LABKIT_CACHE"):
        store.prepare_once(tmp_path / "data", full)
    assert not (tmp_path / "data").exists()


def test_a_file_is_known_by_its_content_and_a_large_one_by_its_ends_and_time(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "END_BYTES", 10)
    path = tmp_path / "source"

    def mark(content: bytes, seconds: int) -> str:
        path.write_bytes(content)
        os.utime(path, (seconds, seconds))
        return str(store.file_fingerprint(path))

    assert mark(b"content", 1) == mark(b"content", 2)
    assert len({mark(content, 1) for content in (b"content", b"CONTENT", b"content!")}) == 3
    large = b"a" * 200
    contents = (large, large + b"a", b"b" + large[1:], large[1:] + b"b")
    assert len({mark(content, 1) for content in contents} | {mark(large, 2)}) == 5


def test_a_tree_is_known_by_names_sizes_and_times(tmp_path):
    (tmp_path / "a").write_text("x")
    first = store.tree_fingerprint(tmp_path, tmp_path.iterdir())
    assert store.tree_fingerprint(tmp_path, tmp_path.iterdir()) == first
    (tmp_path / "b").write_text("x")
    assert store.tree_fingerprint(tmp_path, tmp_path.iterdir()) != first
