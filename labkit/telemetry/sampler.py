"""The sampler as a job sees it: a process beside it, which never shares its interpreter and never outlives it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from labkit.hardware.budgets import memory_watch
from labkit.process import Child
from labkit.telemetry.reading import OnFault

DEFAULT_HZ, MOST_HZ = 2.0, 100.0
"""Samples a second: if nobody says how many, and at most."""
MOST_RESTARTS = 3
START_S = 60.0
"""For the first sample; a slow disk's imports fit in, a driver that hangs does not go on for ever."""
SAMPLER_GRACE_S = 10.0
"""For the last sample, when the job has ended."""


class Sampler:
    """Starts the sampler for this process and ends it with the block; both are done whatever the block does.

    One that dies is started again, and the gap in its samples stays.
    """

    def __init__(self, folder: Path, hz: float = DEFAULT_HZ, on_fault: OnFault = lambda kind, what: None):
        """Sample into `folder`/telemetry, `hz` times a second; `on_fault` is called in another thread."""
        self.folder, self.hz, self._on_fault = folder, hz, on_fault
        self.failure: str | None = None
        """Why nothing is sampled any more, or which fault nobody could be told of; None where all is well."""
        self.deaths: list[str] = []
        """Why each sampler that was started again had died."""
        self._ending = False
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Sampler:
        if failure := self._start():
            self.failure = failure
        else:
            self._watcher.start()
        return self

    def __exit__(self, *exception) -> None:
        self._ending = True
        if self._watcher.ident is None:
            self._child.end()
            return
        self._child.stop()
        self._watcher.join(SAMPLER_GRACE_S)
        if self._watcher.is_alive():
            self._child.kill()
            self._watcher.join(SAMPLER_GRACE_S)  # a driver may keep even a killed process

    def _start(self) -> str | None:
        """Start a sampler and wait for its first sample; why there will be none, or None."""
        told = {"folder": str(self.folder), "pid": os.getpid(), "hz": self.hz, "restarts": len(self.deaths)}
        self._child = Child("labkit.telemetry.sampling", told, grace_s=SAMPLER_GRACE_S).start()
        memory_watch.leave_out(self._child.pid)
        if self._ending:  # while it was being started again
            self._child.kill()
        # its imports take half a second of a core, which must not be taken from the run's clock
        try:
            while (message := self._child.next_message(START_S)) is not None:
                if message["kind"] == "ready":
                    return None
                self._tell(**message)
        except EOFError:
            return self._death()
        self._child.kill()
        return f"it took no sample within {START_S:g} s"

    def _watch(self) -> None:
        while True:
            for fault in self._child.messages():
                self._tell(**fault)
            death, status = self._death(), self._child.status()
            self._child.end()
            if status == 0 or self._ending:
                self.failure = death if status else self.failure
                return
            if len(self.deaths) == MOST_RESTARTS:
                self.failure = f"it died {MOST_RESTARTS + 1} times, at last of this: {death}"
                return
            self.deaths.append(death)
            self._tell("sampler_died", death)
            if failure := self._start():
                self.failure = self.failure if self._ending else failure
                return

    def _tell(self, kind: str, what: str) -> None:
        try:
            self._on_fault(kind, what)
        except Exception as error:  # a full disk ends neither the training nor the thread that starts samplers again
            self.failure = f"not recorded: {kind}: {what} ({error})"

    def _death(self) -> str:
        """What is known of the end of the latest process, which has closed its output."""
        status, lines = self._child.status(), self._child.stderr_tail().strip().splitlines()
        return lines[-1] if lines else f"the sampler ended with {status}"
