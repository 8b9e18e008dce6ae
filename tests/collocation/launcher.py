"""A launcher to be killed: light jobs under a supervisor, in a round whose record is written to a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from light_job import processes_of

from labkit.collocation.launching.group_record import JobOutcome, RoundRecord
from labkit.collocation.launching.round import Round
from labkit.process.supervisor import SupervisedJobs
from labkit.runs.atomic import replace_text, temporary_of
from labkit.tracking.stop import StopRequest

HOW = ["shares stays", "shares stays deaf", "shares stays breeds", "shares stays deaf breeds sibling"]


def main(folder: Path, needs_mps: bool) -> None:
    processes = processes_of(folder, *HOW)
    record = RoundRecord("w", "cpu-shared", 0, [JobOutcome(process.name, "light") for process in processes])
    path = folder / "round.json"
    with SupervisedJobs(polite_s=0.2) as supervised, StopRequest() as stop:
        supervised.remove_at_end(temporary_of(path))
        Round(
            record,
            processes,
            supervised,
            timeout_s=60,
            on_event=lambda event: None,
            stop=stop,
            save=lambda: replace_text(path, repr(record)),
            mps_gpus=["GPU-1"] if needs_mps else None,
        ).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "mps" in sys.argv[2:])
