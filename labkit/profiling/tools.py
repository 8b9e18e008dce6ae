"""How a profile is taken: the schedule of steps, py-spy, and the commands of profilers that users start themselves."""

import ctypes
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from labkit import DataError, UserError, errors, hardware, json_data, process, runs, tracking

if TYPE_CHECKING:
    import pandas as pd

OTHER = "other"
BETWEEN = "between steps"
"""Phase of scripts from the optimiser to the next forward pass: batches are made, results are read, printed, saved."""
COMMUNICATION = "communication"
"""Phase in which other ranks are waited for, or data is exchanged with them, and nothing is computed."""
PHASES = (
    tracking.INPUT,
    BETWEEN,
    tracking.TO_DEVICE,
    tracking.FORWARD,
    tracking.BACKWARD,
    tracking.OPTIMISER,
    tracking.SYNC,
    COMMUNICATION,
    OTHER,
)
"""In the order of a step."""
AFTER_BACKWARD = "after backward"
"""Annotation of scripts: between steps if a forward pass follows (gradients are accumulated), else other."""
KINETO, GRAPH, FACTS, LIMITS = "kineto.json.gz", "graph.json.gz", "profile.json", "card.json"
"""Files of a run's `trace/`: the trace, the graph of operators, facts about both, and the machine's limits."""
CHATTER = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Variables that silence torch's profilers; the second one must be set before torch is imported."""
BY_HAND = {
    "nsys": ("nsys profile --trace=cuda,nvtx,osrt,cublas,cudnn --sample=none --cpuctxsw=none --delay 10 --duration 20 "
             "--force-overwrite true --output nsys",
             "it records twenty seconds, ten seconds after the start, and ends the training. `nsys stats "
             "nsys.nsys-rep` sums up kernels, copies and CUDA calls; `nsys-ui nsys.nsys-rep` shows the timeline"),
    "ncu": ("ncu --export ncu --target-processes all --launch-skip 5000 --launch-count 300 --kill yes",
            "`ncu-ui ncu.ncu-rep` shows the 300 kernels after the first 5,000; ncu repeats each of them"),
    "perf": ("perf stat -d --delay 10000 --timeout 20000",
             "it prints the counters of twenty seconds, ten seconds after the start, and ends the training"),
}  # fmt: skip
"""Commands of profilers that users start themselves, to be followed by the training's command; and what they show"""
TOOLS = ("torch", "py-spy", *BY_HAND)
TOOL_FACTS, STACKS = "tool.json", "py-spy.txt"
"""Files in a run's `trace/`: facts about the steps that py-spy watched, and what it wrote"""
LEAST_S = 5.0
"""Shortest time that py-spy samples. At 100 samples per second a share of 10 % then has a standard error of 1.3 points
(binomial)."""
PY_SPY_GRACE_S = 30.0
"""Time for py-spy to write its stacks, which takes it a second."""
STOP = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT)
FORBIDDEN = (
    "On macOS run labkit with sudo. In a container, start that with `docker run --cap-add=SYS_PTRACE`. Elsewhere "
    "`sudo sysctl kernel.yama.ptrace_scope=0` allows it until the next restart."
)
SET_PTRACER = 0x59616D61  # linux/prctl.h
_OURS = re.compile(r"[/\\]labkit[/\\](tracking|profiling)[/\\]")
_CLOCK = re.compile(r"phase_clock\.py|[/\\]labkit[/\\]profiling[/\\]capture\.py")
_PLACE = re.compile(r"(?P<function>.*?) \((?P<file>.*?)(?::(?P<line>\d+))?\)")


