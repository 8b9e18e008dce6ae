"""The one door to NVML: every answer is a value, or the reason why there is none."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pynvml


@dataclass(frozen=True)
class Reading:
    """What one NVML call gave: a value, or None and the reason."""

    value: Any
    reason: str | None = None
    code: int | None = None
    """NVML's number of the failure"""

    @property
    def is_final(self) -> bool:
        """Whether asking again is of no use."""
        return self.code in _FINAL

    @property
    def is_lost(self) -> bool:
        """Whether the GPU itself is gone."""
        return self.code in _LOST


class Nvml:
    """An NVML session, used as a context manager.

    A call that fails costs only its own value: `read` returns the reason instead of raising, so that one
    counter the card lacks never hides the others.

    Attributes:
        available: whether the session is open.
        reason: why opening it failed, else None.
        openings: how often it was opened; handles of an earlier opening are void.
    """

    def __init__(self, library: ModuleType = pynvml):
        self._library = library
        self.available, self.reason, self.openings = False, None, 0
        self._under_way, self._lock = 0, threading.Lock()

    def __enter__(self) -> Nvml:
        start = self.read("nvmlInit")
        self.available, self.reason = start.reason is None, start.reason
        self.openings += 1
        return self

    def reopen(self) -> bool:
        """Close the session and open it anew, unless another thread is in a call, which would lose its ground.

        The driver shows a GPU that was lost and is back to new sessions only.
        """
        with self._lock:
            if self._under_way:
                return False
            self._ask("nvmlShutdown")
            self.available = self._ask("nvmlInit").reason is None
            self.openings += 1
            return True

    def __exit__(self, *error) -> None:
        if self.available:
            self.read("nvmlShutdown")
        self.available = False

    def read(self, call: str, *args) -> Reading:
        """Call NVML by the function's name, for example `read("nvmlDeviceGetName", handle)`."""
        with self._lock:
            self._under_way += 1
        try:
            return self._ask(call, *args)
        finally:
            with self._lock:
                self._under_way -= 1

    def _ask(self, call: str, *args) -> Reading:
        try:
            return Reading(getattr(self._library, call)(*args))
        except pynvml.NVMLError as error:
            return Reading(None, _explain(call, error), error.value)


_FINAL = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported on this GPU ({call})",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission ({call})",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is too old ({call})",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed (NVML library not found)",
}
"""Failures after which asking again is of no use, in words."""
_LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND}


def _explain(call: str, error: pynvml.NVMLError) -> str:
    if error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return "the NVIDIA driver is installed but not loaded"
    return _FINAL.get(error.value, "{error} ({call})").format(error=error, call=call)
