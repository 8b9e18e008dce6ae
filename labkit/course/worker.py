"""Executes one notebook with papermill in a process of its own: a request on standard input, one line of answer."""

from __future__ import annotations

import json
import os
import sys

from labkit.quick_nbformat import import_nbformat


def main() -> int:
    request = json.loads(sys.stdin.readline())
    if request["cores"] is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, request["cores"])
    # the kernel's Pythons, and theirs in turn, get the guard; this process has loaded without it
    os.environ["PYTHONPATH"] = os.pathsep.join([request["guard"], *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["LABKIT_NETWORK_REPORT"] = request["network_report"]
    import_nbformat()
    import papermill
    from papermill.exceptions import PapermillExecutionError

    error = None
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
        error = {"kind": failure.ename, "cell": failure.cell_index, "text": failure.evalue}
    except Exception as failure:
        error = {"kind": type(failure).__name__, "cell": None, "text": str(failure)}
    sys.__stdout__.write(json.dumps(error) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