@dataclass(frozen=True)
class ProfileSettings:
    """The schedule of a profile."""

    skip: int = 20
    """Number of steps before the profiler starts; the later half is timed as the unprofiled step"""
    warmup: int = 3
    """Number of steps under the profiler that do not count, because it is still starting"""
    steps: int = 10
    """Number of recorded steps"""
    shapes: bool = True
    """Whether to record the sizes of inputs, which give arithmetic and bytes"""
    memory: bool = False
    """Whether to record each allocation"""

    def __post_init__(self):
        for name, least in (("skip", 2), ("warmup", 1), ("steps", 1)):
            if not least <= getattr(self, name) <= 100_000:
                fix = f"give a whole number of at least {least}, such as {getattr(ProfileSettings, name)}."
                raise errors.wrong_value(name, getattr(self, name), fix)

    def in_words(self) -> str:
        """The schedule as text."""
        return (
            f"{self.skip} steps run unprofiled ({self.timed} are timed), {self.warmup} warm the profiler up, "
            f"{self.steps} are recorded"
        )

    @property
    def timed(self) -> int:
        """Number of steps that are timed unprofiled."""
        return (self.skip + 1) // 2


def check_tool(name: str, script: "tracking.ScriptCommand") -> None:
    """Raise a UserError, with the reason and the fix, if a tool cannot profile a script here."""
    tool, about = hardware.find_profiler(name), hardware.PROFILERS[name]
    reasons = (
        (tool.path is None, f"{name} is not on PATH: {about.install}. Or use --tool torch."),
        (not tool.works, f"{name} does not work here: {tool.note}. Install another version: {about.install}."),
        (about.needs_gpu and not runs_on_gpu(script),
         f"{name} profiles GPUs, and this training would run on the CPU: use --tool py-spy for Python code, --tool "
         "perf for the processor's counters, or --tool torch for operators. `labkit doctor` lists the GPUs that were "
         "found."),
        (name == "perf" and tool.note,
         f"{tool.note}: `sudo sysctl kernel.perf_event_paranoid=2` allows it until the next restart."),
    )  # fmt: skip
    why = next((words for applies, words in reasons if applies), None)
    if why := why or (why_refused() if name == "py-spy" else None):
        raise UserError(why)


def command_by_hand(name: str, script: "tracking.ScriptCommand") -> str:
    """The command that profiles a script with a tool of `BY_HAND`."""
    flags = ["--runs-dir", script.runs_dir, *(["--budget", script.budget.name] if script.budget else [])]
    ran = ["-m", script.module] if script.module else [errors.certain(script.script)]
    return f"{BY_HAND[name][0]} {shlex.join([sys.executable, '-m', 'labkit', 'run', *flags, *ran, *script.arguments])}"


def runs_on_gpu(script: "tracking.ScriptCommand") -> bool:
    """Whether a script's budget, or the default one, is a GPU."""
    return (script.budget or hardware.offered_budgets()[-1]).torch_name != "cpu"  # GPUs come last


class ToolFacts(TypedDict):
    """The part of `tool.json` that readers rely on."""

    tool: Literal["py-spy"]
    script: str
    device: str
    threads: int
    steps: int
    window_s: float


@dataclass(frozen=True)
class ToolProfile:
    """What py-spy saw of a run's steady steps."""

    folder: Path
    facts: ToolFacts
    output: Path
    """The tool's own file"""
    functions: "pd.DataFrame"
    """Table of `python_functions`"""

    def to_dict(self) -> dict[str, Any]:
        """The answer for programs; an unknown figure is null."""
        functions = json.loads(errors.certain(self.functions.to_json(orient="records")))
        run = {"run": self.folder.name, "folder": str(self.folder), "tool": self.facts["tool"], "facts": self.facts}
        return run | {"output": str(self.output), "functions": functions}


def is_tool_profile(folder: Path) -> bool:
    """Whether a run was profiled by a tool other than torch."""
    return (folder / "trace" / TOOL_FACTS).is_file()


def read_tool_profile(folder: Path | str) -> ToolProfile:
    """Read the profile of a run that `is_tool_profile`; a UserError if it is empty or its file is damaged."""
    folder = Path(folder)
    runs.read_run(folder)  # raises if the folder holds no run
    facts = json_data.read_json(folder / "trace" / TOOL_FACTS, ToolFacts, fix="Profile again.")
    output = folder / "trace" / STACKS
    if facts["steps"] <= 0 or facts["window_s"] <= 0 or not output.is_file():
        raise UserError(f"{folder}: {facts['tool']} recorded no steady step: give a smaller --skip or --warmup.")
    return ToolProfile(folder, facts, output, python_functions(output, facts["script"]))


