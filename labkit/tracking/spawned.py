"""A harness across a spawn: what a script starts finds it by the environment, and tells it by a file.

torchrun, `torch.multiprocessing` and scripts that start scripts: a `Run` in such a process writes its own folder where
the harness wants it, and the harness shows it, stops it and answers with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from labkit.errors import UserError
from labkit.runs import request_stop
from labkit.tracking.command import ScriptCommand
from labkit.tracking.ending import StopRequest
from labkit.tracking.events import Ready, Started, read_event
from labkit.tracking.harness import Harness

VARIABLE = "LABKIT_HARNESS"
ANSWER = "Answer"


class SpawnedRuns:
    """The harness' side; a context manager, during which processes that are started find the harness."""

    def __init__(self, harness: Harness):
        self._harness = harness
        self._heard, self._lock = 0, threading.Lock()
        """Lines so far"""
        self._folder: Path | None = None
        """Of a run that another process has open"""
        self._is_ending = False
        """Whether that run was asked to stop"""

    def __enter__(self) -> SpawnedRuns:
        harness = self._harness
        # made by whoever first has something to tell: a killed harness of a script that spawns nothing leaves nothing
        self._file = Path(tempfile.gettempdir()) / f"labkit-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        content = {"told": str(self._file), "pid": os.getpid(), "family": harness.family}
        os.environ[VARIABLE] = json.dumps(content | {"command": harness.command.to_dict()})
        return self

    def __exit__(self, *error: object) -> None:
        del os.environ[VARIABLE]
        self.listen()
        for path in (self._file, self._file.with_suffix(".go")):
            path.unlink(missing_ok=True)

    @property
    def stop_asked(self) -> bool:
        """Whether the script is to be interrupted: not while a run in another process can end by itself."""
        return bool(self._harness.stop) and not self._is_ending

    def listen(self) -> None:
        """Pass on what runs in other processes have told, and ask them to stop where that is asked for."""
        with self._lock:
            told = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
            lines = told.split("\n")[self._heard : -1]  # the last is not yet whole
            self._heard += len(lines)
            for line in lines:
                self._hear(json.loads(line))
        if self._harness.stop and self._folder is not None and not self._is_ending:
            self._is_ending = True
            with contextlib.suppress(UserError):  # it has ended meanwhile
                request_stop(self._folder)

    def _hear(self, event: dict[str, Any]) -> None:
        if event["kind"] == ANSWER:
            self._folder, self._is_ending = None, False
            self._harness.answers.append({name: value for name, value in event.items() if name != "kind"})
            return
        told = read_event(event)
        if isinstance(told, Started):
            self._folder = Path(told.folder)
        self._harness.tell(told)
        if isinstance(told, Ready):
            self._file.with_suffix(".go").touch()


class SpawnedHarness(Harness):
    """The harness of another process, in one that its script has started."""

    def tell(self, event: Any) -> None:
        self._write({"kind": type(event).__name__, **asdict(event)})
        if isinstance(event, Ready):
            while not self._told.with_suffix(".go").exists() and psutil.pid_exists(self._parent):
                time.sleep(0.05)

    def ended(self, run: str, folder: str, status: str, result: dict[str, Any]) -> None:
        super().ended(run, folder, status, result)
        self._write({"kind": ANSWER, **self.answers[-1]})

    def _write(self, content: dict[str, Any]) -> None:
        if psutil.pid_exists(self._parent):
            with self._told.open("a", encoding="utf-8") as file:
                file.write(json.dumps(content) + "\n")

    @classmethod
    def found(cls) -> SpawnedHarness | None:
        """The one that this process' environment names."""
        if VARIABLE not in os.environ:
            return None
        content = json.loads(os.environ[VARIABLE])
        harness = cls(StopRequest(), ScriptCommand.from_dict(content["command"]))
        harness._told, harness._parent, harness._family = Path(content["told"]), content["pid"], content["family"]
        return harness

    @property
    def family(self) -> int:
        return self._family
