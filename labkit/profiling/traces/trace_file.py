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
LONGEST_EVENT, LONGEST_NAME = 2**25, 64
"""Characters; an event that has not ended by then is damaged, and `"traceEvents": [` is no longer, with blanks."""
GZIP_MAGIC = b"\x1f\x8b"
DECODE = json.JSONDecoder().raw_decode
_BETWEEN = re.compile(r"[\s,]*")
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')


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
    opened = gzip.open if is_zipped else open
    with opened(path, "rt", encoding="utf-8", errors="replace", newline="") as file:
        yield from _Window(path, file).events()


class _Window:
    """The part of the text that is in memory."""

    def __init__(self, path: Path, file: IO[str]):
        self._path, self._file = path, file
        self._text, self._at, self._before, self._count = "", 0, 0, 0

    def events(self) -> Iterator[dict[str, Any]]:
        may_lack_its_end = self._find_events()
        while self._skip():
            if self._text[self._at] == "]":
                return
            event = self._event()
            self._count += 1
            yield event
        if not may_lack_its_end:
            raise self._damaged("the file ends before its list of events does: it was cut off")

    def _find_events(self) -> bool:
        """Go to the first event; whether it is in a bare list, whose end may be missing."""
        if not self._skip():
            raise TraceError(f"{self._path}: this trace is empty; was the profiler stopped before it was written?")
        if self._text[self._at] == "[":
            self._at += 1
            return True
        goes_on = self._text[self._at] == "{"
        while goes_on and not (found := _EVENTS.search(self._text)):
            self._at = max(0, len(self._text) - LONGEST_NAME)  # it may lie across two chunks
            goes_on = self._more()
        if not goes_on:
            raise TraceError(
                f"{self._path}: this is no trace in Chrome's format: it has no list of traceEvents. torch.profiler "
                "writes one with export_chrome_trace(); of Nsight Systems, export with `nsys stats`."
            )
        self._at = found.end()
        return False

    def _event(self) -> dict[str, Any]:
        while True:
            try:
                event, self._at = DECODE(self._text, self._at)
                break
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at < LONGEST_EVENT and self._more():
                    continue
                why = getattr(error, "msg", str(error))
                if getattr(error, "pos", 0) == len(self._text) or why.startswith("Unterminated"):
                    raise self._damaged("the file ends inside an event: it was cut off") from error
                raise self._damaged(f"no event can be read here ({why})") from error
        if not isinstance(event, dict):
            raise self._damaged("this is no event: events are objects in braces")
        return event

    def _skip(self) -> bool:
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
            raise self._damaged(f"its compression is damaged or cut off ({error})") from error
        self._before += self._at
        self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)

    def _damaged(self, what: str) -> TraceError:
        return TraceError(
            f"{self._path}, character {self._before + self._at:,}, after {self._count:,} events: {what}. Write the "
            "trace once more; where the disk was full, make room before."
        )


def gzip_trace(path: Path) -> Path:
    """Compress a trace in place of itself; its new path, which ends in `.gz`."""
    target, part = path.with_name(path.name + ".gz"), path.with_name(f".{path.name}.gz.part")
    with path.open("rb") as source, gzip.open(part, "wb", compresslevel=6) as file:
        shutil.copyfileobj(source, file)
    part.replace(target)
    path.unlink(missing_ok=True)
    return target
