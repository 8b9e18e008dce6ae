"""Executes one notebook with papermill in a process of its own: a request on standard input, one line of answer.

Standard input stays open as long as who asked lives: at its end all that the notebook started ends, and this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from typing import Any

from labkit.course.isolation import leave_network
from labkit.process.containment import adopt_orphans, descendants, kill_until_gone
from labkit.quick_nbformat import import_nbformat

GRACE_S = 5.0
"""How long what a notebook started has to end after its kernel: runs notice that their launcher is gone."""


def main() -> int:
    request = json.loads(sys.stdin.readline())
    adopt_orphans()
    leave_network()
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, request["cores"])
    # the kernel's Pythons, and theirs in turn, get the guard; this process has loaded without it
    os.environ["PYTHONPATH"] = os.pathsep.join([request["guard"], *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["LABKIT_NETWORK_REPORT"] = request["network_report"]
    answer = {"error": execute(request), "left": end_the_rest()}
    sys.__stdout__.write(json.dumps(answer) + "\n")
    return 0


def _end_with_launcher() -> None:
    """Wait for the end of the launcher, however it ends, then leave nothing running without its limits."""
    while os.read(0, 4096):  # not by sys.stdin, whose lock Python wants at its own end
        pass
    kill_until_gone(descendants)
    os._exit(1)


def execute(request: dict[str, Any]) -> dict[str, Any] | None:
    """Execute the notebook; return the error that ended it, if one did."""
    import_nbformat()
    import papermill
    from papermill.exceptions import PapermillExecutionError

    try:
        papermill.execute_notebook(
            request["source"],
            request["out"],
            request["parameters"],
            kernel_name="python3",
            execution_timeout=request["cell_timeout_s"],
            progress_bar=False,
            shutdown_kernel="immediate",  # all is written: taking torch apart would take a second or two more
            cwd=request["cwd"],
        )
    except PapermillExecutionError as failure:
        return {"kind": failure.ename, "cell": failure.cell_index, "text": failure.evalue}
    except Exception as failure:
        return {"kind": type(failure).__name__, "cell": None, "text": str(failure)}
    return None


def end_the_rest() -> list[str]:
    """End what the notebook left running, and say what it was."""
    import psutil

    _, left = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=GRACE_S)
    named = []
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            named.append(" ".join(process.cmdline())[:80] or process.name())
            process.kill()
    return named


if __name__ == "__main__":
    sys.exit(main())
