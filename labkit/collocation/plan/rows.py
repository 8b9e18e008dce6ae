"""Rows of a plan, whatever its format: from their fields come jobs, and from all that is wrong with them one error."""

from __future__ import annotations

import difflib
import re
import shlex
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.sizes import parse_size
from labkit.jobs.command import as_flags
from labkit.jobs.flags import job_flags, read_arguments
from labkit.jobs.presets import JOBS
from labkit.tracking.command import SEED

JOB_FIELDS = {"job": str, "script": str, "arguments": "words", "args": "words", "copies": "copies", "name": str}
PLACED = {"device": str, "cores": int, "memory": "size", "gpu_percent": float, "mig_profile": str}
"""What any job may ask of the device"""
NO_SETTINGS = ("help", "device", "runs_dir")
"""Flags of labkit's jobs that the harness answers"""
BY_THE_MODE = "the mode decides what a job may use: leave budget away, or give cores and memory for mode cpu-pinned."
MOST_COPIES = 1000
"""More of one job are a slip of the finger: no device holds them."""
NUMBERS = {
    int: (int, lambda _: True, "a whole number", "256"),
    float: (float, lambda _: True, "a number", "0.5"),
    "size": (parse_size, lambda _: True, "a size", "2GiB"),
    "count": (int, lambda number: number >= 1, "a whole number from 1", "3"),
    "copies": (int, lambda number: 1 <= number <= MOST_COPIES, f"a whole number from 1 to {MOST_COPIES}", "2"),
    "time": (float, lambda number: number >= 0, "a number of seconds from 0", "30"),
    "duration": (float, lambda number: number > 0, "a number of seconds above zero", "60"),
    "share": (float, lambda number: 0 < number <= 1, "a share of the device above 0 and up to 1", "0.5"),
}
"""How a number of a kind is read, whether it fits, what it is called, and one"""
LONGEST = 52
"""Characters of a name before its number, of the 60 that a name may have"""

Kind = type | str | tuple[str, ...] | list[tuple[str, ...]]
"""One of NUMBERS, str, "words" of a command line, what can be chosen (in a list: one or more of it), or Row for a list
of rows"""


class Row(dict[str, Any]):
    """The fields of a row by name, without empty ones: texts as they were written, lists, and such rows."""

    def __init__(
        self,
        fields: Mapping[str, Any] | Iterable[tuple[str, Any]],
        place: str,
        places: Mapping[str, str] = MappingProxyType({}),
    ):
        super().__init__(fields)
        self.place = place
        """A file and its line, or an item of --jobs"""
        self.places = places
        """Those of fields, by name, that are not `PLACE, field 'NAME'`"""


class Mistakes:
    """Collects what is wrong with a plan, one line a mistake, so that it is mended once."""

    def __init__(self, plan: str):
        self.plan = plan
        self.lines: list[str] = []

    def add(self, place: str, what: str) -> None:
        """Note what is wrong at a place, and how it is mended; several lines are several mistakes."""
        self.lines += [f"{place}: {line}" for line in what.splitlines()]

    def add_field(self, row: Row, name: str, what: str) -> None:
        """Note what is wrong with a field of a row."""
        self.add(row.places.get(name, f"{row.place}, field {name!r}"), what)

    @contextmanager
    def noting(self, row: Row, usual: str | None = None) -> Iterator[None]:
        """Note a UserError that the block raises, and go on after the block.

        It is about the field that it names itself if the row has that, else about the usual one.
        """
        try:
            yield
        except UserError as error:
            name = error.field if usual is None or error.field in row else usual
            if name is None:
                self.add(row.place, str(error))
            else:
                self.add_field(row, name, str(error))

    def raise_if_any(self) -> None:
        """End here with all of them as a UserError, unless there were none."""
        lines = list(dict.fromkeys(self.lines))
        if len(lines) > 1:
            lines.insert(0, f"{self.plan}: {len(lines)} mistakes to mend before anything can start:")
        if lines:
            raise UserError("\n".join(lines))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word near this one, as a question, or all of them to choose from.

    >>> did_you_mean("dlmr", ("dlrm", "speech")), did_you_mean("x", ("dlrm", "speech"))
    ("did you mean 'dlrm'?", 'choose one of dlrm, speech.')
    """
    known = list(known)
    near = difflib.get_close_matches(word.lower(), known, 1)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}."


def read_text(path: Path) -> str:
    """The text of a plan; a UserError where there is no such file, or it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"There is no file {path}: check the path.") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8.") from None


