"""py-spy: looks at this process from outside while its steady steps last, and what it wrote is read."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import DataError, UserError
from labkit.hardware import ANSWER_TIMEOUT_S, which
from labkit.process import OUT_OF_CTRL_C, end_killed

if TYPE_CHECKING:
    import pandas as pd

LEAST_S = 5.0
"""It looks for so long at least: with 100 samples a second, a share of 10 % is then known to a standard error of 1.3
points (binomial)."""
PY_SPY_GRACE_S = 30.0
"""It writes its stacks within a second."""
STOP = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT)
FORBIDDEN = (
    "On macOS run labkit with sudo. In a container, start that with `docker run --cap-add=SYS_PTRACE`. Elsewhere "
    "`sudo sysctl kernel.yama.ptrace_scope=0` allows it until the next start."
)
SET_PTRACER = 0x59616D61  # linux/prctl.h
_RECORDING = re.compile(r"[/\\]labkit[/\\](tracking|profiling)[/\\]")
_PLACE = re.compile(r"(?P<function>.*?) \((?P<file>.*?)(?::(?P<line>\d+))?\)")


def why_refused() -> str | None:
    """Why py-spy may not look at this process, and what mends that; it tries."""
    if sys.platform == "linux":  # Yama lets no process look at its parent that has not allowed it
        ctypes.CDLL(None).prctl(SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    try:
        tried = subprocess.run(
            [which("py-spy"), "dump", "--pid", str(os.getpid())],
            capture_output=True, text=True, errors="replace", timeout=ANSWER_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"py-spy did not answer within {ANSWER_TIMEOUT_S} s when it was tried on this process."
    if tried.returncode == 0:
        return None
    said = " ".join(tried.stderr.split()) or f"status {tried.returncode}"
    return f"py-spy may not look at this process ({said}). {FORBIDDEN}"


class PySpy:
    """py-spy looking at this process, which ends with it, however it ends."""

    def __init__(self, output: Path):
        how = ["--format", "raw", "--full-filenames", "--rate", "100", "--output", str(output)]
        self._process = subprocess.Popen(
            [which("py-spy"), "record", *how, "--pid", str(os.getpid())],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", **OUT_OF_CTRL_C,
        )  # fmt: skip

    def end(self) -> None:
        """Let it write what it saw, and end it; a UserError where it had ended by itself, or does not end."""
        if (status := self._process.poll()) is None:
            self._process.send_signal(STOP)
        try:
            said, _ = self._process.communicate(timeout=PY_SPY_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            end_killed(self._process)
            raise UserError(f"py-spy did not end within {PY_SPY_GRACE_S:g} s and was stopped: profile again.") from None
        if status:
            raise UserError(f"py-spy ended before the steps did, with status {status}: {' '.join(said.split())}")


def python_functions(path: Path, script: str) -> pd.DataFrame:
    """Sum up the stacks of `py-spy record --format raw` that pass through a script: those of the thread that runs it.
    What labkit's recording takes is left out.

    Returns:
        Columns function, file, line (its own with most samples; null where it had none or py-spy knows none), samples
        (with it anywhere on the stack, once however often it called itself), self_samples (in itself), and of all
        samples share (of its own) and with_callees; dearest first.

    Raises:
        UserError: no sample was taken of the script, or the file is damaged.
    """
    import pandas as pd

    samples, own, own_of_lines = Counter(), Counter(), Counter()
    for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        stack, _, count = text.rpartition(" ")
        if not count.isdecimal():
            fix = "The file was cut off, or is no output of `py-spy record --format raw`: profile again."
            raise DataError("this line has no number of samples at its end.", fix=fix, file=path, line=number)
        places = [place for part in stack.split(";") if (place := _PLACE.fullmatch(part))]
        if not any(place["file"] == script for place in places):
            continue
        if _RECORDING.search(places[-1]["file"]) or any("phase_clock.py" in place["file"] for place in places):
            continue
        places = [place for place in places if not _RECORDING.search(place["file"])]  # those around the script
        samples.update(dict.fromkeys({place.group("function", "file") for place in places}, int(count)))
        last = places[-1].group("function", "file")
        own[last] += int(count)
        own_of_lines[last, places[-1]["line"]] += int(count)
    if not own:
        raise UserError(
            f"{path}: py-spy took no sample within the steps. Let them go on for longer (--steps), or see what it took "
            "in the file."
        )
    rising = sorted(own_of_lines.items(), key=lambda item: item[1])
    dearest_line = {place: line and int(line) for (place, line), _ in rising}  # the last one of a place remains
    rows = [(*place, dearest_line.get(place), count, own[place]) for place, count in samples.items()]
    found = pd.DataFrame(rows, columns=["function", "file", "line", "samples", "self_samples"])
    found["line"] = found["line"].astype("Int64")
    found["share"], found["with_callees"] = (found[of] / own.total() for of in ("self_samples", "samples"))
    return found.sort_values(["self_samples", "samples"], ascending=False, kind="stable", ignore_index=True)
