"""Preparing once, whole, and again when the source changed."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labkit.data import store
from labkit.errors import UserError
from labkit.project import shipped_datasets


def test_the_cache_folder_can_be_chosen_and_the_shipped_schemas_are_found(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    assert store.prepared_root() == tmp_path
    monkeypatch.delenv("LABKIT_CACHE")
    assert store.prepared_root().name == "labkit"
    assert (shipped_datasets() / "schemas" / "adult.toml").is_file()


def test_a_prepared_folder_appears_only_when_it_is_whole(tmp_path):
    folder = tmp_path / "data"

    def fails(temporary: Path) -> None:
        (temporary / "half").write_text("x")
        assert not folder.exists()
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match=r"ran out of disk.*GiB free.*LABKIT_CACHE"):
        store.prepare_once(folder, fails)
    assert [path.name for path in tmp_path.iterdir()] in ([], [".data.lock"])
    left = tmp_path / ".data.partial"  # by a process that was killed
    left.mkdir()
    (left / "old").write_text("x")

    store.prepare_once(folder, lambda temporary: (temporary / "whole").write_text("x"))
    assert (folder / "whole").is_file() and not (folder / "old").exists() and not left.exists()
    store.prepare_once(folder, fails)  # there already: not built again


def test_of_two_that_want_a_folder_one_prepares_it_and_both_get_it(tmp_path):
    both, builds = threading.Barrier(2, timeout=60), []

    def build(temporary: Path) -> None:
        builds.append(temporary)
        (temporary / "file").write_text("x")

    def want(_) -> str:
        both.wait()
        return (store.prepare_once(tmp_path / "data", build) / "file").read_text()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(want, range(2))) == ["x", "x"]
    assert len(builds) == 1


def test_a_folder_damaged_since_is_built_anew(tmp_path):
    def build(temporary: Path) -> None:
        (temporary / "small").write_bytes(b"content")
        (temporary / "large").write_bytes(bytes(store.SMALL_BYTES + 1))

    folder = store.prepare_once(tmp_path / "data", build)
    store.prepare_once(folder, lambda _: pytest.fail("built again, though it is whole"))
    for damage in (
        lambda: (folder / "small").write_bytes(b"contenu"),
        lambda: (folder / "small").unlink(),
        lambda: (folder / "large").write_bytes(bytes(store.SMALL_BYTES)),
        lambda: (folder / store.CONTENTS).write_text("[]"),
    ):
        damage()
        store.prepare_once(folder, build)
        assert (folder / "small").read_bytes() == b"content"
        assert (folder / "large").stat().st_size == store.SMALL_BYTES + 1


def test_a_file_is_known_by_its_content_and_a_large_one_by_its_ends_and_time(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "END_BYTES", 10)
    path = tmp_path / "source"

    def mark(content: bytes, seconds: int) -> str:
        path.write_bytes(content)
        os.utime(path, (seconds, seconds))
        return store.file_fingerprint(path)

    assert mark(b"content", 1) == mark(b"content", 2)
    assert len({mark(content, 1) for content in (b"content", b"CONTENT", b"content!")}) == 3
    large = b"a" * 200
    contents = (large, large + b"a", b"b" + large[1:], large[1:] + b"b")
    assert len({mark(content, 1) for content in contents} | {mark(large, 2)}) == 5
