"""TensorBoard's event files as run folders."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from labkit import UserError
from labkit.bridges.logged import UNKNOWN_END, Logged, Point
from labkit.bridges.sources import library

HPARAMS = "_hparams_/session_start_info"
"""Tag under which TensorBoard keeps the settings of a run"""
FORMS = {"simple_value": "scalars", "histo": "histograms", "image": "images", "audio": "audio"}
"""Kinds of values that name no plugin"""
FRAME_BYTES = 16
"""Length and checksums around each record"""


def read(path: str) -> Iterator[Logged]:
    """The runs below a folder: each folder with event files is one."""
    board = library("tensorboard", "tensorboard")
    root = Path(path)
    if not root.exists():
        raise UserError(f"{path} does not exist: give the folder that you give to `tensorboard --logdir`.")
    if root.is_file() and "tfevents" not in root.name:
        raise UserError(
            f"{path} is not an event file (events.out.tfevents…): give one, or the folder that you give to `"
            "tensorboard --logdir`. What its page saves as CSV or JSON is not read."
        )
    found: dict[Path, list[Path]] = defaultdict(list)
    for file in [root] if root.is_file() else sorted(root.rglob("*tfevents*")):
        if file.is_file():
            found[file.parent].append(file)
    if not found:
        raise UserError(f"{path} has no event files (events.out.tfevents…): give the folder that holds them.")
    for folder, own in sorted(found.items()):
        if not _is_part(folder, found):
            parts = [file for part in found if _is_part(part, found) and part.parent == folder for file in found[part]]
            yield _logged(folder, [*own, *parts], root, f"TensorBoard {board.__version__}")


def _is_part(folder: Path, found: dict[Path, list[Path]]) -> bool:
    """Whether a folder is what PyTorch's add_hparams made within that of its run, named by the time."""
    return folder.parent in found and re.fullmatch(r"\d{9,}\.\d+", folder.name) is not None


def _logged(folder: Path, files: list[Path], root: Path, tool: str) -> Logged:
    place = folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.name
    root = root.absolute()
    name = root.name if place == "." else place
    logged = Logged(tool, id=f"{root}/{place}", name=name, group=root.name, source=str(folder))
    logged.notes.append(UNKNOWN_END.format("event files do"))
    kinds: dict[str, str] = {}
    for file in files:
        _read_file(file, logged, kinds)
    return logged


def _read_file(file: Path, logged: Logged, kinds: dict[str, str]) -> None:
    from google.protobuf.message import DecodeError
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    count = read_bytes = 0
    with contextlib.suppress(DecodeError):
        for record in RawEventFileLoader(str(file)).Load():
            event = Event.FromString(record)
            count, read_bytes = count + 1, read_bytes + len(record) + FRAME_BYTES
            time_ns = round(event.wall_time * 1e6) * 1000
            logged.began_ns = time_ns if logged.began_ns is None else min(logged.began_ns, time_ns)
            if event.session_log.status == SessionLog.START:
                before = len(logged.points)  # a resume takes back what was logged from this step on
                logged.points = [point for point in logged.points if point.step < event.step]
                if taken := before - len(logged.points):
                    logged.left_out["points that a resume took back"] += taken
            if event.graph_def:
                logged.left_out["graphs"] += 1
            for value in event.summary.value:
                _take(value, event.step, time_ns, logged, kinds)
    if read_bytes < file.stat().st_size:  # the library stops there, and does not say so
        logged.notes.append(f"{file.name} is damaged or cut short after {count} records; the rest was not read")


def _take(value: Any, step: int, time_ns: int, logged: Logged, kinds: dict[str, str]) -> None:
    """One value of a summary; only the first of a tag says what kind it is."""
    plugin, form = value.metadata.plugin_data, value.WhichOneof("value")
    kind = kinds.setdefault(value.tag, plugin.plugin_name or FORMS.get(form, ""))
    if kind == "scalars":
        number = _tensor(value.tensor) if form == "tensor" else np.float32(value.simple_value)
        if number is not None:
            # the shortest number that has its bits: of 32 it is 0.9, and not 0.8999999762
            logged.points.append(Point(value.tag, step, time_ns, float(str(number))))
            return
    elif kind == "hparams":
        if value.tag == HPARAMS:
            logged.settings |= _settings(plugin.content)
        return
    logged.left_out[kind or "summaries of an unknown kind"] += 1


def _tensor(tensor: Any) -> Any:
    """The only number of a tensor, of its own type; None if it has several, or none."""
    from tensorboard.util.tensor_util import make_ndarray

    array = make_ndarray(tensor).ravel()
    return array[0] if array.size == 1 and array.dtype.kind in "fiu" else None


def _settings(content: bytes) -> dict[str, Any]:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found = HParamsPluginData.FromString(content).session_start_info.hparams
    kinds = {name: value.WhichOneof("kind") for name, value in found.items()}
    settings = {name: getattr(value, kinds[name]) for name, value in found.items() if kinds[name]}
    # it keeps whole numbers as others
    return {name: int(own) if isinstance(own, float) and own.is_integer() else own for name, own in settings.items()}
