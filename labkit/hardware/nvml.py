"""The one door to NVML: every answer is a value, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pynvml

_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported on this GPU ({call})",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission ({call})",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is too old ({call})",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed (NVML library not found)",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded",
}
_LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND}


@dataclass(frozen=True)
class Answer:
    """What one NVML call gave: a value, or None and the reason."""

    value: Any
    reason: str | None = None
    is_lost: bool = False
    """Whether the GPU itself is gone"""


class Nvml:
    """An NVML session, used as a context manager.

    A call that fails costs only its own value: `read` returns the reason instead of raising, so that one
    counter the card lacks never hides the others.

    Attributes:
        available: whether the session is open.
        reason: why opening it failed, else None.
    """

    def __init__(self, library: ModuleType = pynvml):
        self._library = library
        self.available, self.reason = False, None

    def __enter__(self) -> Nvml:
        self.reason = self.read("nvmlInit").reason
        self.available = self.reason is None
        return self

    def __exit__(self, *error) -> None:
        if self.available:
            self.read("nvmlShutdown")
        self.available = False

    def read(self, call: str, *args) -> Answer:
        """Call NVML by the function's name, for example `read("nvmlDeviceGetName", handle)`."""
        try:
            return Answer(getattr(self._library, call)(*args))
        except pynvml.NVMLError as error:
            words = _REASONS.get(error.value, "{error} ({call})").format(error=error, call=call)
            return Answer(None, words, error.value in _LOST)
