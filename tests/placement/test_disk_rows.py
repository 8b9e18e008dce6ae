"""Rows in a mapped file: the cap on what is resident, what comes from the disk, and disks without room."""

import errno
import os
import re
from pathlib import Path

import numpy as np
import pytest

from labkit.errors import UserError
from labkit.placement import disk
from labkit.placement.disk import PAGE, DiskStore
from labkit.placement.settings import Placement

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs Linux")
ROWS, WIDTH, CAP_PAGES = 40_000, 17, 64


@pytest.fixture
def store(tmp_path):
    """2.7 MB of rows of 68 bytes, some across two pages, of which 256 KiB may be resident."""
    store = DiskStore(ROWS, 16, WIDTH, tmp_path, CAP_PAGES * PAGE)
    yield store
    store.close()


def resident_pages(store) -> int:
    """Of the mapping, as the kernel counts them."""
    start = store._rows.__array_interface__["data"][0]
    smaps = Path("/proc/self/smaps").read_text()
    return int(re.search(rf"^{start:x}-.*?^Rss:\s+(\d+) kB", smaps, re.MULTILINE | re.DOTALL)[1]) * 1024 // PAGE


def test_rows_come_back_as_written_and_no_more_than_the_cap_is_ever_resident(store, tmp_path):
    assert not list(tmp_path.iterdir()), "the file goes with the process"
    rng, expected = np.random.default_rng(0), np.zeros((ROWS, WIDTH), np.float32)
    for _ in range(12):
        rows = np.sort(rng.choice(ROWS, 150, replace=False))
        assert np.array_equal(store.read(rows), expected[rows])
        expected[rows] = rng.random((150, WIDTH), np.float32)
        store.write(rows, expected[rows])
        assert resident_pages(store) <= CAP_PAGES
    assert np.array_equal(store.read(np.arange(ROWS)), expected)
    assert resident_pages(store) <= CAP_PAGES


def test_rows_larger_than_a_page_stay_under_the_cap_too(tmp_path):
    store, rng = DiskStore(300, 3000, 3000, tmp_path, CAP_PAGES * PAGE), np.random.default_rng(0)
    values = rng.random((300, 3000), np.float32)
    store.write(np.arange(300), values)
    assert resident_pages(store) <= CAP_PAGES
    assert np.array_equal(store.read(np.arange(0, 300, 7)), values[::7])
    store.close()


def test_a_copy_brings_all_rows_back_and_two_copies_are_kept(store, tmp_path):
    rows, folder = np.arange(ROWS), tmp_path / "checkpoint"
    saved = []
    for step in (3, 20, 100):
        store.write(rows, np.full((ROWS, WIDTH), step, np.float32))
        saved.append(store.save(folder, step))
    assert sorted(path.name for path in folder.iterdir()) == [each["file"] for each in saved[1:]]
    store.load(folder, saved[1])
    assert (store.read(rows) == 20).all()
    assert [path.name for path in folder.iterdir()] == [saved[1]["file"]]  # step 100 will be taken again
    with pytest.raises(UserError, match=r"tables-000000000100.rows: this copy of the tables is not there"):
        store.load(folder, saved[2])


def test_a_copy_that_was_cut_short_is_refused(store, tmp_path):
    saved = store.save(tmp_path / "checkpoint", 1)
    os.truncate(tmp_path / "checkpoint" / saved["file"], 1000)
    with pytest.raises(UserError, match=r"has 1,000 bytes.*Bring the file back"):
        store.load(tmp_path / "checkpoint", saved)


def test_a_disk_without_room_is_named_before_anything_is_made(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"needs .* here, and the disk has .* free.*--table-dir"):
        Placement("disk").refuse_full_disk(10**12, 64, tmp_path / "new")
    assert not list(tmp_path.iterdir())

    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(UserError, match=f"{re.escape(str(tmp_path))}: the disk is full"):
        DiskStore(ROWS, 16, WIDTH, tmp_path, 2**20)


def test_a_folder_that_takes_no_file_is_a_named_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file: the system refused this .*--table-dir"):
        DiskStore(ROWS, 16, WIDTH, tmp_path / "file", 2**20)


def test_a_disk_that_fills_while_a_copy_is_made_leaves_the_copies_before(store, tmp_path, monkeypatch):
    folder, copy = tmp_path / "checkpoint", os.copy_file_range
    first = store.save(folder, 1)
    (folder / "tables-000000000002.part").write_text("of a process that was killed while it copied")

    def fills(source, target, count, *offsets):
        if offsets[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return copy(source, target, 2**20, *offsets)

    monkeypatch.setattr(os, "copy_file_range", fills)
    with pytest.raises(UserError, match=f"{re.escape(str(folder))}: the disk is full"):
        store.save(folder, 2)
    assert [path.name for path in folder.iterdir()] == [first["file"]]


def test_a_copy_goes_to_another_file_system_too(store, tmp_path, monkeypatch):
    def refuses(*arguments):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    rows, values = np.arange(ROWS), np.random.default_rng(0).random((ROWS, WIDTH), np.float32)
    store.write(rows, values)
    monkeypatch.setattr(os, "copy_file_range", refuses)
    saved = store.save(tmp_path / "checkpoint", 1)
    store.write(rows, 0 * values)
    store.load(tmp_path / "checkpoint", saved)
    assert np.array_equal(store.read(rows), values)


def test_what_the_disk_gave_is_told_apart_from_what_was_asked_for(store, monkeypatch):
    store._disk_read_at_first = 4096
    monkeypatch.setattr(disk, "bytes_from_disk", lambda: 3 * 4096)
    assert store.metrics()["placement_disk_read_bytes"] == 2 * 4096
    monkeypatch.setattr(disk, "bytes_from_disk", lambda: None)
    assert "placement_disk_read_bytes" not in store.metrics(), "what is not known is no zero"