def why_refused() -> str | None:
    """Try py-spy on this process; return why it may not attach, with the fix, or None."""
    if sys.platform == "linux":  # Yama lets a child attach to its parent only if the parent allows it
        ctypes.CDLL(None).prctl(SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    try:
        tried = subprocess.run(
            [errors.certain(hardware.which("py-spy")), "dump", "--pid", str(os.getpid())],
            capture_output=True, text=True, errors="replace", timeout=hardware.ANSWER_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"py-spy did not answer within {hardware.ANSWER_TIMEOUT_S} s when it was tried on this process."
    if tried.returncode == 0:
        return None
    said = " ".join(tried.stderr.split()) or f"status {tried.returncode}"
    return f"py-spy may not attach to this process ({said}). {FORBIDDEN}"


class PySpy:
    """py-spy sampling this process; it ends when this process does."""

    def __init__(self, output: Path):
        how = ["--format", "raw", "--full-filenames", "--rate", "100", "--output", str(output)]
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [errors.certain(hardware.which("py-spy")), "record", *how, "--pid", str(os.getpid())],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", **process.OUT_OF_CTRL_C,
        )  # fmt: skip

    def end(self) -> None:
        """Let it write its samples, and end it; a UserError if it had already ended, or does not end."""
        if (status := self._process.poll()) is None:
            self._process.send_signal(STOP)
        try:
            said, _ = self._process.communicate(timeout=PY_SPY_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            process.end_killed(self._process)
            raise UserError(f"py-spy did not end within {PY_SPY_GRACE_S:g} s and was stopped: profile again.") from None
        if status:
            words = " ".join(said.split())
            raise UserError(f"py-spy ended before the steps did, with status {status}: {words}. Profile again.")


def python_functions(path: Path, script: str) -> "pd.DataFrame":
    """Sum up the stacks of `py-spy record --format raw` in the thread that runs a script, without labkit's recording.

    Returns:
        Columns function, file, line (the one with most samples of its own; null if none or unknown), samples (with the
        function anywhere on the stack, counted once), self_samples (in itself), and their shares of all samples, share
        (of its own) and with_callees; most expensive first.

    Raises:
        UserError: no sample was taken in the script, or the file is damaged.
    """
    import pandas as pd

    samples, own, own_of_lines = Counter(), Counter(), Counter()
    for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        stack, _, count = text.rpartition(" ")
        if not count.isdecimal():
            fix = "The file was cut off, or is not the output of `py-spy record --format raw`: profile again."
            raise DataError("this line has no number of samples at its end.", fix=fix, file=path, line=number)
        places = [place for part in stack.split(";") if (place := _PLACE.fullmatch(part))]
        if not any(place["file"] == script for place in places):
            continue
        if _OURS.search(places[-1]["file"]) or any(_CLOCK.search(place["file"]) for place in places):
            continue
        places = [place for place in places if not _OURS.search(place["file"])]  # those around the script
        samples.update(dict.fromkeys({place.group("function", "file") for place in places}, int(count)))
        last = places[-1].group("function", "file")
        own[last] += int(count)
        own_of_lines[last, places[-1]["line"]] += int(count)
    if not own:
        raise UserError(f"{path}: py-spy took no sample within the steps: record more (--steps), or read that file.")
    rising = sorted(own_of_lines.items(), key=lambda item: item[1])
    top_line = {place: line and int(line) for (place, line), _ in rising}  # the last one of a place remains
    rows = [(*place, top_line.get(place), count, own[place]) for place, count in samples.items()]
    found = pd.DataFrame(rows, columns=["function", "file", "line", "samples", "self_samples"])
    found["line"] = found["line"].astype("Int64")
    found["share"], found["with_callees"] = (found[of] / own.total() for of in ("self_samples", "samples"))
    return found.sort_values(["self_samples", "samples"], ascending=False, kind="stable", ignore_index=True)
