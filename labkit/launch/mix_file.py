"""Mixes as text: jobs in one line (`--jobs`), files in YAML, and the CSV files of radT (itu-rad/radt 0.2.30)."""

import csv
import difflib
import io
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit import UserError
from labkit.jobs import ScriptJob, find_script, named_job
from labkit.launch.mix import MIG_PROFILE, MODES, Mix, PlannedJob, Workload
from labkit.launch.rows import (
    Kind,
    Mistakes,
    Row,
    numbered,
    read_setting,
    read_settings,
    read_text,
    read_yaml,
    safe_name,
    split_words,
)

JOB_FIELDS: dict[str, Kind] = dict.fromkeys(("job", "script", "name"), str)
JOB_FIELDS |= {"arguments": "words", "args": "words", "copies": "copies"}
PLACED: dict[str, Kind] = {"device": str, "cores": int, "memory": "size", "gpu_percent": float, "mig_profile": str}
"""What any job may ask of the device"""
ELSEWHERE = {
    "budget": "the mode decides what a job may use: remove budget, or give cores and memory for mode cpu-pinned."
}
"""Fields of other commands that mixes do not have"""


def read_jobs(
    rows: Iterable[Row], folders: Sequence[Path], mistakes: Mistakes, *, others: Mapping[str, Kind] | None = None
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
        raise UserError("it is another spelling of arguments: remove one.", field="args")
    what = read_setting(row.get("job") or row.get("script"), str)
    kind, preset = (None, "") if what.endswith(".py") else named_job(what)
    if preset and "preset" in row:
        raise UserError(f"the job already names preset {preset!r}: remove one.", field="preset")
    flags: dict[str, Any] = kind.kinds() if kind else {}
    values = read_settings(row, flags | PLACED | JOB_FIELDS | dict(others), mistakes, ELSEWHERE)
    if len(values) < len(row):
        return []
    copies, arguments = values.get("copies", 1), tuple(values.get("arguments", values.get("args", ())))
    if kind is None:
        job = ScriptJob(str(find_script(what, folders)), arguments)
        seed, name = 0, safe_name(Path(job.path).stem)
    elif arguments:
        raise UserError(
            f"{' '.join(arguments)!r} is not understood after {what}: only a script has arguments. Settings stand in "
            f"brackets, as in {what}[batch_size=256] (in YAML as fields), and copies as in {what} x3.",
            field="args" if "args" in row else "arguments",
        )
    else:
        settings = {name: values[name] for name in flags if name in values}
        given = kind.from_settings({"preset": preset or "tour"} | settings, folders[0])
        job, seed, name = given.with_settings(seed=0), given.seed, safe_name(f"{kind.name}-{given.preset}")
    asked = {("memory_bytes" if each == "memory" else each): values[each] for each in PLACED if each in values}
    planned = PlannedJob(values.get("name", name), job, seed, where=row.place, **asked)
    more = {name: values[name] for name in others if name in values}
    return [(replace(planned, seed=seed + number * job.takes_seed), more) for number in range(copies)]


JOBS_EXAMPLE = "dlrm:tour x3, speech:tour[max_epochs=1], train.py --lr 0.1"
QUOTED = r"""\\.|"(?:\\.|[^"\\])*"|'[^']*'"""
BRACKETS = rf"""\[(?:{QUOTED}|[^\[\]'"\\])*\]"""
ITEMS = re.compile(rf"((?:{QUOTED}|{BRACKETS}|[^,])*)(?:,|$)", re.DOTALL)
ITEM = re.compile(
    rf"""((?:{QUOTED}|[^\s\['"\\])*)({BRACKETS})?((?:{QUOTED}|{BRACKETS}|[^\['"\\])*?)(?:(?<=[\s\]])[xX](\d+))?""",
    re.DOTALL,
)
"""A job or script, its settings, its arguments and the number of its copies"""


def parse_jobs(text: str) -> list[PlannedJob]:
    """Read jobs in one line of text, separated by commas: "dlrm:tour[batch_size=256] x3, train.py --lr 0.1".

    An item is `job[:preset][settings] xN` or `script.py[settings] arguments xN`; preset, settings in square brackets
    (`[batch_size=256,max_epochs=1]`), arguments and number of copies can be omitted. Arguments are quoted as in a
    shell. Commas in quotes or square brackets separate nothing. Copies of one job have seeds that count up from its
    own, or from 0; in a script's arguments {seed} stands for it.

    >>> [job.name for job in parse_jobs("dlrm:tour x2, speech")]
    ['dlrm-tour-1', 'dlrm-tour-2', 'speech-tour']
    """
    mistakes, rows = Mistakes("--jobs"), []
    items = [item.strip() for item in ITEMS.findall(text.strip())]
    for number, item in enumerate(items[:-1] or items, 1):  # what follows the last comma, or the end, is empty
        place = f"job {number} of --jobs ({item})"
        with mistakes.noting(Row((), place)):
            rows.append(item_row(item, place))
    jobs = read_jobs(rows, (Path(),), mistakes)
    mistakes.raise_if_any()
    return [job for job, _ in jobs]


def item_row(text: str, place: str) -> Row:
    """The row that one item stands for; a UserError where it is none."""
    found = ITEM.fullmatch(text)
    if found is None:
        raise UserError(f"a quote or bracket in {text!r} is not closed: close it, or write a backslash before it.")
    what, brackets, arguments, copies = found.groups()
    if not what:
        raise UserError(f"there is no job in it: write jobs such as {JOBS_EXAMPLE}.")
    row = Row({"job": "".join(split_words(what))}, place, dict.fromkeys(("job", "arguments"), place))
    settings = shlex.shlex((brackets or "")[1:-1], posix=True)
    settings.whitespace, settings.whitespace_split, settings.commenters = ",", True, ""
    given = [
        *settings,
        *([f"arguments={arguments}"] if arguments.strip() else ()),
        *([f"copies={copies}"] if copies else ()),
    ]
    for setting in given:
        name, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            raise UserError(f"{setting.strip()!r} is not a setting: write name=value in the brackets.")
        if name in row:
            raise UserError("it is given twice: remove one.", field=name)
        row[name] = value
    return row


MIX_EXAMPLE = """\
mode: [alone, cpu-shared]
jobs:
  - job: dlrm:tour
    copies: 3
  - script: train.py
    arguments: --lr 0.1"""
GROUP_FIELDS: dict[str, Kind] = {"name": str, "mode": [MODES], "jobs": Row}
MIX_FIELDS = GROUP_FIELDS | {"device": str, "repeats": "count", "timeout": "duration", "workloads": Row}


def read_yaml_mix(path: Path, modes: Sequence[str] = (), default_mode: str = "cpu-shared") -> Mix:
    """Read a mix in YAML; a UserError lists every error of every row.

    `modes` replace those of the file, and `default_mode` is used where it names none. Scripts and data with
    relative paths are looked for in the file's folder.
    """
    top, mistakes = read_yaml(path, MIX_EXAMPLE), Mistakes(str(path))
    if "parameters" in top and {"file", "program"} & top.keys():
        whose = "radT's" if "file" in top else "W&B's"
        raise UserError(f"{path}: this is a grid of {whose}, which runs one after another: run `labkit sweep {path}`.")
    plan = read_settings(top, MIX_FIELDS, mistakes, ELSEWHERE)
    if ("jobs" in top) == ("workloads" in top):
        why = "both are there: put all jobs in one of the two" if "jobs" in top else "there is no job"
        mistakes.add(top.place, f"{why}: list jobs that run together under jobs, or several groups under workloads.")
    workloads = []
    for number, row in enumerate([top] if "jobs" in top else plan.get("workloads", ()), 1):
        group = plan if row is top else read_settings(row, GROUP_FIELDS, mistakes, ELSEWHERE)
        if "jobs" not in row:
            mistakes.add(row.place, "there is no job in it: list some under jobs.")
        found = read_jobs(group.get("jobs", ()), (path.parent,), mistakes)
        own_modes = modes or group.get("mode") or plan.get("mode") or [default_mode]
        for mode in own_modes if found else ():
            name = group.get("name", f"workload-{number}") + (f"-{mode}" if len(own_modes) > 1 else "")
            where = next((each.places["mode"] for each in (row, top) if "mode" in each), None)
            jobs = tuple(job for job, _ in found)
            workloads.append(Workload(mode if row is top else name, mode, jobs, None if modes else where))
    mistakes.raise_if_any()
    given = {name: plan[name] for name in ("device", "repeats") if name in plan}
    given |= {"timeout_s": plan["timeout"]} if "timeout" in plan else {}
    try:
        return Mix(plan.get("name", safe_name(path.stem)), tuple(workloads), **given)
    except UserError as error:
        raise UserError(f"{top.place}: {error}") from None


COLUMNS = ("Experiment", "Workload", "Status", "Run", "Devices", "Collocation", "File")
"""Columns that must be there; nothing is read from Status and Run"""
OPTIONAL = ("Name", "Listeners", "Profilers", "Params")
"""Columns that can be there, Profilers for Listeners; nothing is read from others"""
SAMPLED = ("smi", "dcgmi", "top", "iostat", "free", "ps", "macmon")
"""radT's listeners that sample counters, as labkit does in every run"""
NOTHING = ("", "-", "nan", "none")
"""Ways of writing none; pandas writes nan"""
COLUMN_OF = {"job": "File", "arguments": "Params"}
"""Columns of fields of a mix that can be wrong here"""
BEYOND = "fields beyond the header"


def read_csv_mix(path: Path) -> tuple[Mix, list[str]]:
    """Read a mix in radT's columns, and what the user should know of it, one sentence each.

    Rows with one Experiment and Workload run together. A script is looked for in the file's folder, then in the working
    folder.
    """
    table, mistakes, notices = _read_table(path), Mistakes(str(path)), []
    columns = [*table[0]] if table else []
    strangers = [column for column in columns if column not in (*COLUMNS, *OPTIONAL)]
    for column in strangers:
        if near := difflib.get_close_matches(column, {*OPTIONAL} - {*columns}, 1):
            raise UserError(f"{path}, line 1: the column {column!r} is unknown: did you mean {near[0]!r}?")
    if strangers:
        names = ", ".join(map(repr, strangers))
        notices.append(f"{path}, line 1: nothing is read from {names}, which labkit does not know.")
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in table:
        if row["Experiment"] and row["Workload"]:
            groups[row["Experiment"], row["Workload"]].append(row)
        else:
            empty = "Workload" if row["Experiment"] else "Experiment"
            mistakes.add_field(row, empty, "it is empty: rows with equal Experiment and Workload run together.")
    if any(row["Status"] for row in table):
        notices.append(f"{path}: Status is not read, so all rows run; --resume goes on with what was cut short.")
    names = numbered([safe_name("-".join(pair)) for pair in groups])
    rows = zip(names, groups.values(), strict=True)
    read = [_workload(name, own, path.parent, mistakes, notices) for name, own in rows]
    mistakes.raise_if_any()
    if not read:
        raise UserError(f"{path}: it has no rows: add some.")
    return Mix(safe_name(path.stem), tuple(filter(None, read))), notices


def _read_table(path: Path) -> list[Row]:
    # white space before a cell is passed over, as radT has pandas do it
    text = io.StringIO(read_text(path), newline="")
    reader = csv.DictReader(text, restkey=BEYOND, restval="", skipinitialspace=True, strict=True)
    columns = reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    if missing := [column for column in COLUMNS if columns.count(column) != 1]:
        raise UserError(
            f"{path}, line 1: the columns are {', '.join(columns) or 'none'}, and each of {', '.join(missing)} must be "
            "there once: a header names Experiment,Workload,Name,Status,Run,Devices,Collocation,Listeners,File,Params, "
            "in any order, and commas separate them."
        )
    rows = []
    try:
        for cells in reader:
            place = f"{path}, line {reader.line_num}"
            if BEYOND in cells:
                raise UserError(
                    f"{place}: it has {len(columns) + len(cells[BEYOND])} fields, and the header {len(columns)}: put a "
                    "field with commas in double quotes, or add the missing column to the header."
                )
            rows.append(Row(((name, cell.strip()) for name, cell in cells.items()), place))
    except csv.Error as error:
        place = f"{path}, line {reader.line_num + 1}"
        raise UserError(f"{place}: this is not CSV ({error}): close quotes, or write them twice.") from None
    return [row for row in rows if any(row.values())]


def _workload(name: str, rows: list[Row], folder: Path, mistakes: Mistakes, notices: list[str]) -> Workload | None:
    """Jobs that run together, in the rows' order; None where a row has a mistake, which is noted."""
    plain, modes = [], []
    for row in rows:
        for listener in (row.get("Listeners") or row.get("Profilers") or "").lower().replace(" ", "").split("+"):
            if listener not in (*SAMPLED, *NOTHING):
                why = "a profiler slows the neighbours, too; `labkit profile` runs a job under one alone"
                notices.append(f"{row.place}: {listener} is left out: {why}.")
        with mistakes.noting(row):
            job, mode = _plain_row(row)
            modes.append(mode)
            if mode != modes[0]:
                raise UserError(
                    f"it is {mode or '-'} here, and {modes[0] or '-'} in another row of the workload: rows that run "
                    "together share in one way; make them equal, or give this one another Workload.",
                    field="Collocation",
                )
            plain.append(job)
    jobs = [job for job, _ in read_jobs(plain, (folder, Path()), mistakes)]
    if len(jobs) < len(rows):
        return None
    usual = "alone" if len(jobs) == 1 else "cpu-shared" if jobs[0].device == "cpu" else "naive"
    # radT starts a script in its own folder, and its paths count on that
    folders = [str(Path(job.job.path).parent) if isinstance(job.job, ScriptJob) else None for job in jobs]
    own = tuple(replace(job, folder=folder) for job, folder in zip(jobs, folders, strict=True))
    return Workload(name, modes[0] or usual, own, f"{rows[0].place}, field 'Collocation'")


def _plain_row(row: Row) -> tuple[Row, str | None]:
    """A row with the fields of a mix in YAML, and its mode where it names one."""
    collocation, device, file, name = row["Collocation"].lower(), row["Devices"], row["File"], row.get("Name", "")
    is_slice = MIG_PROFILE.fullmatch(collocation)
    mode = "mig" if is_slice else None if collocation in NOTHING else collocation
    if mode not in (None, *MODES):
        raise UserError(
            f"{row['Collocation']!r} is neither -, MPS, a MIG profile such as 3g.20gb, nor a mode of labkit: choose "
            f"one of {', '.join(MODES)}.",
            field="Collocation",
        )
    found = Row({"job": file}, row.place) if file.endswith(".py") else item_row(file, row.place)
    asked = {
        # pandas writes whole numbers of a column with gaps as 0.0
        "device": "cpu" if device.lower() in ("cpu", *NOTHING) else device.removesuffix(".0"),
        "mig_profile": collocation if is_slice else None,
        "arguments": row.get("Params"),
        "name": None if name in NOTHING else safe_name(name),
    }
    if again := [field for field in ("copies", *asked) if field in found]:
        said = f"{', '.join(again)} cannot stand in it: they have a column, and a copy a row."
        raise UserError(said, field="File")
    places = {field: f"{row.place}, field {column!r}" for field, column in COLUMN_OF.items()}
    return Row(found | {field: value for field, value in asked.items() if value}, row.place, places), mode
