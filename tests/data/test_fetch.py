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

from labkit.data.fetch import Archive, download, fetch, unpack
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


def test_a_server_that_is_not_there_is_a_users_error(tmp_path):
    with pytest.raises(UserError, match="Check the network"):
        download(archive("http://127.0.0.1:9/a.bin", b""), tmp_path, quiet)


def test_a_download_that_does_not_fit_is_refused_before_it_starts(tmp_path):
    huge = archive("http://127.0.0.1:9/a.bin", b"", size_bytes=10**18)
    with pytest.raises(UserError, match=r"needs about .* GiB"):
        fetch("huge", (huge,), root=tmp_path, progress=quiet)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


EVIL = {
    "a name that climbs": tar_of((tarfile.TarInfo("../evil"), b"x")),
    "an absolute link": tar_of((link("out", "/etc"), b"")),
    "a link that climbs": tar_of((link("out", "../.."), b"")),
    "a hard link that climbs": tar_of((link("out", "../../evil", tarfile.LNKTYPE), b"")),
    "a device": tar_of((link("out", "", tarfile.CHRTYPE), b"")),
}


@pytest.mark.parametrize("content", EVIL.values(), ids=EVIL)
def test_a_tar_archive_cannot_leave_its_folder(content, tmp_path):
    path = tmp_path / "evil.tar.gz"
    path.write_bytes(content)
    folder = tmp_path / "inner" / "folder"
    folder.mkdir(parents=True)
    with pytest.raises(UserError, match=r"would be written outside its folder"):
        unpack(path, folder)
    assert not list(tmp_path.rglob("evil")) and not list(folder.iterdir())


def test_an_absolute_name_in_a_tar_archive_stays_inside(tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(tar_of((tarfile.TarInfo("/labkit-evil"), b"x")))
    (tmp_path / "folder").mkdir()
    unpack(path, tmp_path / "folder")
    assert (tmp_path / "folder" / "labkit-evil").is_file() and not Path("/labkit-evil").exists()


def test_a_damaged_archive_is_named(tmp_path):
    path = tmp_path / "cut.tar.gz"
    path.write_bytes(tar_of((tarfile.TarInfo("a"), bytes(range(256)) * 1000))[:-200])
    with pytest.raises(UserError, match=r"cut\.tar\.gz is damaged"):
        unpack(path, tmp_path / "folder")