def split_words(text: str) -> list[str]:
    """The words of a command line: quotes hold words together and are taken away.

    >>> split_words("--lr 0.1 --note 'two words'")
    ['--lr', '0.1', '--note', 'two words']
    """
    try:
        return shlex.split(text)
    except ValueError:
        raise UserError(
            f"the arguments {text!r} end inside a quote, or in a backslash: close the quote, or put the backslash in "
            "quotes."
        ) from None


def read_setting(value: Any, kind: Kind) -> Any:
    """The value of a setting as the plan has it; a UserError where it is none of that kind.

    >>> read_setting("1e-3", float), read_setting("2GiB", "size")
    (0.001, 2147483648)
    """
    if kind is Row:
        if value == []:
            raise UserError("the list is empty: give at least one item.")
        if not isinstance(value, list) or not all(isinstance(each, Row) for each in value):
            raise UserError("a list belongs here whose items have fields: begin each as in `- job: dlrm:tour`.")
        return value
    if isinstance(kind, list):
        return [read_setting(each, kind[0]) for each in (value if isinstance(value, list) else [value])]
    if kind == "words" and isinstance(value, list):
        return [read_setting(each, str) for each in value]
    if not isinstance(value, str):
        what = "a list" if isinstance(value, list) else "a group of fields"
        raise UserError(f"{what} stands where one value belongs: give one.")
    if kind == "words":
        return split_words(value)
    if kind is str:
        if not value.strip():
            raise UserError("it is empty: give a value, or leave the field away.")
        return value
    if isinstance(kind, tuple):
        if value not in kind:
            raise UserError(f"{value!r} is unknown: {did_you_mean(value, kind)}")
        return value
    try:
        read, fits, words, example = NUMBERS[kind]
        number = read(value.strip())
    except ValueError:
        number = None
    # a number that is none, or without end, compares with nothing
    if number is None or not abs(number) < float("inf") or not fits(number):
        raise UserError(f"{value!r} is not {words}: write one, such as {example}.")
    return number


def read_settings(row: Row, kinds: Mapping[str, Kind], mistakes: Mistakes) -> dict[str, Any]:
    """The values of a row's fields, given the kinds of all that there are; what is wrong is noted and left out."""
    values = {}
    for name, value in row.items():
        try:
            if name not in kinds:
                raise UserError(BY_THE_MODE if name == "budget" else f"it is unknown: {did_you_mean(name, kinds)}")
            values[name] = read_setting(value, kinds[name])
        except UserError as error:
            mistakes.add_field(row, name, str(error))
    return values


def safe_name(text: str) -> str:
    """A text as the name of a job, and so of a file.

    >>> safe_name("dlrm:tour"), safe_name("MPS shared gpu 1"), safe_name("../..")
    ('dlrm-tour', 'MPS-shared-gpu-1', 'job')
    """
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.+")[:LONGEST] or "job"


def numbered(names: Sequence[str]) -> list[str]:
    """The same names, with numbers where several are equal.

    >>> numbered(["dlrm-tour", "dlrm-tour", "speech-tour"])
    ['dlrm-tour-1', 'dlrm-tour-2', 'speech-tour']
    """
    once = {name for name, times in Counter(names).items() if times == 1}
    used, found = set(once), []
    for name in names:
        free = name if name in once else next(new for n in count(1) if (new := f"{name}-{n}") not in used)
        used.add(free)
        found.append(free)
    return found


def read_jobs(
    rows: Iterable[Row],
    folders: Sequence[Path],
    mistakes: Mistakes,
    *,
    others: Mapping[str, Kind] | None = None,
) -> list[tuple[PlannedJob, dict[str, Any]]]:
    """The jobs of rows, each with a name of its own; those of wrong rows, which are noted, are missing.

    A row has JOB_FIELDS, PLACED, and any flag of labkit's job by its name. A script is looked for in the folders; data
    in the first. `others` are kinds of fields of a row that are no job's; their values are given with each job.
    """
    found = []
    for row in rows:
        with mistakes.noting(row, "script" if "script" in row else "job"):
            found += _jobs_of(row, folders, mistakes, others or {})
    names = numbered([job.name for job, _ in found])
    return [(replace(job, name=name), more) for (job, more), name in zip(found, names, strict=True)]


