"""The sampler as a job sees it: a process beside it, which never shares its interpreter and never outlives it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from labkit.hardware.budgets import memory_watch
from labkit.runs.process import OUT_OF_CTRL_C
from labkit.telemetry.faults import OnFault

LEAST_HZ, DEFAULT_HZ, MOST_HZ = 0.1, 2.0, 100.0
"""Samples a second: at least, if nobody says how many, and at most."""
READY = b"ready\n"
"""What the sampler writes when its first sample is taken."""
FAULT = b"fault "
"""How a line of the sampler begins that tells of a fault: [kind, what] follows."""
MOST_RESTARTS = 3
START_S = 60.0
"""For the first sample; a slow disk's imports fit in, a driver that hangs does not go on for ever."""
PATIENCE_S = 10.0
"""For the last sample, when the job has ended."""


class Sampler:
    """Starts the sampler for this process and ends it with the block; both are done whatever the block does.

    One that dies is started again, and the gap in its samples stays. The sampler also ends by itself when its standard
    input closes, which the kernel does for a killed parent.
    """

    def __init__(self, folder: Path, hz: float = DEFAULT_HZ, on_fault: OnFault = lambda kind, what: None):
        """Sample this process into `folder`/telemetry, `hz` times a second.

        `on_fault` is called with (kind, what) when the sampler dies or a GPU is lost, in another thread.
        """
        self.folder, self.hz, self._on_fault = folder, hz, on_fault
        self.failure: str | None = None
        """Why nothing is sampled any more; None where all is well."""
        self.deaths: list[str] = []
        """Why each sampler that was started again had died."""
        self.untold: list[str] = []
        """Faults that `on_fault` could not take, and why."""
        self._ending = False

    def __enter__(self) -> Sampler:
        self.failure = self._start()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        if self.failure is None:
            self._watcher.start()
        return self

    def __exit__(self, *exception) -> None:
        self._ending = True
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._watcher.ident is not None:
            self._watcher.join(PATIENCE_S)
            if self._watcher.is_alive():
                self._process.kill()
                self._watcher.join(PATIENCE_S)  # a driver may keep even a killed process

    def _start(self) -> str | None:
        """Start a sampler and wait for its first sample; why there will be none, or None."""
        command = [sys.executable, "-m", "labkit.telemetry.sampling", str(self.folder), str(os.getpid()), str(self.hz)]
        self._process = subprocess.Popen(
            [*command, str(len(self.deaths))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **OUT_OF_CTRL_C,
        )
        memory_watch.leave_out(self._process.pid)
        if self._ending:  # while it was being started again
            self._process.kill()
        # its imports take half a second of a core, which must not be taken from the run's clock
        given_up = threading.Event()
        overdue = threading.Timer(START_S, lambda: (given_up.set(), self._process.kill()))
        overdue.daemon = True
        overdue.start()
        try:
            for line in self._lines():
                if line == READY:
                    return None
        finally:
            overdue.cancel()
        death = self._death()
        return f"it took no sample within {START_S:g} s" if given_up.is_set() else death

    def _lines(self) -> Iterator[bytes]:
        """What the sampler writes, faults told on the way."""
        self._last_words = b""
        for line in self._process.stdout:
            if line.startswith(FAULT):
                self._tell(*json.loads(line.removeprefix(FAULT)))
            else:
                self._last_words = line
                yield line

    def _tell(self, kind: str, what: str) -> None:
        try:
            self._on_fault(kind, what)
        except Exception as error:  # a full disk must not end the thread that starts samplers again
            self.untold.append(f"{kind}: {what} ({error})")

    def _watch(self) -> None:
        """Wait for the sampler's end, and start it again where that was not asked for."""
        while True:
            for _ in self._lines():
                pass
            death = self._death()
            if self._process.returncode == 0 or self._ending:
                self.failure = death if self._process.returncode else None
                return
            if len(self.deaths) == MOST_RESTARTS:
                self.failure = f"it died {MOST_RESTARTS + 1} times, at last of this: {death}"
                return
            self.deaths.append(death)
            self._tell("sampler_died", death)
            failure = self._start()
            if failure is not None:
                self.failure = None if self._ending else failure
                return

    def _death(self) -> str:
        """What is known of the end of the latest process, which has closed its output."""
        self._process.wait()
        self._process.stdout.close()
        return self._last_words.decode(errors="replace").strip() or f"the sampler ended with {self._process.returncode}"
