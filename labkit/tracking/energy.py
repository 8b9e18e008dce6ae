"""`labkit.energy.window`: named spans of a run, whose energy is computed from the run's samples."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Generator

import torch

from labkit import UserError

WRITE_EVERY_S = 5.0
"""Seconds between two writes of windows to disk."""

_windows: "Windows | None" = None


def window(name: str, *, sync: bool = True) -> "contextlib.AbstractContextManager[Window]":
    """A span of the open run, as a context manager. Windows nest ("epoch/forward"), and a name may be used again.

        with labkit.energy.window("forward") as forward:
            loss = loss_of(model(x), y)
        forward.seconds

    `labkit energy RUN` and `labkit.tta.window_energy` report its joules.

    Args:
        name: name of the window; windows with the same name are summed.
        sync: whether to wait for the GPU at both ends, so that the window holds exactly the work that was started in
            it. Without this it costs nothing, and holds whatever the GPU did meanwhile.

    Raises:
        UserError: no run is open in this process.
    """
    if _windows is None:
        raise UserError(
            f"labkit.energy.window({name!r}) needs an open run, whose sampler measures: use it inside "
            '`with labkit.Run("my-job") as run:`.'
        )
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"labkit.energy.window({name!r}): give the window a name, for example 'forward'.")
    return _windows.window(name, sync)


class Window:
    """One window."""

    seconds: float | None = None
    """None until its end."""


class Windows:
    """The windows of one run, until `close`. They are written as events, each with all new windows of one name."""

    def __init__(self, record: Callable[..., None]):
        """`record` writes an event."""
        global _windows
        self._record, self._written_at = record, time.monotonic()
        self.torch_name = "cpu"
        """Device that computes."""
        self.names: list[str] = []
        """Names of the open windows, outermost first."""
        self._ended: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        self._since_ns = time.time_ns() - time.monotonic_ns()  # like the sampler: a date plus a monotonic clock
        _windows = self

    @contextlib.contextmanager
    def window(self, name: str, sync: bool) -> Generator[Window]:
        window, depth = Window(), len(self.names)
        self.names.append(name)
        begin_ns = self._now_ns(sync)
        try:
            yield window
        finally:
            end_ns = self._now_ns(sync)
            window.seconds = (end_ns - begin_ns) / 1e9
            begins, ends = self._ended["/".join([*self.names[:depth], name])]
            begins.append(begin_ns)
            ends.append(end_ns)
            del self.names[depth:]
        if time.monotonic() - self._written_at >= WRITE_EVERY_S:
            self.write()

    def _now_ns(self, sync: bool) -> int:
        if sync and self.torch_name.startswith("cuda"):
            torch.cuda.synchronize(self.torch_name)
        return self._since_ns + time.monotonic_ns()

    def write(self) -> None:
        """Write the windows that have ended."""
        self._written_at, ended = time.monotonic(), dict(self._ended)
        self._ended.clear()
        for name, (begins, ends) in ended.items():
            self._record("windows", name=name, begin_ns=begins, end_ns=ends)

    def close(self) -> None:
        """End the windows of this run."""
        global _windows
        if _windows is self:  # otherwise a later run is open
            _windows = None
        self.write()