def _jobs_of(
    row: Row, folders: Sequence[Path], mistakes: Mistakes, others: Mapping[str, Kind]
) -> list[tuple[PlannedJob, dict[str, Any]]]:
    if ("job" in row) == ("script" in row):
        mistakes.add(row.place, "give it one of job (such as dlrm:tour) and script (such as train.py).")
        return []
    if {"args", "arguments"} <= row.keys():
        mistakes.add_field(row, "args", "it is another spelling of arguments: leave one of the two away.")
        return []
    what = read_setting(row.get("job") or row.get("script"), str)
    script, parser, flags = what, None, {}
    if not what.endswith(".py"):
        script, preset, parser = _labkits_script(what)
        if preset and "preset" in row:
            mistakes.add_field(row, "preset", f"the job names preset {preset!r}, too: leave one of the two away.")
            return []
        flags = {each.dest: tuple(each.choices or ()) or each.type or str for each in parser._actions}
        flags = {name: kind for name, kind in flags.items() if name not in NO_SETTINGS}
    values = read_settings(row, flags | PLACED | JOB_FIELDS | others, mistakes)
    if len(values) < len(row):
        return []
    copies, arguments = values.get("copies", 1), tuple(values.get("arguments", values.get("args", ())))
    if parser is None:
        script, seed = str(find_script(what, folders)), 0
        name = safe_name(Path(script).stem)
    elif arguments:
        raise UserError(
            f"{' '.join(arguments)!r} is not understood after {what}: only a script has arguments. Settings stand in "
            f"brackets, as in {what}[batch_size=256] (in YAML as fields), and copies as in {what} x3.",
            field="args" if "args" in row else "arguments",
        )
    else:
        settings = {name: values[name] for name in flags if name in values}
        preset, seed, arguments = _labkits_arguments(script, preset, parser, settings, folders[0])
        name = safe_name(f"{script}-{preset}")
    asked = {("memory_bytes" if each == "memory" else each): values[each] for each in PLACED if each in values}
    job = PlannedJob(values.get("name", name), script, arguments, seed, where=row.place, **asked)
    more = {name: values[name] for name in others if name in values}
    return [(replace(job, seed=seed + number * job.takes_seed), more) for number in range(copies)]


def _labkits_script(what: str) -> tuple[str, str, ArgumentParser]:
    """Name, preset and parser of one of labkit's own scripts."""
    job, _, preset = (part.strip() for part in what.partition(":"))
    if job not in JOBS:
        raise UserError(f"job {job!r} is unknown: {did_you_mean(job, JOBS)} A script's name ends in .py.")
    parser = job_flags(job)
    parser.error = _refuse
    return job, preset, parser


def _labkits_arguments(
    job: str, preset: str, parser: ArgumentParser, settings: dict[str, Any], folder: Path
) -> tuple[str, int, tuple[str, ...]]:
    """Preset, seed and arguments of a labkit's script, checked by its parser; {seed} stands for the seed in them."""
    # the preset is written out, so that jobs with and without it are alike
    preset, seed = settings.pop("preset", preset or "tour"), settings.pop("seed", 0)
    for name in {"data", "schema"} & settings.keys():  # a path beside the plan; names stay
        path = Path(settings[name])
        if (path.suffix or len(path.parts) > 1) and (folder / path).exists():
            settings[name] = str(folder / path)
    arguments = as_flags({"preset": preset} | dict(sorted(settings.items())))
    read_arguments(parser, (*arguments, *as_flags({"seed": seed})))
    return preset, seed, (*arguments, *as_flags({"seed": SEED}))


def find_script(text: str, folders: Sequence[Path]) -> Path:
    """The first file of that name in the folders; a UserError where there is none."""
    looked = [folder / Path(text).expanduser() for folder in folders]
    if found := next(filter(Path.is_file, looked), None):
        return found
    places = " nor ".join(dict.fromkeys(map(str, looked)))
    counted = "the plan's folder" if folders[0] != Path() else "the working folder"
    raise UserError(f"there is no script {places}: check the path, which counts from {counted}.")


def _refuse(message: str) -> NoReturn:
    raise UserError(message)
