"""Sends a run to MLflow while it goes on, from a process of its own, so that no step waits for a server."""

import importlib.util
import os
import threading
from collections.abc import Callable
from pathlib import Path

from labkit import process
from labkit.hardware import memory_watch

VARIABLE = "MLFLOW_TRACKING_URI"
"""Environment variable with the address of MLflow, as MLflow itself reads it"""
GRACE_S = 15.0
"""Seconds that the end of a run waits for what was not sent yet"""


class Forward:
    """A run's side of `labkit.bridges.mlflow_runs`."""

    def __init__(self, folder: Path, uri: str, notice: Callable[[str], None]):
        """Start sending `folder` to MLflow at `uri`; `notice` is called in another thread."""
        self._folder, self._uri, self._notice, self._sent = folder, uri, notice, False
        content = {"folder": str(folder), "uri": uri}
        self._child = process.Child("labkit.bridges.mlflow_runs", content, grace_s=GRACE_S, warm=False).start()
        memory_watch.leave_out(self._child.pid)
        self.pid = self._child.pid
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @classmethod
    def wanted(cls, folder: Path, notice: Callable[[str], None]) -> "Forward | None":
        """Start, if the environment names an MLflow."""
        if not (uri := os.environ.get(VARIABLE)):
            return None
        if importlib.util.find_spec("mlflow") is None:
            notice(f"{VARIABLE} is set, but MLflow is not installed: `pip install 'labkit[mlflow]'` sends runs there")
            return None
        return cls(folder, uri, notice)

    def finish(self) -> None:
        """Send what is left, after the final record was written."""
        self._child.end()
        self._listener.join(GRACE_S)
        if not self._sent:
            again = f"labkit runs export {self._folder} --to mlflow {self._uri}"
            self._notice(f"MLflow does not have all of this run yet: `{again}` sends the rest")

    def _listen(self) -> None:
        for message in self._child.messages():
            away, self._sent = message["away"], message["ended"] and not message["away"]
            if not message["ended"]:
                back = "MLflow answers again: what it missed is sent"
                self._notice(f"MLflow does not answer ({away}): what it misses is sent later" if away else back)
