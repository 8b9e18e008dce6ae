"""What is told of a run whose process was killed by the watch over its memory, which calls this."""

from __future__ import annotations

import json
import os

from labkit.runs.writer import fail_killed


def write(reason: str, *, killed: bool, folder: str | None = None, events: int | None = None) -> None:
    """End the record of the run that the process had open and did not end, and tell whoever launched the process.

    Args:
        reason: a sentence.
        killed: whether the process was, and could tell nothing itself.
        folder: of the last run that the process began.
        events: the file descriptor that a worker's events go to.
    """
    answer = None if folder is None else fail_killed(folder, reason)
    if events is not None and (killed or answer is not None):
        told = {"kind": "Failed", "status": "out_of_memory", "reason": reason, "answer": answer, "refused": True}
        os.write(events, json.dumps(told).encode() + b"\n")
