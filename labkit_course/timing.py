"""How a notebook times: several ways in turn, on one thread, without the rounds that other programs disturbed."""

import contextlib
import gc
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from labkit import UserError, hardware, runs, telemetry

if TYPE_CHECKING:
    import pandas as pd

Measured = TypeVar("Measured")
SHORTEST_S = 0.05
"""Seconds that each way is called for in a round at least: the system counts CPU time in steps of 10 ms."""
BROWSERS = ("chrom", "firefox", "msedge", "safari", "brave", "opera", "webkit", "web content")
"""How the names of browsers' processes begin, or what is in them."""


def paired_times(
    ways: Mapping[str, Callable[[], Any]],
    rounds: int = 3,
    *,
    one_thread: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> "pd.DataFrame":
    """Seconds per call of each way, one row per round.

    In a round each way takes its turn, in an order that reverses from round to round, so that what slows the machine
    slows all of them. A round that other programs disturbed is dropped as a whole, and another one is run for it.
    A single round, as notebooks run it at the size "smoke", is returned as it is.

    Args:
        ways: what to call, by name; each is called once before the first round.
        rounds: rounds to keep.
        one_thread: let torch compute on one thread; False where threads are what is compared.
        clock: seconds; a test brings its own.

    Raises:
        UserError: other programs disturbed more rounds than they left alone; the text names what to close.
    """
    import pandas as pd

    with hardware.one_thread() if one_thread else contextlib.nullcontext(), contextlib.ExitStack() as stack:
        gc.collect()  # before the rounds and not in them, as `timeit` does
        if gc.isenabled():
            gc.disable()
            stack.callback(gc.enable)
        for way in ways.values():
            way()
        kept: list[dict[str, float]] = []
        disturbed: list[runs.Others] = []
        while len(kept) < rounds:
            look = telemetry.Look(count=1 if one_thread else None)
            order = list(ways) if len(kept) % 2 == 0 else list(ways)[::-1]
            taken = {name: _seconds(ways[name], clock) for name in order}
            others = look.others() if rounds > 1 else None
            if others is None or not others["disturbed"]:
                kept.append(taken)
                continue
            disturbed.append(others)
            if len(disturbed) > rounds:
                raise _refusal(disturbed, len(disturbed) + len(kept))
    return pd.DataFrame(kept, columns=list(ways)).rename_axis("round")


def undisturbed(measure: Callable[[], Measured], tries: int = 3, *, cores: int | None = None) -> Measured:
    """What `measure` returns when other programs leave the machine alone: it is called again after a disturbed try.

    A single try, as notebooks make at the size "smoke", counts in any case. `cores` are those that the measurement
    keeps busy, if these are not all: others may have the rest.

    Raises:
        UserError: each of several tries was disturbed; the text names what to close.
    """
    disturbed: list[runs.Others] = []
    while len(disturbed) < tries:
        look = telemetry.Look(count=cores)
        measured = measure()
        others = look.others()
        if tries == 1 or not others["disturbed"]:
            return measured
        disturbed.append(others)
    raise _refusal(disturbed, tries)


def require_parts(whole_s: float, parts_s: Iterable[float], what: str, slack: float = 1.1) -> None:
    """Refuse times of which the parts exceed their whole: something disturbed one of the two.

    Raises:
        UserError: the sum of the parts is more than `slack` times the whole.
    """
    if (parts := sum(parts_s)) > slack * whole_s:
        raise UserError(
            f"{what}: the parts take {1e3 * parts:.3g} ms and the whole takes {1e3 * whole_s:.3g} ms, which cannot be: "
            "something disturbed the timing. Close other programs, then run this cell again."
        )


def _refusal(disturbed: list[runs.Others], count: int) -> UserError:
    text = runs.disturbance_text(max(disturbed, key=lambda each: each["cpu_share"]))
    return UserError(
        f"{len(disturbed)} of {count} rounds were disturbed: {text}. {_what_to_do(text)}, then run this cell again."
    )


def _seconds(way: Callable[[], Any], clock: Callable[[], float]) -> float:
    synchronise, calls, began = _synchroniser(), 0, clock()
    while True:
        way()
        synchronise()
        calls += 1
        if (took := clock() - began) >= SHORTEST_S:
            return took / calls


def _synchroniser() -> Callable[[], Any]:
    """Waits for the GPU, if this process computes on one."""
    torch = sys.modules.get("torch")
    return torch.cuda.synchronize if torch is not None and torch.cuda.is_initialized() else lambda: None


def _what_to_do(text: str) -> str:
    if any(name in text.lower() for name in BROWSERS):
        return "Pause videos and close heavy pages in your browser"
    if "jupyter" in text.lower():
        return "Shut down the other notebooks of this JupyterLab (the tab of running kernels)"
    return "Close it" if "most of it" in text else "Close other programs"
