"""Datasets are prepared once, whole, and again when the source changed; downloads come from a server on this host."""

import errno
import hashlib
import http.server
import io
import os
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from labkit.data import store
from labkit.data.catalog import download, fetch, unpack
from labkit.errors import UserError
from labkit.runs import Archive


def quiet(fraction: float, text: str) -> None:
    pass


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    """The address of a server of a folder, and the folder."""
    folder = tmp_path / "served"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", folder
        running.shutdown()
        thread.join()


def archive(url: str, content: bytes, **changes) -> Archive:
    facts = {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return Archive(url, **{**facts, **changes})


def tar_of(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    """An archive with one member."""
    stream, info = io.BytesIO(), tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(content)
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def test_a_dataset_is_downloaded_checked_and_unpacked_once(server, tmp_path, monkeypatch):
    url, served = server
    archives = []
    for name in ("a", "b"):
        content = tar_of(f"set/{name}.txt", name.encode())
        (served / f"{name}.tar.gz").write_bytes(content)
        archives.append(archive(f"{url}/{name}.tar.gz", content))
    seen, root = [], tmp_path / "root"
    monkeypatch.setenv("LABKIT_CACHE", str(root))
    folder = fetch("set", archives, progress=lambda fraction, text: seen.append(fraction))
    assert (folder / "set" / "a.txt").read_text() + (folder / "set" / "b.txt").read_text() == "ab"
    assert seen == sorted(seen) and seen[-1] == 1.0
    assert not list(root.rglob("*.tar.gz"))
    for file in served.iterdir():
        file.unlink()
    assert fetch("set", archives, progress=quiet) == folder


def test_a_download_that_is_wrong_missing_or_too_large_is_refused_and_not_kept(server, tmp_path, monkeypatch):
    url, served = server
    (served / "a.bin").write_bytes(b"content")
    root = tmp_path / "root"
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    for address, words in (
        (f"{url}/a.bin", r"not send the published file.*SHA-256"),
        (f"{url}/missing.bin", r"missing\.bin failed \(.*404.*run the command again"),
        ("http://127.0.0.1:9/a.bin", "check the network"),
    ):
        with pytest.raises(UserError, match=words):
            download(archive(address, b"other"), root, quiet)
        assert not list(root.iterdir())
    with pytest.raises(UserError, match=r"needs about .* GiB"):
        fetch("huge", (archive(f"{url}/a.bin", b"", size_bytes=10**18),), progress=quiet)


@pytest.mark.parametrize(
    "content", [tar_of("../evil", b"x"), tar_of("out", b"", tarfile.SYMTYPE, "../..")], ids=["a name", "a link"]
)
def test_a_tar_archive_cannot_leave_its_folder(content, tmp_path):
    path, folder = tmp_path / "evil.tar.gz", tmp_path / "inner" / "folder"
    path.write_bytes(content)
    folder.mkdir(parents=True)
    with pytest.raises(UserError, match=r"would be written outside its folder"):
        unpack(path, folder)
    assert not list(tmp_path.rglob("evil")) and not list(folder.iterdir())


def test_an_absolute_name_in_an_archive_stays_inside_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(tar_of("/labkit-evil", bytes(range(256)) * 1000))
    unpack(path, tmp_path / "folder")
    assert (tmp_path / "folder" / "labkit-evil").is_file() and not Path("/labkit-evil").exists()
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"a\.tar\.gz is damaged"):
        unpack(path, tmp_path / "folder")


def test_the_cache_folder_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    assert store.prepared_root() == tmp_path
    monkeypatch.delenv("LABKIT_CACHE")
    assert store.prepared_root().name == "labkit"


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

    store.prepare_once(folder, lambda temporary: {"whole": 1})
    assert store.read_meta(folder) == {"whole": 1} and not (folder / "old").exists() and not left.exists()
    store.prepare_once(folder, fails)  # there already: not built again


def test_a_cache_that_the_system_refuses_is_a_named_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file: the system refused this \(.*LABKIT_CACHE"):
        store.prepare_once(tmp_path / "file" / "data", lambda _: None)

    def fails(_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "arrays")

    with pytest.raises(UserError, match=r"arrays: the system refused this .*not read-only"):
        store.prepare_once(tmp_path / "data", fails)


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


def test_data_of_one_content_is_recorded_as_one_wherever_it_lies_and_whenever_it_was_written(tmp_path):
    def recorded(folder: str, seconds: int, **contents: str) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        paths = [tmp_path / folder / name for name in contents]
        for path in paths:
            path.write_text(contents[path.name])
            os.utime(path, (seconds, seconds))
        return store.content_fingerprint(tmp_path / folder, paths, seed=0)

    assert recorded("a", 1, one="1", two="2") == recorded("b", 2, two="2", one="1")
    assert recorded("a", 1, one="2", two="1") != recorded("b", 1, one="1", two="2")
    unreadable = tmp_path / "a" / "gone"
    assert store.content_fingerprint(tmp_path, [unreadable]) != store.content_fingerprint(tmp_path, [])
