"""Raw NVML answers, written down on a machine that has a GPU and played again where there is none.

A stream is a text file with a JSON object a line: the call, its arguments, and the answer or NVML's error number. What
is played goes through the same code as a driver's answers.
"""

from __future__ import annotations

import ctypes
import json
from collections import defaultdict, deque
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
            self._file = path.open("x", encoding="utf-8")
        except FileExistsError as error:
            raise UserError(f"{path}: this file is there already: name a new one for the recording.") from error
        self._library, self._handles = library, _Handles()

    def __getattr__(self, call: str) -> Any:
        function = getattr(self._library, call)

        def recorded(*arguments: Any) -> Any:
            line = {"call": call, "arguments": [self._handles.encode(each) for each in arguments]}
            try:
                answer = function(*arguments)
            except pynvml.NVMLError as error:
                self._write(line | {"error": error.value})
                raise
            self._write(line | {"answer": self._handles.encode(answer)})
            return answer

        return recorded

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


class PlayedNvml:
    """Stands in for `pynvml` and answers from a stream: to each call with the same arguments, the next answer."""

    def __init__(self, path: Path):
        """Play `path`.

        Raises:
            UserError: it is no such stream; the text names the line.
        """
        self._answers: defaultdict[str, deque[dict[str, Any]]] = defaultdict(deque)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = json.loads(line)
                self._answers[_key(entry["call"], entry["arguments"])].append(entry)
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise UserError(
                    f"{path}, line {number}: this is no line of a recorded NVML stream (`labkit monitor --record`)."
                ) from error
        self._handles = _Handles()

    @property
    def left(self) -> int:
        """Answers that have not been played, but for those of the session's end."""
        return sum(len(answers) for answers in self._answers.values() if answers and answers[0]["call"] not in _AT_END)

    def __getattr__(self, call: str) -> Any:
        def played(*arguments: Any) -> Any:
            answers = self._answers[_key(call, [self._handles.encode(each) for each in arguments])]
            if not answers:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_DATA)
            entry = answers.popleft()
            if "error" in entry:
                raise pynvml.NVMLError(entry["error"])
            return self._handles.decode(entry["answer"])

        return played


def _key(call: str, arguments: list[Any]) -> str:
    # a question to GPM carries its samples' addresses, and is the same question every time
    return call if call == "nvmlGpmMetricsGet" else json.dumps([call, arguments])


class _Handles:
    """Turns answers into JSON and back; NVML's pointers become numbers in the order in which they came."""

    def __init__(self):
        self._numbers: dict[Any, int] = {}
        self._pointers: dict[int, Any] = {}

    def encode(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, list | tuple | ctypes.Array):
            return [self.encode(each) for each in value]
        if isinstance(value, ctypes.Structure):
            fields = {name: getattr(value, name) for name, *_ in value._fields_}
            if "numMetrics" in fields:  # room for hundreds, of which these were asked for
                fields["metrics"] = fields["metrics"][: value.numMetrics]
        elif isinstance(value, SimpleNamespace | pynvml.nvmlFriendlyObject):
            fields = vars(value)
        else:
            return {"pointer": self._numbers.setdefault(_address(value), len(self._numbers))}
        return {"fields": {name: self.encode(each) for name, each in fields.items()}}

    def decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.decode(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "fields" in value:
            return SimpleNamespace(**{name: self.decode(each) for name, each in value["fields"].items()})
        number = value["pointer"]
        if number not in self._pointers:
            # real pointers, because some calls take them inside a structure
            pointer = ctypes.pointer(pynvml.struct_c_nvmlGpmSample_t())
            self._pointers[number], self._numbers[_address(pointer)] = pointer, number
        return self._pointers[number]


def _address(pointer: Any) -> Any:
    return ctypes.cast(pointer, ctypes.c_void_p).value if isinstance(pointer, ctypes._Pointer) else id(pointer)
