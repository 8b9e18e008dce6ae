"""Streams the events of a trace file in Chrome's format, as torch.profiler (Kineto) writes it, plain or gzipped.

One event is in memory at a time, with a few megabytes of text around it, so that the size of the file does not matter.
Source: "Trace Event Format", Chromium project.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from labkit.errors import UserError

CHUNK = 2**22
"""Characters that are read at once."""
LONGEST_EVENT = 2**25
"""Characters; an event that has not ended by then is damaged."""
GZIP_MAGIC = b"\x1f\x8b"
DECODE = json.JSONDecoder().raw_decode
_BETWEEN = re.compile(r"[\s,]*")
_BEGIN = re.compile(r'\[|\{.*?"traceEvents"\s*:\s*\[', re.DOTALL)


class TraceError(UserError):
    """A file that is no trace, or a damaged one."""


def stream_events(path: Path | str) -> Iterator[dict[str, Any]]:
    """Yield a trace's events in the order in which they stand in the file.

    Both forms of the format are read: an object with `traceEvents`, and a bare list, whose end may be missing.

    Raises:
        TraceError: the file is empty, cut off, damaged, or no trace at all; the text names the place and the remedy.
        OSError: there is no such file, or it cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        is_zipped = file.read(2) == GZIP_MAGIC
    with (gzip.open if is_zipped else open)(path, "rt", encoding="utf-8", errors="replace", newline="") as file:
        window = _Window(path, file)
        may_lack_its_end = window.begin() == "["
        while window.skip():
            if window.next == "]":
                return
            yield window.event()
        if not may_lack_its_end:
            raise window.damaged("the file ends before its list of events does: it was cut off")


class _Window:
    """The part of the text that is in memory."""

    def __init__(self, path: Path, file: IO[str]):
        self._path, self._file = path, file
        self._text, self._at, self._count = "", 0, 0

    @property
    def next(self) -> str:
        return self._text[self._at]

    def begin(self) -> str:
        """Go to the first event; what begins the list."""
        if not self.skip():
            raise TraceError(f"{self._path}: this trace is empty; was the profiler stopped before it was written?")
        while not (found := _BEGIN.match(self._text, self._at)):
            if self.next not in "[{" or len(self._text) > LONGEST_EVENT or not self._more():
                raise TraceError(
                    f"{self._path}: this is no trace in Chrome's format: it has no list of traceEvents. torch.profiler "
                    "writes one with export_chrome_trace()."
                )
        self._at = found.end()
        return found[0]

    def event(self) -> dict[str, Any]:
        while True:
            try:
                event, self._at = DECODE(self._text, self._at)
                break
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at > LONGEST_EVENT or not self._more():
                    raise self.damaged(f"no event can be read here, or the file was cut off ({error})") from error
        if not isinstance(event, dict):
            raise self.damaged("this is no event: events are objects in braces")
        self._count += 1
        return event

    def skip(self) -> bool:
        """Go to what comes next; whether there is anything."""
        while (at := _BETWEEN.match(self._text, self._at).end()) == len(self._text):
            self._at = at
            if not self._more():
                return False
        self._at = at
        return True

    def _more(self) -> bool:
        """Read on; whether there was anything to read."""
        try:
            chunk = self._file.read(CHUNK)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.damaged(f"its compression is damaged or cut off ({error})") from error
        self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)

    def damaged(self, what: str) -> TraceError:
        return TraceError(
            f"{self._path}, after {self._count:,} events: {what}. Write the trace once more; where the disk was full, "
            "make room before."
        )


def gzip_trace(path: Path) -> None:
    """Compress a trace in place of itself, as a file that ends in `.gz`."""
    target, part = path.with_name(path.name + ".gz"), path.with_name(f".{path.name}.gz.part")
    with path.open("rb") as source, gzip.open(part, "wb", compresslevel=6) as file:
        shutil.copyfileobj(source, file)
    part.replace(target)
    path.unlink(missing_ok=True)
