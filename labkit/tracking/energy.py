"""`labkit.energy.window`: names spans of a run, whose joules follow from the samples of the run's own sampler."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

import torch

from labkit.errors import UserError

WRITE_EVERY_S = 5.0
"""Windows reach the disk so often, as losses do."""

_windows: Windows | None = None


def window(name: str, *, sync: bool = True) -> Window:
    """A span of the open run, as a context manager; windows nest ("epoch/forward"), and a name may be used again.

        with labkit.energy.window("forward") as forward:
            loss = loss_of(model(x), y)
        forward.seconds

    `labkit energy RUN`, or `labkit.tta.window_energy`, has the joules.

    Args:
        name: what it is called; windows of one name are summed up.
        sync: whether a run on a GPU waits for it at both ends, so that the window holds the work that was begun in it;
            without, it costs nothing, and holds what the GPU happened to do meanwhile.

    Raises:
        UserError: no run is open in this process.
    """
    if _windows is None:
        raise UserError(
            f"labkit.energy.window({name!r}): no run is open in this process, and its sampler is what measures: write "
            'the window inside of `with labkit.Run("my-job") as run:`.'
        )
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"labkit.energy.window({name!r}): give the window a name, such as 'forward'.")
    return Window(_windows, name, sync)


class Windows:
    """The windows of one run, from its beginning to `close`; they are told in events, a batch of one name in each."""

    def __init__(self, tell: Callable[..., None]):
        global _windows
        self._tell, self._written_at = tell, time.monotonic()
        self.torch_name = "cpu"
        """What computes"""
        self.names: list[str] = []
        """Of the windows that are open, outermost first"""
        self._ended: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        self._since_ns = time.time_ns() - time.monotonic_ns()  # as the sampler: a date, and a clock that nobody sets
        _windows = self

    def now_ns(self, sync: bool) -> int:
        if sync and self.torch_name.startswith("cuda"):
            torch.cuda.synchronize(self.torch_name)
        return self._since_ns + time.monotonic_ns()

    def ended(self, name: str, begin_ns: int, end_ns: int) -> None:
        begins, ends = self._ended[name]
        begins.append(begin_ns)
        ends.append(end_ns)
        if time.monotonic() - self._written_at >= WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Tell of the windows that have ended."""
        self._written_at, told = time.monotonic(), dict(self._ended)
        self._ended.clear()
        for name, (begins, ends) in told.items():
            self._tell("windows", name=name, begin_ns=begins, end_ns=ends)

    def close(self) -> None:
        """The run ends."""
        global _windows
        if _windows is self:  # no later run is open
            _windows = None
        self.write()


class Window:
    """One window; `seconds` is known at its end."""

    def __init__(self, windows: Windows, name: str, sync: bool):
        self._windows, self._name, self._sync = windows, name, sync
        self.seconds: float | None = None

    def __enter__(self) -> Window:
        self._depth = len(self._windows.names)
        self._windows.names.append(self._name)
        self._begin_ns = self._windows.now_ns(self._sync)
        return self

    def __exit__(self, *error: object) -> None:
        end_ns, names = self._windows.now_ns(self._sync), self._windows.names
        self.seconds = (end_ns - self._begin_ns) / 1e9
        self._windows.ended("/".join([*names[: self._depth], self._name]), self._begin_ns, end_ns)
        del names[self._depth :]
