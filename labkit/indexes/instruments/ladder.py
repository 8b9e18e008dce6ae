"""The ladder of instruments: the CPU's own counters, else callgrind, else a replay.

The clock and the counters of work run on any machine. Cycles and stalls come from the CPU's own counters only.
"""

import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labkit import UserError, compiled, errors, hardware, process
from labkit.indexes.index import KINDS
from labkit.indexes.instruments.measured import ENVIRONMENT, X86
from labkit.indexes.workloads import FEW, Workload

INSTRUMENTS = ("auto", "perf", "callgrind", "replay", "clock")
EVENTS = ("cycles", "instructions", "LLC-load-misses", "branch-misses", "stalled-cycles-backend")
"""Events of the PMU; those that it does not have are left out"""
OLDEST_VALGRIND = (3, 15)
CALLGRIND = (
    *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes", "--branch-sim=yes"),
    *("--I1=32768,8,64", "--D1=32768,8,64", "--LL=2097152,16,64", "--quiet"),
)
"""Counts between the marks only, with the caches of CACHES, which are empty at the first mark"""
BYTES_A_KEY = 250
"""Memory that a run needs at most, per key: the largest index, the keys and their requests"""


@dataclass(frozen=True)
class Number:
    """A number of one index."""

    index: str
    what: str
    value: float
    unit: str
    instrument: str
    """What it was measured with, on what."""


def choose_instrument(asked: str) -> tuple[str, list[str]]:
    """The instrument to use, and why each better one cannot be.

    Raises:
        UserError: there is no such instrument, or the one that is named cannot be used here; the text says why.
    """
    if asked not in INSTRUMENTS:
        raise UserError(f"instrument {asked!r}: {errors.did_you_mean(asked, INSTRUMENTS)}", field="instrument")
    reasons, obstacles = [], {"perf": why_not_perf, "callgrind": why_not_callgrind}
    for name, why_not in obstacles.items():
        if asked in (name, "auto"):
            if (reason := why_not()) is None:
                return name, reasons
            reasons.append(f"{name}: {reason}")
    if asked in obstacles:
        raise UserError(f"--instrument {reasons[0]}; or choose auto.", field="instrument")
    if asked == "clock" and (reason := compiled.why_not_compiled()):
        raise UserError(f"--instrument clock: {reason}. The replay needs no numba: choose replay.", field="instrument")
    return "replay" if asked == "auto" else asked, reasons


def why_not_perf() -> str | None:
    """Why the CPU's counters do not answer; None if they do."""
    if (reason := compiled.why_not_compiled()) is not None:
        return reason
    if hardware.which("perf") is None:
        return "perf is not installed (on Debian: apt-get install linux-perf)"
    said = _said(["perf", "stat", "-x,", "-e", "cycles:u", "true"])
    if "paranoid" in said or "permission" in said.lower():
        return "the system denies the counters to this user (sudo sysctl kernel.perf_event_paranoid=2 allows them)"
    if not re.search(r"^\d+,", said, re.MULTILINE):
        return "the CPU's counters do not answer, as in most virtual machines (a machine of your own has them)"
    return None


def why_not_callgrind() -> str | None:
    """Why callgrind cannot count here; None if it can."""
    if (reason := compiled.why_not_compiled()) is not None:
        return reason
    if sys.platform != "linux" or platform.machine() not in X86:
        return "the marks of the counted region are known for Linux on x86-64 only"
    if hardware.which("valgrind") is None:
        return "valgrind is not installed (on Debian: apt-get install valgrind)"
    found = re.search(r"valgrind-(\d+)\.(\d+)", said := _said(["valgrind", "--version"]))
    if not found:
        return f"valgrind does not run ({' '.join(said.split())[:200]})"
    if tuple(map(int, found.groups())) < OLDEST_VALGRIND:
        return f"{found[0]} is too old: it needs {'.'.join(map(str, OLDEST_VALGRIND))} or later"
    return None


def measure(names: Sequence[str], workload: Workload, instrument: str) -> list[Number]:
    """What a request of the workload costs each index, by the clock, the instrument and the counters of work.

    Raises:
        UserError: there is no such index, or not enough memory.
    """
    for name in names:
        if name not in KINDS:
            raise UserError(f"index {name!r}: {errors.did_you_mean(name, KINDS)}", field="index")
    free = hardware.read_cpu().memory_available_bytes
    if (need := BYTES_A_KEY * (workload.n + workload.requests)) > free:
        raise UserError(
            f"{workload.n:,} keys and {workload.requests:,} requests need about {hardware.size_text(need)} of memory, "
            f"and {hardware.size_text(free)} are free: use fewer (--n).",
            field="n",
        )
    plan = {"names": list(names), "workload": asdict(workload), "clock": False, "replay": False, "region": None}
    numbers = []
    # first the clock: it compiles what is counted then, which would take minutes under valgrind
    is_compiled = compiled.why_not_compiled() is None
    for facts in _run(plan | {"clock": is_compiled, "replay": instrument == "replay"}):
        numbers += _of_clock(facts, workload) if is_compiled else []
        numbers += _of_replay(facts) if instrument == "replay" else []
    if instrument in ("perf", "callgrind"):
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                count = _count_perf if instrument == "perf" else _count_callgrind
                numbers += count(plan | {"names": [name]}, name, workload.requests, Path(folder))
    return numbers


