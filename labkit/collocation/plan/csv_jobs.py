"""Jobs of a plan in radT's CSV: what its columns mean here."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.collocation.plan.csv_table import CsvRow, CsvTable
from labkit.collocation.plan.job_names import numbered, safe_name
from labkit.collocation.plan.job_settings import find_script, split_label
from labkit.collocation.plan.mistakes import Mistakes, did_you_mean
from labkit.collocation.plan.plan import MODES, Workload
from labkit.collocation.plan.planned_job import MIG_PROFILE, PlannedJob
from labkit.collocation.plan.quoted_text import split_words
from labkit.collocation.plan.short_form import item_jobs
from labkit.errors import UserError

SAMPLED = ("smi", "dcgmi", "top", "iostat", "free", "ps", "macmon")
"""radT's listeners that sample counters, as labkit's sampler does in every run"""
PROFILERS = ("nsys", "nsysraw", "ncu", "ncuraw", "ncuattach")
"""radT's listeners that run the job under a profiler"""
NOTHING = ("", "-", "nan", "none")
"""Ways of saying none; pandas writes nan"""
CPU = ("cpu", *NOTHING)
GPU_MODES = ("naive", "mps", "mig")
CPU_MODES = ("cpu-shared", "cpu-pinned")


@dataclass(frozen=True)
class _Sharing:
    """What Devices and Collocation of a row say."""

    device: str
    """cpu, or a GPU's or a slice's number or UUID"""
    mode: str | None
    """None where the row leaves it open"""
    mig_profile: str | None

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"


class CsvJobs:
    """Makes workloads of rows, noting mistakes."""

    def __init__(self, table: CsvTable, mistakes: Mistakes):
        self.table = table
        self.mistakes = mistakes
        self.notices: list[str] = []

    def workload(self, name: str, rows: list[CsvRow]) -> Workload | None:
        """Jobs that run together, in the rows' order; None where a row has a mistake."""
        jobs: list[PlannedJob] = []
        sharings: list[tuple[CsvRow, _Sharing]] = []
        for row in rows:
            place = self._place(row)
            with self.mistakes.noting(place, within="field 'Listeners'"):
                self._check_listeners(row)
            with self.mistakes.noting(place):
                sharings.append((row, self._sharing(row)))
                self._check_agree(*sharings[0], sharings[-1][1])
            with self.mistakes.noting(place):
                jobs.append(self._job(row))
        if any(self.mistakes.of(self._place(row)) for row in rows):
            return None
        names = numbered([job.name for job in jobs])
        placed = tuple(
            replace(job, name=job_name, device=sharing.device, mig_profile=sharing.mig_profile)
            for job, job_name, (_, sharing) in zip(jobs, names, sharings, strict=True)
        )
        return Workload(name, _mode(sharings[0][1], len(rows)), placed)

    def _place(self, row: CsvRow) -> str:
        return f"{self.table.path}, line {row.line}"

    def _sharing(self, row: CsvRow) -> _Sharing:
        device = _device(self.table.value(row, "Devices"))
        mode, profile = _collocation(self.table.value(row, "Collocation"))
        if device == "cpu" and mode in GPU_MODES:
            raise UserError(
                f"field 'Collocation': mode {mode} shares a GPU, and Devices names none: name one there, or choose - "
                "or one of " + ", ".join(CPU_MODES) + "."
            )
        if device != "cpu" and mode in CPU_MODES:
            raise UserError(f"field 'Collocation': mode {mode} shares the CPU: write cpu in Devices.")
        return _Sharing(device, mode, profile)

    def _check_agree(self, first_row: CsvRow, first: _Sharing, other: _Sharing) -> None:
        if first.mode != other.mode:
            raise UserError(
                f"field 'Collocation': it is {other.mode or '-'} here, and {first.mode or '-'} in line "
                f"{first_row.line} of the same workload: rows that run together share in one way; make them equal, or "
                "give this one another Workload."
            )
        if first.on_cpu != other.on_cpu:
            raise UserError(
                f"field 'Devices': it is {other.device} here, and {first.device} in line {first_row.line} of the same "
                "workload: jobs on a CPU and on a GPU share nothing; give this one another Workload."
            )

    def _job(self, row: CsvRow) -> PlannedJob:
        """The job of a row, named as the row is, or after what it trains; where it runs is still open."""
        file, params = self.table.value(row, "File"), self.table.value(row, "Params")
        place, folders = self._place(row), (self.table.path.parent, Path())
        if file.endswith(".py"):
            script = find_script(file, folders)
            arguments = tuple(split_words(params))
            # radT starts a script in its own folder, and its paths count on that
            job = PlannedJob(safe_name(script.stem), str(script), arguments, folder=str(script.parent), where=place)
        elif params:
            split_label(file)
            raise UserError(
                f"field 'Params': only a script has them; settings of {file} stand in brackets after it, as in "
                "dlrm:tour[batch_size=256], in double quotes where there are commas."
            )
        else:
            job, *copies = item_jobs(file, place, folders)
            if copies or job.device or job.mig_profile:
                raise UserError(
                    "field 'File': Devices and Collocation say where it runs, and each copy has a row of its own: "
                    "leave that away here."
                )
        name = self.table.value(row, "Name")
        return job if name in NOTHING else replace(job, name=safe_name(name))

    def _check_listeners(self, row: CsvRow) -> None:
        text = self.table.value(row, "Listeners") or self.table.value(row, "Profilers")
        for name in (part.strip().lower() for part in text.split("+")):
            if name in PROFILERS:
                self.notices.append(
                    f"line {row.line}: {name} is left out: a profiler slows the neighbours, too; `labkit profile` runs "
                    "a job under one alone."
                )
            elif name not in SAMPLED and name not in NOTHING:
                raise UserError(f"{name!r} is no listener of radT: {did_you_mean(name, (*SAMPLED, *PROFILERS))}")


def _device(text: str) -> str:
    if text.lower() in CPU:
        return "cpu"
    if "+" in text:
        raise UserError(
            f"field 'Devices': {text!r} names several, and a job of labkit uses one: name one, and give each device a "
            "row of its own."
        )
    # pandas writes whole numbers of a column with gaps as 0.0
    if found := re.fullmatch(r"(\d+)(?:\.0)?", text):
        return found[1]
    if re.fullmatch(r"(?:GPU|MIG)-[\w/-]+", text):
        return text
    raise UserError(f"field 'Devices': {text!r} is not understood: write a GPU's number or UUID, or cpu.")


def _collocation(text: str) -> tuple[str | None, str | None]:
    """Mode, where the text names one, and MIG profile."""
    if text.lower() in NOTHING:
        return None, None
    if MIG_PROFILE.fullmatch(text):
        return "mig", text.lower()
    if text.lower() in MODES:
        return text.lower(), None
    raise UserError(
        f"field 'Collocation': {text!r} is neither -, MPS, a MIG profile such as 3g.20gb, nor a mode of labkit: "
        f"{did_you_mean(text, ('MPS', *MODES))}"
    )


def _mode(sharing: _Sharing, rows: int) -> str:
    if sharing.mode is not None:
        return sharing.mode
    if rows == 1:
        return "alone"
    return "cpu-shared" if sharing.on_cpu else "naive"
