"""What a profiler that is a program of its own saw, in a terminal."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from labkit.cli.console import Console

if TYPE_CHECKING:
    from labkit.profiling.recording.settings import ProfileSettings
    from labkit.profiling.tools.tool_profile import ToolProfile

SHOWN = 8
SHOWN_FUNCTIONS = 10
VIEWERS = {
    "nsys": "`nsys-ui {}` shows its timeline",
    "ncu": "`ncu-ui {}` shows its kernels",
    "py-spy": "{} holds the stacks, which https://www.speedscope.app and flamegraph.pl draw",
    "perf": "{} is perf's own",
}
"""Where a tool's own file is to be looked at"""


def schedule_in_words(tool: str, settings: ProfileSettings, least_s: float) -> str:
    """What will happen, in a sentence.

    >>> from labkit.profiling.recording.settings import ProfileSettings
    >>> print(schedule_in_words("perf", ProfileSettings(skip=4, steps=8), 5))
    steps 1 to 7 pass, then perf looks at 8 or more, for at least 5 s
    """
    longer = f" or more, for at least {least_s:g} s" if least_s else ""
    return f"steps 1 to {settings.skip + settings.warmup} pass, then {tool} looks at {settings.steps}{longer}"


def where_to_look(profile: ToolProfile) -> str:
    """Where a tool's own file is to be looked at, in a sentence."""
    return VIEWERS[profile.tool].format(profile.output)


def print_tool_profile(profile: ToolProfile) -> None:
    """Print what the tool saw, dearest first, and what its numbers are not."""
    console = Console()
    console.print(_headline(profile), style="bold", highlight=False)
    console.print()
    for shown in _SHOWN[profile.tool](profile):
        console.print(shown, highlight=False, soft_wrap=isinstance(shown, Text))  # perf's text is a table of its own
        console.print()
    for note in profile.notes:
        console.print(note, highlight=False)
    console.print(f"The rest: {where_to_look(profile)}.", highlight=False, soft_wrap=True)


def as_dict(profile: ToolProfile) -> dict[str, Any]:
    """The answer for programs; a figure that is not known is null."""
    return {
        "run": profile.folder.name,
        "folder": str(profile.folder),
        "tool": profile.tool,
        "output": str(profile.output),
        "facts": {name: value for name, value in profile.facts.items() if name != "notes"},
        "notes": profile.notes,
        "tables": {
            name: json.loads(table.to_json(orient="records", double_precision=15))
            for name, table in profile.tables.items()
        },
    }


def _headline(profile: ToolProfile) -> str:
    facts = profile.facts
    steps, seconds, threads = facts["steps"], facts["window_s"], facts["threads"]
    many = f"{steps:,} steady step{'s' * (steps > 1)}"
    where = f"on {facts['device']}, {threads} thread{'s' * (threads > 1)}"
    if profile.tool == "ncu":  # repeats each kernel, so that the steps' time says nothing
        return f"ncu looked at kernels of {many} ({where})."
    return (
        f"{profile.tool} looked at {many}, {seconds:.3g} s in all: {1e3 * seconds / steps:.4g} ms a step under it "
        f"(measured {where})."
    )


def _of_nsys(profile: ToolProfile) -> list[Table]:
    shown = []
    for name, title, label in (
        ("kernels", "What the GPU did", "kernel"),
        ("api_calls", "Calls of CUDA on the host", "operator"),
        ("ranges", "NVTX ranges: the steps and their phases, as the host went through them", "phase"),
    ):
        frame = profile.tables[name]
        if frame.empty:
            continue
        has_share = "share" in frame
        table = _table(title, label, "calls", "ms", *["share"] * has_share)
        for row in frame.head(SHOWN).to_dict("records"):
            share = [f"{row['share']:.1%}"] if has_share else []
            table.add_row(Text(row[label]), f"{row['calls']:,}", f"{row['total_us'] / 1e3:,.3f}", *share)
        shown.append(table)
    return shown


def _of_py_spy(profile: ToolProfile) -> list[Table]:
    import pandas as pd

    table = _table("Python functions with most samples of their own", "function", "own", "with callees")
    table.add_column("file:line", overflow="fold")
    functions = profile.tables["functions"]
    whole = functions["self_samples"].sum()
    for row in functions.head(SHOWN_FUNCTIONS).itertuples():
        line = "" if pd.isna(row.line) else f":{row.line}"
        table.add_row(
            Text(row.function),
            f"{row.share:.1%}",
            f"{row.samples / whole:.1%}",
            Text(f"{_shortened(row.file)}{line}"),
        )
    return [table]


def _of_perf(profile: ToolProfile) -> list[Text]:
    said = profile.output.read_text(encoding="utf-8", errors="replace").strip()
    return [Text(said)]


def _table(title: str, label: str, *figures: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column(label, overflow="fold")
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _shortened(file: str) -> str:
    """A file from its package on.

    >>> _shortened("/usr/lib/python3.12/inspect.py"), _shortened("/home/me/labkit/models/dlrm.py")
    ('inspect.py', 'labkit/models/dlrm.py')
    """
    parts = re.split(r"/(?:site-packages|dist-packages|python3\.\d+)/", file.replace("\\", "/"))
    return parts[-1] if len(parts) > 1 else "/".join(parts[0].split("/")[-3:])


_SHOWN = {"nsys": _of_nsys, "ncu": lambda profile: [], "py-spy": _of_py_spy, "perf": _of_perf}