def _of_clock(facts: dict[str, Any], workload: Workload) -> list[Number]:
    cpu = hardware.read_cpu().model
    name, clock = facts["name"], f"clock, {cpu}: measured"
    numbers = [Number(name, "time", 1e9 * facts["seconds"] / workload.requests, "ns", clock)]
    if facts.get("few_s"):
        share = 1 - facts["few_s"] / facts["seconds"]
        words = f"clock, and the same number of reads of {FEW:,} keys: measured"
        numbers.append(Number(name, "waits for memory", 100 * share, "% of the time", words))
    numbers.append(Number(name, "arrays", facts["bytes"] / workload.n, "bytes per key", "computed, with free room"))
    numbers += [
        Number(name, what, count / workload.requests, "", "counted by the index")
        for what, count in facts["work"].items()
        if count
    ]
    return numbers


def _of_replay(facts: dict[str, Any]) -> list[Number]:
    name, words = facts["name"], f"replay of {facts['replayed']:,} requests: exact"
    numbers = [
        Number(name, "accesses to arrays", facts["accesses"], "", words),
        Number(name, "cache lines touched", facts["lines"], "", words),
    ]
    for size, misses in facts["misses"].items():
        numbers.append(
            Number(name, f"misses in a cache of {size}", misses, "", f"{words}, LRU, warmed by half of them")
        )
    return numbers


def _count_callgrind(plan: dict[str, Any], name: str, requests: int, folder: Path) -> list[Number]:
    out = folder / "counts"
    _run(plan | {"region": ""}, inside=[*CALLGRIND, f"--callgrind-out-file={out}"])
    text = out.read_text()
    events, totals = (re.findall(rf"^{word}: (.*)$", text, re.MULTILINE)[-1].split() for word in ("events", "totals"))
    count = dict.fromkeys(events, 0.0) | dict(zip(events, np.array(totals, float) / requests, strict=False))
    words = f"{_said(['valgrind', '--version']).strip()} (callgrind): exact"
    simulated = f"{words.removesuffix(': exact')}: simulated, empty at first"
    return [
        Number(name, "instructions", count["Ir"], "", words),
        Number(name, "misses in a cache of 32 KiB", count["D1mr"] + count["D1mw"], "", simulated),
        Number(name, "misses in a cache of 2 MiB", count["DLmr"] + count["DLmw"], "", simulated),
        Number(name, "branches mispredicted", count["Bcm"] + count["Bim"], "", simulated),
    ]


def _count_perf(plan: dict[str, Any], name: str, requests: int, folder: Path) -> list[Number]:
    for pipe in ("control", "answers"):
        os.mkfifo(folder / pipe)
    out, pipes = folder / "counts", f"fifo:{folder / 'control'},{folder / 'answers'}"
    command = ["perf", "stat", "-x;", "-o", str(out), "--delay=-1", "--control", pipes, "-e"]
    _run(plan | {"region": str(folder)}, inside=[*command, ",".join(f"{event}:u" for event in EVENTS)])
    count = {}
    for line in out.read_text().splitlines():
        value, _, event = (line + ";;").split(";")[:3]
        if re.fullmatch(r"[\d.]+", value):
            count[event.removesuffix(":u")] = float(value) / requests
    words = "PMU, by perf stat: measured"
    numbers = [Number(name, event, value, "", words) for event, value in count.items()]
    if {"cycles", "instructions"} <= set(count):
        numbers.append(Number(name, "cycles per instruction", count["cycles"] / count["instructions"], "", words))
    return numbers


def _run(plan: dict[str, Any], inside: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Run the program that is measured; what it says of each index."""
    module = "labkit.indexes.instruments.measured"
    with process.Child(module, plan, environment=ENVIRONMENT, grace_s=0.5, warm=False, within=inside) as child:
        found = [message for message in child.messages() if message["kind"] == "measured"]
        if len(found) < len(plan["names"]):
            program, said = inside[0] if inside else "the program that is measured", child.stderr_tail(600).split()
            raise UserError(
                f"{program} ended early, with status {child.status()}: {' '.join(said) or 'it said nothing'}. If it "
                "was killed for its memory, use fewer keys (--n).",
                field="n",
            )
    return found


def _said(command: Sequence[str]) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=hardware.ANSWER_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return answer.stdout + answer.stderr
