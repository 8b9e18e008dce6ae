"""Cells of a sweep as tasks of Slurm: submitted as an array, looked up in the queue, bound to the cores of a task.

Slurm's own commands do it. Its accounting, which many clusters lack, is not needed: run folders say how cells ended.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from labkit import UserError, hardware
from labkit.launch.rows import split_words
from labkit.launch.sweep import Progress

TASK = "slurm"
"""In `Part.more`: the last task of a cell, such as 17_3"""
MOST_TASKS = 1000
"""Tasks of one array: clusters allow 1,001 where their administrators say nothing else"""


def submit(progress: Progress, file: Path, runs_dir: Path, *, flags: str = "", at_most: int | None = None) -> list[str]:
    """Submit the cells that wait, and have no task in the queue, of a sweep that is `opened` for `elsewhere`.

    All nodes share `runs_dir`. `flags` are those of sbatch, as they are typed, and `at_most` limits the tasks that run
    at the same time.

    Returns:
        The jobs' ids; none where there is nothing to submit.

    Raises:
        UserError: Slurm is not here, does not answer, or refuses the flags.
    """
    given = split_words(flags)
    if own := next((word for word in given if word.startswith(("--array", "-a"))), None):
        raise UserError(f"--slurm {own}: labkit makes the array itself: remove this; --at-most N limits its tasks.")
    launches, queue = progress.launches, queued()
    waiting = [launches.parts[cell.key] for cell in progress.sweep.cells]
    waiting = [part for part in waiting if part.status == "waiting" and part.more.get(TASK) not in queue]
    asked = [cell.budget.cores or 1 for cell in progress.sweep.cells if not cell.other_keys]
    cores = [f"--cpus-per-task={max(asked)}"] if asked else []  # of a whole device Slurm decides what that is
    command = [sys.executable, "-m", "labkit", "sweep", str(file.absolute()), "--runs-dir", str(runs_dir.absolute())]
    jobs: list[str] = []
    for first in range(0, len(waiting), MOST_TASKS):
        parts = waiting[first : first + MOST_TASKS]
        script = (
            f"#!/bin/bash\nkeys=({' '.join(part.name for part in parts)})\n"
            f'exec {shlex.join(command)} --cell "${{keys[$SLURM_ARRAY_TASK_ID]}}"\n'
        )
        array = f"--array=0-{len(parts) - 1}" + (f"%{at_most}" if at_most else "")
        after = [f"--dependency=afterany:{jobs[-1]}"] if jobs and at_most else []
        log = f"--output={launches.folder.absolute() / 'logs'}/slurm-%A_%a.log"
        how = ["--parsable", "--requeue", "--open-mode=append", f"--job-name=labkit-{progress.sweep.name}", log]
        jobs.append(_run("sbatch", *how, array, *after, *cores, *given, given=script).strip().partition(";")[0])
        for number, part in enumerate(parts):
            part.more[TASK] = f"{jobs[-1]}_{number}"
        launches.save(*parts)
    return jobs


def queued() -> set[str]:
    """The tasks of this user in Slurm's queue, waiting or running.

    Raises:
        UserError: Slurm is not here, or does not answer.
    """
    return set(_run("squeue", "--me", "--noheader", "--array", "--format=%F_%K").split())


def take_cores(say: Callable[[str], None], stopped: Callable[[], bool]) -> None:
    """Keep this process to as many cores as Slurm gave its task on this node; elsewhere it keeps what it has.

    Not every cluster binds tasks to their cores, and tasks of different cells on one node must not share any.
    """
    cores = os.environ.get("SLURM_CPUS_ON_NODE", "")
    if cores.isdecimal() and "SLURM_JOB_ID" in os.environ:
        count = min(int(cores), len(hardware.core_order()))
        hardware.Budget("Slurm's task", count).take_cores(say=say, stopped=stopped)


def _run(*command: str, given: str = "") -> str:
    if shutil.which(command[0]) is None:
        raise UserError(
            f"Slurm's command {command[0]} is not here: use a machine that submits jobs, such as a login node, or run "
            "the sweep on this machine without --executor slurm."
        )
    ended = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = "; ".join(dict.fromkeys(line.partition("error: ")[2] or line for line in ended.stderr.splitlines()))
        what = "correct --slurm" if given else "see whether Slurm runs (`sinfo`)"
        raise UserError(f"{command[0]}: {said}: {what}, then give the same command again.")
    return ended.stdout
