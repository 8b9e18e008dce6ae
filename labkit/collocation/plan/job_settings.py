"""What a row of a plan asks for, whatever its format: as many jobs, with settings that are checked."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from labkit.collocation.plan.job_names import safe_name
from labkit.collocation.plan.mistakes import did_you_mean
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.sizes import parse_size
from labkit.jobs.command import as_flags
from labkit.jobs.presets import JOBS
from labkit.tracking.command import SEED

NO_SETTINGS = ("help", "device", "runs_dir")
"""Flags of labkit's jobs that the harness answers."""
BY_THE_MODE = "the mode decides what a job may use: leave budget away, or give cores and memory for mode cpu-pinned."
EXAMPLES = {int: ("a whole number", "256"), float: ("a number", "0.5"), "size": ("a size", "2GiB")}
MOST_COPIES = 1000
"""More of one job are a slip of the finger: no device holds them."""

PLACED = {"device": str, "cores": int, "memory": "size", "gpu_percent": float, "mig_profile": str}
"""What any job may ask of the device"""

Kind = type | str | tuple[str, ...]
"""int, float, str, "size" for bytes, or what can be chosen"""


def read_setting(text: Any, kind: Kind) -> Any:
    """The value of a setting as the plan has it.

    Raises:
        UserError: it is none of that kind.

    >>> read_setting("1e-3", float), read_setting("2GiB", "size")
    (0.001, 2147483648)
    """
    if not isinstance(text, str):
        what = "a list" if isinstance(text, list) else "a group of fields"
        raise UserError(f"{what} stands where one value belongs: give one.")
    if kind is str:
        if not text.strip():
            raise UserError("it is empty: give a value, or leave the field away.")
        return text
    if isinstance(kind, tuple):
        if text not in kind:
            raise UserError(f"{text!r} is unknown: {did_you_mean(text, kind)}")
        return text
    try:
        value = parse_size(text.strip()) if kind == "size" else kind(text)
    except ValueError:
        value = None
    # a number that is none, or without end, compares with nothing
    if value is None or (kind is float and not abs(value) < float("inf")):
        words, example = EXAMPLES[kind]
        raise UserError(f"{text!r} is not {words}: write one, such as {example}.")
    return value


def read_settings(texts: Mapping[str, Any], kinds: Mapping[str, Kind], hint: str = "") -> dict[str, Any]:
    """The values of settings as the plan has them, given the kinds of all that there are.

    A UserError tells all that are unknown or wrong, one a line; `hint` follows the error of an unknown one.
    """
    values, wrong = {}, []
    for name, text in texts.items():
        try:
            if name == "budget":
                raise UserError(BY_THE_MODE)
            if name not in kinds:
                raise UserError(f"it is unknown: {did_you_mean(name, kinds)}{hint}")
            values[name] = read_setting(text, kinds[name])
        except UserError as error:
            wrong.append(f"field {name!r}: {error}")
    if wrong:
        raise UserError("\n".join(wrong))
    return values


def jobs_of(
    what: str,
    where: str,
    folders: Sequence[Path],
    *,
    settings: Mapping[str, Any] | None = None,
    arguments: Sequence[str] = (),
    copies: int = 1,
) -> list[PlannedJob]:
    """The jobs of one row, all named after what they train; seeds of copies count up where the arguments take one.

    Args:
        what: "dlrm:tour", or the path of a script.
        where: it was asked for.
        folders: in which a script is looked for.
        settings: as the plan writes them: any flag of labkit's job, and what it asks of the device.
        arguments: of a script.
        copies: so many.

    Raises:
        UserError: with every mistake, one a line.
    """
    if not 1 <= copies <= MOST_COPIES:
        raise UserError(f"{copies} copies cannot be: give a whole number from 1 to {MOST_COPIES}.")
    if what.endswith(".py"):
        script = find_script(what, folders)
        values = read_settings(settings or {}, PLACED, " What is the script's own goes among its arguments.")
        job = PlannedJob(safe_name(script.stem), str(script), tuple(arguments), where=where, **_placed(values))
    else:
        if arguments:
            raise UserError(
                f"{' '.join(arguments)!r} is not understood after {what}: only a script has arguments. Settings stand "
                f"in brackets, as in {what}[batch_size=256] (in YAML as fields), and copies as in {what} x3."
            )
        job = _labkits_job(what, settings or {}, where)
    return [replace(job, seed=job.seed + number * job.takes_seed) for number in range(copies)]


def find_script(text: str, folders: Sequence[Path]) -> Path:
    """The first file of that name in the folders; a UserError where there is none."""
    looked = [folder / Path(text).expanduser() for folder in folders]
    for path in looked:
        if path.is_file():
            return path
    places = " nor ".join(dict.fromkeys(str(path) for path in looked))
    counted = "the plan's folder" if folders[0] != Path() else "the working folder"
    raise UserError(f"there is no script {places}: check the path, which counts from {counted}.")


def _placed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the place, as PlannedJob names them."""
    names = {"memory": "memory_bytes"}
    return {names.get(name, name): values[name] for name in PLACED if name in values}


def _labkits_job(what: str, given: Mapping[str, Any], where: str) -> PlannedJob:
    """A job of one of labkit's scripts, whose settings its own parser checks."""
    from labkit.jobs.flags import read_arguments

    job, colon, preset = (part.strip() for part in what.partition(":"))
    if job not in JOBS:
        raise UserError(f"job {job!r} is unknown: {did_you_mean(job, JOBS)} A script's name ends in .py.")
    if colon and preset not in JOBS[job].presets:
        raise UserError(f"preset {preset!r} of {job} is unknown: {did_you_mean(preset, JOBS[job].presets)}")
    parser = importlib.import_module(f"labkit.jobs.{job}").parser()  # which brings torch: only such a plan loads it
    parser.error = _refuse
    own = {each.dest: tuple(each.choices or ()) or each.type or str for each in parser._actions}
    values = read_settings(given, {name: own[name] for name in own if name not in NO_SETTINGS} | PLACED)
    if colon and "preset" in values:
        raise UserError(f"field 'preset': the job names preset {preset!r}, too: leave one of the two away.")
    flags = {name: values[name] for name in sorted(values) if name not in PLACED}
    # the preset is written out, so that jobs with and without it are alike
    preset, seed = flags.pop("preset", preset or "tour"), flags.pop("seed", 0)
    arguments = as_flags({"preset": preset} | flags)
    read_arguments(parser, job, (*arguments, *as_flags({"seed": seed})))
    arguments += as_flags({"seed": SEED})
    return PlannedJob(safe_name(f"{job}-{preset}"), job, arguments, seed, where=where, **_placed(values))


def _refuse(message: str) -> NoReturn:
    raise UserError(message)
