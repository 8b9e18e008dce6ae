"""Executes one notebook with papermill in a process of its own, which leaves none of those that it started."""

import contextlib
import os
from typing import Any

import psutil

from labkit.errors import refusal
from labkit.plots import import_nbformat
from labkit.process import Parent, adopt_orphans, descendants, kill_until_gone

LEFT_OVER_GRACE_S = 5.0
"""Seconds that processes of a notebook have to end after its kernel: runs notice that their launcher is gone."""
STARTS = 3
"""Starts that a kernel may take: one that begins while another does may find that its ports were taken meanwhile."""


def main() -> None:
    parent = Parent()
    adopt_orphans()
    parent.listen(at_end=end_all)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, parent.content["cores"])
    os.environ.update(parent.content["environment"])  # for the kernel and all below it; this process is loaded
    error = execute(parent.content["papermill"])
    parent.tell("executed", error=error, left=end_the_rest())


def execute(arguments: dict[str, Any]) -> str | None:
    """Execute the notebook; return the error that ended it, if one did, as text."""
    import_nbformat()
    import papermill
    from papermill.exceptions import PapermillExecutionError

    # all is written when the kernel is shut down: to take torch apart would need a second or two more
    options = {"kernel_name": "python3", "progress_bar": False, "shutdown_kernel": "immediate"}
    for start in range(1, STARTS + 1):
        try:
            papermill.execute_notebook(**arguments, **options)
        except PapermillExecutionError as failure:
            return f"cell {failure.cell_index}: {failure.ename}: {' '.join(failure.evalue.split())}"[:300]
        except Exception as failure:
            if "died before replying to kernel_info" in str(failure) and start < STARTS:
                continue  # no cell ran
            return str(refusal(failure) or f"{type(failure).__name__}: {' '.join(str(failure).split())}"[:300])
        return None


def end_the_rest() -> list[str]:
    """End what the notebook left running, and say what it was."""
    _, left = psutil.wait_procs(descendants(), timeout=LEFT_OVER_GRACE_S)
    named = []
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            named.append(" ".join(process.cmdline())[:80] or process.name())
    kill_until_gone(descendants)
    return named


def end_all() -> None:
    """End with the runner, however it ends."""
    kill_until_gone(descendants)
    os._exit(1)


if __name__ == "__main__":
    main()
