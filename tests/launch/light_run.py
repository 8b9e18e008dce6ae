"""A run's process without torch: it speaks the worker's protocol, writes a record, and does what its arguments say.

`--ends done|diverged|error|oom|refused|usage|full|killed|crashes-once`, `--late S`, `--takes S`, `--deaf 1`. With
`--saves 1` it saves how many tenths of a second it has taken, and goes on from there.
"""

import itertools
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from labkit.process import Parent
from labkit.runs import Provenance, RunRecord, own_process, read_run, timestamp

LOG = "order.txt"
"""In --runs-dir: the arguments of each run that ended by itself, a line a run"""


def main() -> int:
    parent, stop = Parent(), threading.Event()
    command, started = parent.content, own_process()
    words = command["arguments"]
    given = {name[2:]: value for name, value in itertools.pairwise(words) if name.startswith("--")}
    ends, runs_dir = given.get("ends", "done"), Path(command["runs_dir"])
    go = threading.Event()

    def end() -> None:
        stop.set()
        go.set()

    parent.listen(lambda order: go.set(), end)

    def fail(reason: str, status: str = "failed", **more) -> int:
        parent.tell("Failed", **{"status": status, "reason": reason, "answer": None, "refused": False} | more)
        return 2

    if ends == "usage":
        print("usage: t.py [--lr LR]\nt.py: error: unrecognized arguments", file=sys.stderr)
        return fail("the script ended with status 2 before its first step", exit_code=2)
    if ends == "full":
        return fail("no space", refused=True, disk_full=True)
    if ends == "refused":
        return fail("there is no such data", refused=True)
    time.sleep(float(given.get("late", 0)))
    config = {"job": "t", "train": {}} | {name: command[name] for name in ("sweep", "collocation") if command[name]}
    budget = {"name": (command["budget"] or {"name": "whole"})["name"], "torch_name": "cpu"}
    record = RunRecord(
        f"{time.time_ns()}-{os.getpid()}", "t", config, budget, None, [], os.uname().nodename, {}, None,
        command["seed"], [], Provenance.now("measured"), "running", *started, timestamp(),
    )  # fmt: skip
    folder = Path(command["resume"] or runs_dir / record.id)
    saved = folder / "checkpoint" / "latest.pt"
    if command["resume"]:
        record = replace(record, id=folder.name, started_at=read_run(folder).started_at)
    if given.get("saves"):
        saved.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    if given.get("resumes") == "refused" and command["resume"]:
        return fail("another machine", refused=True)
    record.save(folder)
    parent.tell("Started", run=record.id, folder=str(folder), config=record.config)

    if command["waits"]:
        parent.tell("Ready")
        go.wait()

    def finish(status: str, ended_by: str, reason: str) -> dict:
        record.status, record.ended_at = status, timestamp()
        record.result = {
            "ended_by": ended_by,
            "reason": reason,
            "samples_per_s": float(given.get("x", 1)),
            "wall_s": 0.1,
            "samples": saved.stat().st_size if saved.exists() else 0,
        }
        record.save(folder)
        return {"run": record.id, "folder": str(folder), "status": status, "result": record.result}

    tenths = round(10 * float(given.get("takes", 0)))
    while given.get("saves") and (done := saved.stat().st_size if saved.exists() else 0) < tenths:
        if stop.wait(0.1):
            break
        saved.write_text("." * (done + 1))
    while not given.get("saves") and stop.wait(float(given.get("takes", 0))) and given.get("deaf"):
        time.sleep(60)
    own = command["sweep"] or command["collocation"] or {}
    once = runs_dir / f"{own.get('cell', own.get('job'))}.crashed"
    if stop.is_set():
        parent.tell("Ended", **finish("stopped", "stopped", "stopped by its launcher"))
    elif ends == "killed" or (ends == "crashes-once" and not once.exists()):
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    elif ends == "error":
        finish("failed", "error", "ValueError: oops")
        return fail("ValueError: oops")
    elif ends == "oom":
        return fail(
            "too much memory", "out_of_memory", answer=finish("failed", "error", "too much memory"), refused=True
        )
    elif ends == "diverged":
        return fail("diverged", answer=finish("failed", "diverged", "the loss is nan"), refused=True)
    else:
        with (runs_dir / LOG).open("a") as log:
            log.write(f"{' '.join(words)} repeat {own.get('repeat')}\n")
        parent.tell("Ended", **finish("done", "script", "the script ended"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
