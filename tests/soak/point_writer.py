"""A writer of points that may be killed at any moment: it notes each step once its point has been written.

Run as a program with the folder of runs, its number, the longest pause between two parts in seconds, the file for its
notes, and one that is there once it is over. If there are notes, it goes on with their run, from a finished step.
"""

import random
import sys
import time
from pathlib import Path

from labkit.runs import Provenance, RunWriter, lock_run, read_run

NOTHING = {"config": {}, "budget": {"torch_name": "cpu"}, "tier": None, "devices": [], "software": {}}


def write(runs_dir: Path, number: int, pause_s: float, notes: Path, over: Path) -> None:
    chance = random.Random(time.time_ns())
    folder, attempt, last = read_notes(notes)
    with notes.open("a") as file:
        if folder is None:
            about = {**NOTHING, "seed": number, "provenance": Provenance.now("measured", "a test of many writers")}
            run, step = RunWriter.create(runs_dir, f"writer-{number:02d}", **about), 0
            file.write(f"folder {run.folder}\n")
        else:
            step = chance.randint(int(0.8 * last), last)
            file.write(f"resumed {step}\n")  # before it is so: until then there are more points, which may be read
            file.flush()
            run = RunWriter.reopen(folder, lock_run(folder), from_step=step, config=read_run(folder).config)
            attempt += 1
        file.flush()
        while not over.exists():
            for _ in range(chance.randint(1, 200)):
                step += 1
                run.metric(step=step, wall_s=step, train_s=step, samples=step, name="loss", value=attempt)
            run.flush()
            file.write(f"written {step}\n")
            file.flush()
            time.sleep(chance.uniform(0, pause_s))
    run.finish("done", {"steps": step})


def read_notes(notes: Path) -> tuple[Path | None, int, int]:
    """The run's folder, how often it was resumed, and its last finished step."""
    folder, resumed, last = None, 0, 0
    for line in notes.read_text().splitlines() if notes.exists() else ():
        what, _, value = line.partition(" ")
        if what == "folder":
            folder = Path(value)
        else:
            resumed, last = resumed + (what == "resumed"), int(value)
    return folder, resumed, last


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
