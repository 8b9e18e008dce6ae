"""The program that sends a run to MLflow while it goes on; `labkit.tracking.forward` is the run's side."""

import contextlib
import os
import threading
from pathlib import Path

from labkit import process

EVERY_S, LONGEST_S = 5.0, 60.0
"""Seconds between two looks for new parts, and at most while the server is away"""


def forward(parent: process.Parent, folder: str, uri: str) -> None:
    """Send the run in `folder` until the parent asks to end, and then what is left."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(19)  # the training goes first
    # MLflow's client would try for minutes, and a request that fails is sent with the next look
    os.environ.update(MLFLOW_HTTP_REQUEST_MAX_RETRIES="0", MLFLOW_HTTP_REQUEST_TIMEOUT="5")
    closed = threading.Event()
    parent.listen(at_end=closed.set)
    from labkit.bridges.mlflow_runs import MlflowExport

    export, wait_s, was_away = None, EVERY_S, False
    while True:
        ended = closed.is_set()  # if so, this look is the last
        try:
            export = export or MlflowExport(uri, Path(folder))
            export.send()
            away, wait_s = "", EVERY_S
        except Exception as error:  # whatever a server, a proxy or a library does must not end the forwarding
            away, wait_s = (str(error).splitlines() or [type(error).__name__])[0][:200], min(2 * wait_s, LONGEST_S)
        if ended or bool(away) != was_away:
            parent.tell("forwarded", away=away, ended=ended)
            was_away = bool(away)
        if ended:
            return
        closed.wait(wait_s)


if __name__ == "__main__":
    _parent = process.Parent()
    forward(_parent, **_parent.content)
