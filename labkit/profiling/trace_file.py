"""Streams the events of a trace file in Chrome's format, as torch.profiler (Kineto) writes it, plain or gzipped.

Only one event is in memory at a time, with a few megabytes of text around it, so files may be of any size.
Source: "Trace Event Format", Chromium project.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from labkit import UserError

CHUNK = 2**22
"""Number of characters read at once."""
LONGEST_EVENT = 2**25
"""Characters after which an event that has not ended is damaged."""
GZIP_MAGIC = b"\x1f\x8b"
DECODE = json.JSONDecoder().raw_decode
_BETWEEN = re.compile(r"[\s,]*")
_BEGIN = re.compile(r'\[|\{.*?"traceEvents"\s*:\s*\[', re.DOTALL)


class TraceError(UserError):
    """A file that is not a trace, or a damaged one."""


def stream_events(path: Path | str) -> Iterator[dict[str, Any]]:
    """Yield a trace's events in the order of the file.

    Both forms of the format are read: an object with `traceEvents`, and a bare list, whose end may be missing.

    Raises:
        TraceError: the file is empty, cut off, damaged, or not a trace; the text names the place and the fix.
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
        """Go to the first event, and return the text that begins the list."""
        if not self.skip():
            raise TraceError(f"{self._path}: this trace is empty: stop the profiler before you export the trace.")
        while not (found := _BEGIN.match(self._text, self._at)):
            if self.next not in "[{" or len(self._text) > LONGEST_EVENT or not self._more():
                raise TraceError(
                    f"{self._path}: this is not a trace in Chrome's format: it has no list of traceEvents. Write one "
                    "with export_chrome_trace() of torch.profiler."
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
            raise self.damaged("this is not an event: events are objects in braces")
        self._count += 1
        return event

    def skip(self) -> bool:
        """Go to what comes next; False at the end of the file."""
        while (at := _BETWEEN.match(self._text, self._at).end()) == len(self._text):
            self._at = at
            if not self._more():
                return False
        self._at = at
        return True

    def _more(self) -> bool:
        """Read on; False at the end of the file."""
        try:
            chunk = self._file.read(CHUNK)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self.damaged(f"its compression is damaged or cut off ({error})") from error
        self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)

    def damaged(self, what: str) -> TraceError:
        return TraceError(
            f"{self._path}, after {self._count:,} events: {what}. Record the trace again; if the disk was full, free "
            "some space first."
        )
