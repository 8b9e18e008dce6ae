"""What py-spy sampled, by function."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import DataError, UserError

if TYPE_CHECKING:
    import pandas as pd

_PLACE = re.compile(r"(?P<function>.*?) \((?P<file>.*?)(?::(?P<line>\d+))?\)")


def python_functions(path: Path, script: str) -> pd.DataFrame:
    """Sum up the stacks of `py-spy record --format raw` that pass through a script: those of the thread that runs it.

    Args:
        path: the stacks, a line each, with the number of samples at its end.
        script: path of a Python file.

    Returns:
        Columns function, file, line (its own with most samples; null where it had none or py-spy knows none), samples
        (with it anywhere on the stack, once however often it called itself), self_samples (in itself), and of all
        samples share (of its own) and with_callees; dearest first.

    Raises:
        UserError: no sample was taken of the script.
        DataError: it is damaged.
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
