"""Raw NVML answers, written down on a machine that has a GPU and played again where there is none.

A stream is a text file with a JSON object a line: the call, its arguments, and the answer or NVML's error number. What
is played goes through the same code as a driver's answers.
"""

from __future__ import annotations

import ctypes
import json
from collections import defaultdict, deque
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml

from labkit.errors import UserError

_AT_END = ("nvmlShutdown", "nvmlGpmSampleFree")


class RecordedNvml:
    """Stands in for `pynvml` and writes down all that it is asked and answers."""

    def __init__(self, path: Path, library: ModuleType = pynvml):
        """Write to `path`, which must not be there yet.

        Raises:
            UserError: it is.
        """
        try:
            self._file = path.open("x", encoding="utf-8", buffering=1)
        except FileExistsError as error:
            raise UserError(f"{path}: this file is there already: name a new one for the recording.") from error
        self._library, self._handles = library, _Handles()

    def __getattr__(self, call: str) -> Any:
        def recorded(*arguments: Any) -> Any:
            line = {"call": call, "arguments": arguments}
            try:
                answer = getattr(self._library, call)(*arguments)
            except pynvml.NVMLError as error:
                self._write(line | {"error": error.value})
                raise
            self._write(line | {"answer": answer})
            return answer

        return recorded

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, default=self._handles.encode) + "\n")


class PlayedNvml:
    """Stands in for `pynvml` and answers from a stream: to each call with the same arguments, the next answer."""

    def __init__(self, path: Path):
        """Play `path`.

        Raises:
            UserError: it is no such stream; the text names the line.
        """
        self._handles = _Handles()
        self._lines: defaultdict[tuple[str, str], deque[str]] = defaultdict(deque)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = json.loads(line)
                self._lines[self._key(entry["call"], entry["arguments"])].append(line)
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise UserError(
                    f"{path}, line {number}: this is no line of a recorded NVML stream (`labkit monitor --record`)."
                ) from error

    @property
    def left(self) -> int:
        """Answers that have not been played, but for those of the session's end."""
        return sum(len(lines) for (call, _), lines in self._lines.items() if call not in _AT_END)

    def __getattr__(self, call: str) -> Any:
        def played(*arguments: Any) -> Any:
            lines = self._lines[self._key(call, arguments)]
            if not lines:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_DATA)
            entry = json.loads(lines.popleft(), object_hook=self._handles.decode)
            if "error" in entry:
                raise pynvml.NVMLError(entry["error"])
            return entry["answer"]

        return played

    def _key(self, call: str, arguments: Sequence[Any]) -> tuple[str, str]:
        # a question to GPM carries its samples' addresses, and is the same question every time
        asked = None if call == "nvmlGpmMetricsGet" else arguments
        return call, json.dumps(asked, default=self._handles.encode)


class _Handles:
    """Turns what JSON does not know into JSON and back; pointers become numbers in the order in which they came."""

    def __init__(self):
        self._numbers: dict[Any, int] = {}
        self._pointers: dict[int, Any] = {}

    def encode(self, value: Any) -> Any:
        if isinstance(value, ctypes.Array):
            return list(value)
        if isinstance(value, ctypes.Structure):
            fields = {name: getattr(value, name) for name, *_ in value._fields_}
            if "numMetrics" in fields:  # room for hundreds, of which these were asked for
                fields["metrics"] = fields["metrics"][: value.numMetrics]
            return {"fields": fields}
        if isinstance(value, SimpleNamespace | pynvml.nvmlFriendlyObject):
            return {"fields": vars(value)}
        return {"pointer": self._numbers.setdefault(_address(value), len(self._numbers))}

    def decode(self, value: dict[str, Any]) -> Any:
        if "fields" in value:
            return SimpleNamespace(**value["fields"])
        if "pointer" not in value:
            return value
        number = value["pointer"]
        if number not in self._pointers:
            # real pointers, because some calls take them inside a structure
            pointer = ctypes.pointer(pynvml.struct_c_nvmlGpmSample_t())
            self._pointers[number], self._numbers[_address(pointer)] = pointer, number
        return self._pointers[number]


def _address(pointer: Any) -> Any:
    return ctypes.cast(pointer, ctypes.c_void_p).value if isinstance(pointer, ctypes._Pointer) else id(pointer)
