"""Processes that a watched script starts: how they find the harness, and that an optimiser stepped in them.

torch calls `watch` in every process as it is imported (the entry point in pyproject.toml), so this file imports nothing
that takes time.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

VARIABLE = "LABKIT_HARNESS"
"""Environment variable that leads to the harness"""
STEPPED = "stepped"
_has_reported = False


def watch() -> None:
    """Report the first step of an optimiser in this process, if a watched script started it."""
    if VARIABLE in os.environ:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(report_step)


def report_step(*_: Any) -> None:
    """Report, once per process, that an optimiser stepped here whose steps no `Run` counts."""
    global _has_reported
    import torch

    if torch.compiler.is_compiling():  # nothing else may be compiled with the step
        return
    if _has_reported or VARIABLE not in os.environ:
        return
    content = json.loads(os.environ[VARIABLE])
    run = "labkit.tracking.run" in sys.modules and sys.modules["labkit.tracking.run"].open_run()
    if content["pid"] != os.getpid() and (not run or run.is_implicit):
        _has_reported = True
        write(content, {"kind": STEPPED})


def write(harness: dict[str, Any], line: dict[str, Any]) -> None:
    """Write a line for the harness that the variable describes, if its process is still there."""
    import psutil

    if psutil.pid_exists(harness["pid"]):
        with Path(harness["events"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
