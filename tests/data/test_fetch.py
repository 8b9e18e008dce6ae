"""Downloads from a server on this machine: right, wrong, missing, cut short, and archives that try to
escape."""

from __future__ import annotations

import hashlib
import http.server
import io
import tarfile
import threading
from pathlib import Path

import pytest

from labkit.data.catalog import Archive, download, fetch, unpack
from labkit.errors import UserError


def quiet(fraction: float, text: str) -> None:
    pass


@pytest.fixture
def server():
    """A server of `files`; one whose name begins with "short-" promises more bytes than it sends."""
    files: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.lstrip("/")
            if name not in files:
                self.send_error(404)
                return
            self.send_response(200)
            held_back = 1000 if name.startswith("short-") else 0
            self.send_header("Content-Length", str(len(files[name]) + held_back))
            self.end_headers()
            self.wfile.write(files[name])

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", files
        running.shutdown()
        thread.join()


def archive(url: str, content: bytes, **changes) -> Archive:
    facts = {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return Archive(url, **{**facts, **changes})


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def test_a_dataset_is_downloaded_checked_and_unpacked_once(server, tmp_path):
    url, files = server
    files["a.tar.gz"] = tar_of((tarfile.TarInfo("set/a.txt"), b"one"))
    files["b.tar.gz"] = tar_of((tarfile.TarInfo("set/b.txt"), b"two"))
    archives = tuple(archive(f"{url}/{name}", files[name]) for name in ("a.tar.gz", "b.tar.gz"))
    seen = []
    folder = fetch("set", archives, root=tmp_path, progress=lambda fraction, text: seen.append(fraction))
    assert (folder / "set" / "a.txt").read_text() + (folder / "set" / "b.txt").read_text() == "onetwo"
    assert seen == sorted(seen) and seen[-1] == 1.0
    assert not list(tmp_path.rglob("*.tar.gz"))
    files.clear()
    assert fetch("set", archives, root=tmp_path, progress=quiet) == folder


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.bin", b"other", r"not the published file.*SHA-256"),
        ("missing.bin", b"", r"missing\.bin failed: 404.*run the command again"),
        ("short-a.bin", b"content", r"short-a\.bin"),
    ],
    ids=["another checksum", "missing", "cut short"],
)
def test_a_file_that_is_not_the_published_one_is_not_kept(server, tmp_path, name, content, words):
    url, files = server
    files["a.bin"] = files["short-a.bin"] = b"content"
    with pytest.raises(UserError, match=words):
        download(archive(f"{url}/{name}", content), tmp_path, quiet)
    assert not list(tmp_path.iterdir())


def test_a_download_without_a_server_or_room_is_refused(tmp_path):
    with pytest.raises(UserError, match="Check the network"):
        download(archive("http://127.0.0.1:9/a.bin", b""), tmp_path, quiet)
    huge = archive("http://127.0.0.1:9/a.bin", b"", size_bytes=10**18)
    with pytest.raises(UserError, match=r"needs about .* GiB"):
        fetch("huge", (huge,), root=tmp_path, progress=quiet)


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", content: bytes = b"") -> bytes:
    """An archive with one member."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return tar_of((info, content))


EVIL = {
    "a name that climbs": member("../evil", content=b"x"),
    "a link that climbs": member("out", tarfile.SYMTYPE, "../.."),
    "a device": member("out", tarfile.CHRTYPE),
}


@pytest.mark.parametrize("content", EVIL.values(), ids=EVIL)
def test_a_tar_archive_cannot_leave_its_folder(content, tmp_path):
    path, folder = tmp_path / "evil.tar.gz", tmp_path / "inner" / "folder"
    path.write_bytes(content)
    folder.mkdir(parents=True)
    with pytest.raises(UserError, match=r"would be written outside its folder"):
        unpack(path, folder)
    assert not list(tmp_path.rglob("evil")) and not list(folder.iterdir())


def test_an_absolute_name_in_an_archive_stays_inside_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(member("/labkit-evil", content=bytes(range(256)) * 1000))
    unpack(path, tmp_path / "folder")
    assert (tmp_path / "folder" / "labkit-evil").is_file() and not Path("/labkit-evil").exists()
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"a\.tar\.gz is damaged"):
        unpack(path, tmp_path / "folder")
