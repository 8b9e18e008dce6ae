"""Light jobs in a round; run as a program, a launcher to be killed, whose record is written to a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from light_job import processes_of

from labkit.process import SupervisedJobs
from labkit.runs import replace_text, temporary_of
from labkit.sharing.launching.jobs_record import JobOutcome, RoundRecord
from labkit.sharing.launching.round import Round
from labkit.tracking import StopRequest

HOW = ["shares stays", "shares stays deaf", "shares stays breeds", "shares stays deaf breeds sibling"]


def run_round(processes, *, grace_s=0.2, path=None, **ways) -> RoundRecord:
    """What became of a round, whose record is kept in a file if there is one."""
    record = RoundRecord("w", "cpu-shared", 0, [JobOutcome(process.name, "light") for process in processes])
    with SupervisedJobs(grace_s) as supervised, StopRequest() as stop:
        if path is not None:
            supervised.remove_at_end(temporary_of(path))
        save = (lambda: None) if path is None else (lambda: replace_text(path, repr(record)))
        ways = {"timeout_s": 60.0, "on_event": lambda event: None, "stop": stop, "save": save} | ways
        Round(record, processes, supervised, **ways).run()
    return record


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    gpus = ["GPU-1"] if "mps" in sys.argv[2:] else None
    run_round(processes_of(folder, *HOW), path=folder / "round.json", mps_gpus=gpus)
