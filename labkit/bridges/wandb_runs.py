"""Runs that were logged with W&B offline, as run folders; nothing leaves the machine."""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labkit import UserError
from labkit.bridges.logged import Logged, flattened
from labkit.bridges.sources import library

HEADER, BLOCK, PIECE = b":W&B" + struct.pack("<HB", 0xBEE1, 0), 32_768, struct.Struct("<IHB")
WHOLE, LAST = 1, 4
"""Types of pieces; 2 and 3 are the first and the middle ones of an entry"""
NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def read(path: str) -> Iterator[Logged]:
    """The runs of a folder `wandb`, oldest first, or that of a .wandb file."""
    wandb = library("wandb", "wandb")
    place = Path(path)
    if not place.exists():
        raise UserError(f"{path} does not exist: give the folder wandb, or a .wandb file in it.")
    # latest-run is a link to one of the others
    found = [place] if place.is_file() else sorted({each.resolve() for each in place.rglob("*.wandb")})
    if not found:
        raise UserError(f"{path} has no .wandb files: give the folder wandb of offline runs.")
    for file in found:
        yield _logged(file, f"W&B {wandb.__version__}")


def _logged(file: Path, tool: str) -> Logged:
    run_id = file.stem.removeprefix("run-")
    logged = Logged(tool, run_id, run_id, file.parent.name, str(file))
    for record in _records(file, logged):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            logged.id, logged.name = f"{run.project}/{run.run_id}", run.display_name or run.run_id
            logged.group, logged.host = run.project or "uncategorized", run.host or None
            logged.began_ns = run.start_time.ToNanoseconds() or logged.began_ns
            _configure(logged, run.config)
        elif kind == "config":
            _configure(logged, record.config)
        elif kind == "history":
            _take(logged, record.history)
        elif kind == "stats":
            time_ns = record.stats.timestamp.ToNanoseconds()
            for item in record.stats.item:
                logged.take_sample(item.key, time_ns, json.loads(item.value_json))
        elif kind == "exit":
            logged.status = "failed" if record.exit.exit_code else "done"
            if logged.began_ns and record.exit.runtime:
                logged.ended_ns = logged.began_ns + record.exit.runtime * 10**9
        elif kind == "environment" and (gpus := [each.name for each in record.environment.gpu_nvidia]):
            logged.devices = gpus
        elif kind in ("artifact", "files", "alert", "output", "output_raw", "output_logger"):
            what = {"artifact": "artefacts", "files": "files", "alert": "alerts"}.get(kind, "lines of output")
            logged.left_out[what] += len(record.files.files) if kind == "files" else 1
    return logged


def _records(file: Path, logged: Logged) -> Iterator[Any]:
    """The records of a file, until its end or a damaged one."""
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record

    count = 0
    try:
        for data in _log(file):
            yield Record.FromString(data)
            count += 1
    except (DecodeError, ValueError) as error:
        if not count:
            raise UserError(
                f"{file}: this is not a whole W&B file ({error}): give a .wandb file; CSV is not read."
            ) from error
        logged.notes.append(f"{file.name} is damaged or cut short after {count} records; the rest was not read")


def _log(file: Path) -> Iterator[bytes]:
    """The entries of a log of LevelDB's, which W&B's library has no reader of in Python since 0.31.

    Blocks of 32 KiB hold pieces with a CRC, a length and a type; an entry is one whole piece, or a first to a last one.
    A ValueError says that it is damaged, or ends within an entry.
    """
    content = file.read_bytes()
    if content[:7] != HEADER:
        raise ValueError("it does not begin as one")
    at, entry = len(HEADER), b""
    while at < len(content):
        if (left := BLOCK - at % BLOCK) < PIECE.size:
            at += left  # too short for a piece
            continue
        if at + PIECE.size > len(content):
            raise ValueError("it ends within an entry")
        checksum, length, kind = PIECE.unpack_from(content, at)
        data = content[at + PIECE.size : at + PIECE.size + length]
        own = zlib.crc32(data, zlib.crc32(bytes([kind])))
        if len(data) < length or kind not in (WHOLE, 2, 3, LAST) or own != checksum:
            raise ValueError(f"a wrong checksum at byte {at}")
        at, entry = at + PIECE.size + length, entry + data
        if kind in (WHOLE, LAST):
            yield entry
            entry = b""
    if entry:
        raise ValueError("it ends within an entry")


def _configure(logged: Logged, config: Any) -> None:
    for item in config.update:
        name = item.key or ".".join(item.nested_key)
        if name != "_wandb":
            logged.settings |= flattened({name: json.loads(item.value_json)})


def _take(logged: Logged, history: Any) -> None:
    """The numbers of one step."""
    nested: dict[str, Any] = {}
    for item in history.item:  # a histogram comes as its parts, each with the keys that lead to it
        *outer, last = [item.key] if item.key else [*item.nested_key]
        place = nested
        for key in outer:
            place = place.setdefault(key, {})
        place[last] = json.loads(item.value_json)
    row = flattened(nested)
    time_ns = round(row.pop("_timestamp", 0.0) * 1e6) * 1000
    step = int(row.pop("_step", history.step.num))
    row.pop("_runtime", None)
    for name, value in row.items():
        logged.take(name, step, time_ns, NUMBERS.get(value, value) if isinstance(value, str) else value)
