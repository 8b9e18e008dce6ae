"""Runs in one file with checksums; and a recording of runs for others, without names and paths of its machine."""

import getpass
import hashlib
import json
import platform
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict

from labkit import DataError, UserError, hardware, json_data, project, runs

MANIFEST, SCHEMA_VERSION = "labkit-archive.json", 1
LEFT_OUT = ("checkpoint", "trace")
"""Folders of a run that an archive has only if it is asked to: they are large"""
FIX = "Get another copy of the archive."


class _File(TypedDict):
    bytes: int
    sha256: str


class _Manifest(TypedDict):
    schema_version: int
    runs: list[str]
    files: dict[str, _File]


def files_of(folder: Path, *, everything: bool) -> list[Path]:
    """The files that make up a run, in order; not locks, and not files that a killed writer left half written."""

    def belongs(path: Path) -> bool:
        parts = path.relative_to(folder).parts
        is_passing = any(part.startswith(".") for part in parts) or path.name == "stop-requested"
        is_wanted = everything or parts[0] not in LEFT_OUT
        return is_wanted and not is_passing and path.is_file() and not path.is_symlink()

    return sorted(filter(belongs, folder.rglob("*")))


def pack(folders: list[Path], file: Path, *, everything: bool = False) -> int:
    """Write runs into one new file, a zip with the SHA-256 of each of its files. Returns its size in bytes.

    Raises:
        UserError: the file exists, a run is still going on, or two runs have one name.
    """
    if file.exists():
        raise UserError(f"{file} exists already: give another name.")
    names = [folder.resolve().name for folder in folders]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two of the runs are named {twice}: omit one of them.")
    for folder in folders:
        if runs.read_run(folder).status == "running":
            raise UserError(
                f"{folder} is still running: wait for it, or stop it with `labkit runs stop {folder.name}`."
            )
    manifest: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "by": f"labkit {project.VERSION}"}
    manifest |= {"when": runs.timestamp(), "runs": names, "files": {}}
    file.parent.mkdir(parents=True, exist_ok=True)
    with runs.replacing(file) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, folder in zip(names, folders, strict=True):
            for path in files_of(folder, everything=everything):
                content = path.read_bytes()
                inside = f"{name}/{path.relative_to(folder).as_posix()}"
                manifest["files"][inside] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                is_text = path.suffix in (".json", ".jsonl", ".txt", ".log")  # Parquet is compressed already
                archive.writestr(inside, content, zipfile.ZIP_DEFLATED if is_text else zipfile.ZIP_STORED)
        archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
    return file.stat().st_size


