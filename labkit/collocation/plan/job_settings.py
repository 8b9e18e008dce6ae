"""The settings that a plan may give a job, as text, and the job that they make."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from labkit.collocation.plan.job_names import safe_name
from labkit.collocation.plan.mistakes import ALSO, did_you_mean
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.sizes import parse_size
from labkit.jobs.command import as_flags
from labkit.jobs.presets import PRESETS
from labkit.tracking.command import SEED

SCRIPT = "script"
"""Stands for the job of a script of the user's."""

PLACED = {"device": str, "cores": int, "memory": "size", "gpu_percent": float, "mig_profile": str}
"""What any job may ask of the device."""

NO_SETTINGS = ("help", "device", "runs_dir")
"""Flags of labkit's jobs that the harness answers."""

BY_THE_MODE = "the mode decides what a job may use: leave budget away, or give cores and memory for mode cpu-pinned."

EXAMPLES = {int: ("a whole number", "256"), float: ("a number", "0.5"), "size": ("a size", "2GiB")}

Kind = type | str | tuple[str, ...]
"""int, float, str, "size" for bytes, or what can be chosen"""


def read_setting(text: str, kind: Kind) -> Any:
    """The value of a setting.

    Args:
        text: as the plan has it.
        kind: of the value.

    Raises:
        UserError: the text is none of that kind.

    >>> read_setting("1e-3", float), read_setting("2GiB", "size")
    (0.001, 2147483648)
    """
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


def read_settings(texts: Mapping[str, str], job: str) -> dict[str, Any]:
    """The values of a job's settings.

    Args:
        texts: what the plan gives, by name.
        job: dlrm, speech or SCRIPT.

    Raises:
        UserError: some are unknown, or of the wrong kind.
    """
    settings, wrong = {}, []
    for name, text in texts.items():
        try:
            settings[name] = read_setting(text, setting_kind(name, job))
        except UserError as error:
            wrong.append(f"field {name!r}: {error}")
    if wrong:
        raise UserError(ALSO.join(wrong))
    return settings


def setting_kind(name: str, job: str, others: tuple[str, ...] = ()) -> Kind:
    """What kind of value a setting takes.

    Args:
        name: of the setting.
        job: dlrm, speech or SCRIPT.
        others: further names that could be meant.

    Raises:
        UserError: such jobs have no such setting.
    """
    if name in PLACED:
        return PLACED[name]
    if name == "budget":
        raise UserError(BY_THE_MODE)
    if job == SCRIPT:
        raise UserError(
            f"it is none of a script's, which are {', '.join(PLACED)}: pass it among the script's arguments."
        )
    known = {action.dest: action for action in _parser(job)._actions if action.dest not in NO_SETTINGS}
    if name not in known:
        raise UserError(f"it is unknown: {did_you_mean(name, (*others, *known, *PLACED))}")
    return tuple(known[name].choices or ()) or known[name].type or str


def split_label(text: str) -> tuple[str, str | None]:
    """Job and preset of "dlrm:tour"; the preset is None where none is named.

    Raises:
        UserError: no such job, or no such preset.
    """
    job, colon, preset = (part.strip() for part in text.partition(":"))
    if job not in PRESETS:
        if job.endswith(".py"):
            raise UserError(f"job {job!r} is a script's name: in a file, write `script: {job}` in place of `job:`.")
        raise UserError(f"job {job!r} is unknown: {did_you_mean(job, PRESETS)} A script's name ends in .py.")
    if colon and preset not in PRESETS[job]:
        raise UserError(f"preset {preset!r} of {job} is unknown: {did_you_mean(preset, PRESETS[job])}")
    return job, preset if colon else None


def labkits_job(job: str, preset: str | None, settings: Mapping[str, Any], where: str) -> PlannedJob:
    """A job of one of labkit's scripts, whose arguments its own parser has checked.

    Args:
        job: dlrm or speech.
        preset: that stands after the job's name, if one does.
        settings: values by name, of the script's flags and of `PLACED`.
        where: it was asked for.

    Raises:
        UserError: the settings do not make a job.
    """
    from labkit.jobs.flags import read_arguments

    if preset is not None and "preset" in settings:
        raise UserError(f"field 'preset': the job names preset {preset!r}, too: leave one of the two away.")
    own = {name: settings[name] for name in sorted(settings) if name not in PLACED}
    seed = own.pop("seed", 0)
    # written out, so that jobs with and without it are alike
    preset = own.pop("preset", preset or "tour")
    arguments = as_flags({"preset": preset} | own)
    try:
        read_arguments(_parser(job), job, (*arguments, *as_flags({"seed": seed})))
    except UserError as error:
        raise UserError(_without_flags(str(error))) from None
    arguments += as_flags({"seed": SEED})
    return PlannedJob(safe_name(f"{job}-{preset}"), job, arguments, seed, where=where, **placed(settings))


def placed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the place, as PlannedJob names them."""
    names = {name: f"{name}_bytes" if name == "memory" else name for name in PLACED}
    return {names[name]: value for name, value in settings.items() if name in PLACED}


def find_script(text: str, folders: tuple[Path, ...]) -> Path:
    """The first file of that name, from the working folder.

    Args:
        text: a path, from one of the folders.
        folders: in which to look.

    Raises:
        UserError: it is none, or no Python file.
    """
    if not text.endswith(".py"):
        raise UserError(f"the script {text!r} is no Python file: name a file that ends in .py.")
    looked = [folder / Path(text).expanduser() for folder in folders]
    for path in looked:
        if path.is_file():
            return path
    places = " nor ".join(dict.fromkeys(str(path) for path in looked))
    counted = "the plan's folder" if folders[0] != Path() else "the working folder"
    raise UserError(f"there is no script {places}: check the path, which counts from {counted}.")


def _parser(job: str) -> argparse.ArgumentParser:
    """The parser of one of labkit's jobs; its module brings torch, so only a plan with such a job loads it."""
    flags = importlib.import_module(f"labkit.jobs.{job}").parser()

    def refuse(message: str) -> NoReturn:
        raise UserError(message)

    flags.error = refuse
    return flags


def _without_flags(text: str) -> str:
    """An error of `labkit train` in the words of a plan.

    >>> _without_flags("batch_size (--batch-size) is 0: give one with --batch-size.")
    'batch_size is 0: give one with `batch_size`.'
    """
    text = re.sub(r" \(--[a-z-]+\)", "", text)
    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda flag: f"`{flag[1].replace('-', '_')}`", text)
