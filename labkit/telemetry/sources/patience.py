"""A source that may hang, as drivers of broken GPUs do, asked in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from labkit.telemetry.reading import OnFault, Reading
from labkit.telemetry.sources.ladder import Counters


class Patient:
    """Waits so long for a source, then leaves a gap until it answers again: the other sources go on."""

    def __init__(self, source: Counters, name: str, on_fault: OnFault, patience_s: float = 1.0):
        """Ask `source`; `on_fault` is told when it hangs and when it is back."""
        self._source, self._name, self._on_fault, self._patience_s = source, name, on_fault, patience_s
        self._asks: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[list[Reading] | Exception] = queue.SimpleQueue()
        self._hangs = False
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def read(self) -> Iterator[Reading]:
        """Yield the source's readings, or nothing while it hangs."""
        if not self._hangs:
            self._asks.put(True)
        try:
            answer = self._answers.get(timeout=1e-3 if self._hangs else self._patience_s)
        except queue.Empty:
            if not self._hangs:
                self._hangs = True
                self._on_fault("source_hangs", f"{self._name} has not answered for {self._patience_s:g} s")
            return
        if self._hangs:  # what it was asked long ago
            self._hangs = False
            self._on_fault("source_back", f"{self._name} answers again")
            return
        if isinstance(answer, Exception):
            raise answer
        yield from answer

    def close(self) -> None:
        """End the thread and close the source, unless it hangs."""
        self._asks.put(False)
        if not self._hangs:
            self._thread.join(self._patience_s)
            if hasattr(self._source, "close") and not self._thread.is_alive():
                self._source.close()

    def _answer(self) -> None:
        while self._asks.get():
            try:
                self._answers.put(list(self._source.read()))
            except Exception as error:  # raised again where the readings were asked for
                self._answers.put(error)