def unpack(file: Path, runs_dir: Path) -> list[Path]:
    """Verify an archive, and write its runs below a folder; nothing is written unless all of it is whole.

    Raises:
        UserError: it is damaged, no archive of labkit's, from a newer labkit, or a run of it is there already.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = _manifest(file, archive)
            if there := next((name for name in manifest["runs"] if (runs_dir / name).exists()), None):
                raise UserError(f"{runs_dir / there} exists already: choose another folder with --into.")
            runs_dir.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=runs_dir) as place:
                with runs.disk_full_as_user_error(runs_dir):
                    for name, expected in manifest["files"].items():
                        path = Path(place, *PurePosixPath(name).parts)
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(_verified(file, archive, name, expected))
                return [Path(shutil.move(Path(place, name), runs_dir / name)) for name in manifest["runs"]]
    except zipfile.BadZipFile as error:
        raise DataError(f"this is not an archive, or a damaged one ({error}).", file=file, fix=FIX) from error


def _manifest(file: Path, archive: zipfile.ZipFile) -> _Manifest:
    try:
        content = json_data.parse_json(archive.read(MANIFEST))
        json_data.check_shape(content, _Manifest)
    except (KeyError, ValueError) as error:
        raise DataError(f"this is not an archive of labkit ({error}).", file=file, fix=FIX) from error
    if (version := content["schema_version"]) > SCHEMA_VERSION:
        what = f"a newer labkit wrote this archive, in format {version}, and this one reads {SCHEMA_VERSION}."
        raise DataError(what, file=file, fix="Upgrade labkit.")
    for name in content["files"]:
        parts = name.split("/")
        if len(parts) < 2 or parts[0] not in content["runs"] or any(not _is_plain(part) for part in parts):
            raise DataError(f"it has a file {name[:100]!r}, which is in none of its runs.", file=file, fix=FIX)
    return content


def _is_plain(part: str) -> bool:
    """Whether a name stays in its folder, on every system."""
    return re.fullmatch(r"[\w.+ -]+", part) is not None and part.strip(". ") != ""


def _verified(file: Path, archive: zipfile.ZipFile, name: str, expected: _File) -> bytes:
    try:
        with archive.open(name) as stream:
            content = stream.read(expected["bytes"] + 1)  # a small file may unpack to any size
    except KeyError:
        content = b""
    if len(content) != expected["bytes"] or hashlib.sha256(content).hexdigest() != expected["sha256"]:
        raise DataError(f"{name} in it is not what was packed: its checksum differs.", file=file, fix=FIX)
    return content


PATH = re.compile(r"(?<![\w:/.~<-])(?:~?/|[A-Za-z]:\\)[\w.@+-]+(?:[/\\][\w.@+-]+)*")
MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
ADDRESS = re.compile(r"(?<=://)[^/\s\"']+|\b(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}\b")
COMMON = {"root", "user", "admin", "ubuntu", "runner", "jovyan", "localhost", "labkit", "none", ""}
"""Names of users and hosts that say nothing"""


class Names:
    """What must not be in a recording: names of users and hosts, paths and addresses."""

    def __init__(self, hosts: set[str], alias: str):
        """Look for these hosts, this machine, and this user; `alias` stands for a host."""
        user, home = getpass.getuser(), Path("~").expanduser().name
        hosts = {name for host in {*hosts, platform.node()} for name in (host, host.partition(".")[0])}
        self._words = {name: alias for name in hosts} | {name: "user" for name in (user, home)}
        words = [word for word in self._words if word.lower() not in COMMON and word != alias and len(word) > 1]
        either = "|".join(map(re.escape, sorted(words, key=len, reverse=True))) or "(?!)"  # which is found nowhere
        self._pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{either})(?![A-Za-z0-9])")
        self.changed: set[str] = set()
        """Texts that were replaced"""

    def hidden(self, value: Any) -> Any:
        """JSON-able data with a word for each name, and only the last part of each path."""
        if isinstance(value, dict):
            return {self.hidden(name): self.hidden(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.hidden(item) for item in value]
        if not isinstance(value, str):
            return value
        text = ADDRESS.sub("host", MAIL.sub("someone", value))
        text = PATH.sub(lambda found: re.split(r"[/\\]", found[0])[-1], text)
        text = self._pattern.sub(lambda found: self._words[found[0]], text)
        if text != value:
            self.changed.add(value)
        return text

    def found(self, text: str) -> str | None:
        """The first name, path or address in a text."""
        hits = (hit[0] for pattern in (PATH, MAIL, ADDRESS, self._pattern) for hit in pattern.finditer(text))
        return next((hit for hit in hits if hit not in ("host", "someone")), None)


def record_for_others(
    folders: list[Path], place: Path, *, licence: str, authors: str, title: str, host: str | None = None
) -> set[str]:
    """Write a recording of runs: their folders, and a card with hardware and licence. Returns the texts it changed.

    Names of hosts and of the user, paths, addresses of mail and machines become other words in `run.json` and
    `events.jsonl`; afterwards every text of the recording is searched for them.

    Args:
        folders: the runs; checkpoints and traces are left out.
        place: the new folder of the recording.
        licence: name of the licence, such as "Apache-2.0".
        authors: who measured them.
        title: what was measured.
        host: name that stands for the machine; by default that of its device.

    Raises:
        UserError: the folder exists, a run was not measured by labkit, or a name is where it cannot be replaced.
    """
    if place.exists():
        raise UserError(f"{place} exists already: give another folder.")
    records = [runs.read_run(folder) for folder in folders]
    if imported := [record.id for record in records if "imported" in record.config or record.status == "running"]:
        raise UserError(f"{imported[0]} still runs, or was not measured by labkit: omit it.")
    used = [_device(record) for record in records]
    names = Names(
        {record.host for record in records}, host or re.sub(r"[^a-z0-9]+", "-", used[0].lower()).strip("-")[:30]
    )
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".recording-", dir=place.parent) as temporary:
        whole = Path(temporary, place.name)
        for folder, record in zip(folders, records, strict=True):
            _copy(folder, record, whole / folder.resolve().name, names)
        days = sorted(record.started_at[:10] for record in records)
        card = {
            "title": title,
            "cite": authors,
            "devices": sorted(set(used)),
            "derived": f"{len(records)} run folders, by `labkit runs record`: hosts, users and paths are renamed",
            "authors": authors,
            "date": days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}",
            "source": "labkit",
            "licence": licence,
            "cannot_say": "how other machines, other versions of its software, or other settings do",
        }
        lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in card.items())
        runs.replace_text(whole / runs.CARD, "\n".join(lines) + "\n")
        for path, field, text in _texts(whole):
            if hit := names.found(text):
                raise DataError(
                    f"{hit[:80]!r} names a user, a host or a path, in {text[:120]!r}.",
                    file=folders[0].parent / path.relative_to(whole),
                    field=field,
                    fix="Nothing was written: rename it in a copy of the run, or omit the run.",
                )
        shutil.move(whole, place)
    return names.changed


def _device(record: runs.RunRecord) -> str:
    """The device that a run computed on, as a card has it."""
    torch_name = record.budget.get("torch_name", "cpu")
    used = (dict(each) for each in record.devices if each.get("torch_name") == torch_name)
    own: dict[str, Any] = next(used, {"name": "not stated"})
    memory = f", {hardware.size_text(size)}" if (size := own.get("memory_bytes")) else ""
    driver = f", driver {version}" if (version := own.get("driver_version")) else ""
    cores = f", {own['cores']:g} cores" if own.get("cores") else ""
    return f"{own['name']}{cores}{memory}{driver}"


def _copy(folder: Path, record: runs.RunRecord, into: Path, names: Names) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for path in files_of(folder, everything=False):
        if path.suffix == ".parquet":
            target = into / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    content = names.hidden(json.loads((folder / "run.json").read_bytes()))
    if record.provenance.kind == "measured":
        content["provenance"]["kind"] = "recorded"
    runs.replace_text(into / "run.json", json.dumps(content, indent=1) + "\n")
    events = (json.dumps(names.hidden(event)) for event in runs.read_events(folder))
    runs.replace_text(into / "events.jsonl", "\n".join(events) + "\n")


def _texts(place: Path) -> Iterator[tuple[Path, str | None, str]]:
    """Every text of a recording, with its file and column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in sorted(place.rglob("*")):
        if path.suffix == ".parquet":
            for column in pq.ParquetFile(path).schema_arrow:
                # the column `source` has words of labkit's own, such as the file of a counter
                if pa.types.is_string(column.type) and column.name != "source":
                    values = pq.read_table(path, columns=[column.name])[column.name].unique().to_pylist()
                    yield from ((path, column.name, value) for value in values if value)
        elif path.is_file():
            yield from ((path, None, line) for line in path.read_text(encoding="utf-8").splitlines())
