"""The events of a file in Chrome's format, plain or gzipped, one after the other.

torch.profiler (Kineto) writes that format. While a file is read, only one event is in memory at a time, with a quarter
of a megabyte of text around it, so files may be of any size. Source: "Trace Event Format", Chromium project.
"""

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from labkit import UserError
from labkit.errors import certain

CHUNK = 2**18
"""Number of characters read at once; an error in them costs as much time as they are long"""
LONGEST_EVENT = 2**25
"""Characters after which an event that has not ended is damaged."""
OTHER_FILES = {
    b"PK\x03\x04": "a zip archive: unpack it, and read the file in it",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: run `zstd -d` on it first",
    b"\xfd7zXZ": "compressed by xz: run `xz -d` on it first",
    b"SQLite format 3": "an SQLite database, as nsys exports it: `nsys stats` reads it",
    b"\x80": "a pickle, as torch's memory snapshots are: https://pytorch.org/memory_viz shows them",
}
"""What else strangers call a trace, by a file's first bytes"""
DECODE = json.JSONDecoder(strict=False).raw_decode  # some names have control characters
_BETWEEN = re.compile(r"[\s,]*")
_BEGIN = re.compile(r'\[|\{.*?"traceEvents"\s*:\s*\[', re.DOTALL)
_NEXT = re.compile(r',\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:)')
"""From the end of an event to the next one"""
_LAST = re.compile(r'\}\s*(?=\]\s*(?:\}?|,\s*"[^"]*"\s*:.*\})\s*\Z)', re.DOTALL)
"""From the end of the last event to the end of their list, in a file that was not cut off"""


class TraceError(UserError):
    """A file that is not a trace, or a damaged one."""


def stream_events(path: Path | str, unused: "Counter[str] | None" = None) -> Iterator[dict[str, Any]]:
    """Yield a trace's events in the order of the file.

    Both forms of the format are read: an object with `traceEvents`, and a bare list, whose end may be missing.

    Args:
        path: the file.
        unused: counts events that cannot be read, which are passed over; without it, they raise a TraceError.

    Raises:
        TraceError: the file is empty, cut off, damaged, or not a trace; the text names the place and the fix.
        OSError: there is no such file, or it cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        first = file.read(16)
    for magic, what in OTHER_FILES.items():
        if first.startswith(magic):
            raise TraceError(f"{path}: this is not a trace in Chrome's format, but {what}.")
    opened = gzip.open if first.startswith(b"\x1f\x8b") else open
    encoding = "utf-16" if first.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"  # PowerShell's redirection
    with opened(path, "rt", encoding=encoding, errors="replace", newline="") as file:
        window = _Window(path, file, unused)
        may_lack_its_end = window.begin() == "["
        while (follows := window.skip()) not in ("]", ""):
            if (event := window.event()) is not None:
                yield event
        if not follows and not may_lack_its_end:
            raise window.damaged("the file ends before its list of events does: it was cut off")


class _Window:
    """The part of the text that is in memory."""

    def __init__(self, path: Path, file: IO[str], unused: "Counter[str] | None"):
        self._path, self._file, self._unused = path, file, unused
        self._text, self._at, self._count = "", 0, 0

    def begin(self) -> str:
        """Go to the first event, and return the text that begins the list."""
        if not (follows := self.skip()):
            raise TraceError(f"{self._path}: this trace is empty: stop the profiler before you export the trace.")
        while not (found := _BEGIN.match(self._text, self._at)):
            if follows not in "[{" or len(self._text) > LONGEST_EVENT or not self._more():
                start = self._text + self._file.read(512)
                what = " It is a tar archive: unpack it, and read a file in it." if "ustar" in start[:512] else ""
                if '"nodes"' in start:
                    what = " It looks like an execution trace, a graph of operators without times."
                raise TraceError(
                    f"{self._path}: this is not a trace in Chrome's format: it has no list of traceEvents.{what} Write "
                    "one with export_chrome_trace() of torch.profiler."
                )
        self._at = found.end()
        return found[0]

    def event(self) -> dict[str, Any] | None:
        """The next event; None for one that cannot be read and was passed over."""
        while True:
            try:
                event, self._at = DECODE(self._text, self._at)
                break
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at < CHUNK and self._more():
                    continue  # the window may end within it
                if self._pass_over(_NEXT):
                    return None
                if len(self._text) - self._at > LONGEST_EVENT or not self._more():
                    if self._pass_over(_LAST):
                        return None
                    raise self.damaged(f"no event can be read here, or the file was cut off ({error})") from error
        if isinstance(event, dict):
            self._count += 1
            return event
        if self._unused is None:
            raise self.damaged("this is not an event: events are objects in braces")
        self._unused["unreadable"] += 1
        return None

    def _pass_over(self, until: re.Pattern) -> bool:
        """Count the event that cannot be read, and go to its end; False without a counter or an end in the window."""
        if self._unused is None or not (found := until.search(self._text, self._at + 1)):
            return False
        self._unused["unreadable"] += 1
        self._at = found.end()
        return True

    def skip(self) -> str:
        """Go to what comes next, and return its first character; empty at the end of the file."""
        while True:
            self._at = certain(_BETWEEN.match(self._text, self._at)).end()
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

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
