"""The settings that a plan may give a job, as text, and the job that they make."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit.collocation.plan.mistakes import ALSO, did_you_mean
from labkit.collocation.plan.planned_job import KINDS, PlannedJob
from labkit.errors import UserError
from labkit.hardware.sizes import parse_size
from labkit.training.presets import PRESETS
from labkit.training.request import TrainRequest

TRAINED = tuple(kind for kind in KINDS if kind != "script")
"""Jobs that labkit trains itself."""

REQUESTED = {
    "preset": str,
    "data": str,
    "schema": str,
    "target": str,
    "seed": int,
    "batch_size": int,
    "optimiser": str,
    "lr": float,
    "precision": str,
    "max_seconds": float,
    "max_epochs": int,
    "sample_hz": float,
}
"""Settings of a dlrm or speech job: fields of TrainRequest, and their kinds."""

PLACED = {"device": str, "cores": int, "memory": "size", "gpu_percent": float, "mig_profile": str}
"""What any job may ask of the device."""

BY_THE_MODE = "the mode decides what a job may use: leave budget away, or give cores and memory for mode cpu-pinned."

EXAMPLES = {int: ("a whole number", "256"), float: ("a number", "0.5"), "size": ("a size", "2GiB")}


def read_setting(text: str, kind: type | str) -> Any:
    """The value of a setting.

    Args:
        text: as the plan has it.
        kind: int, float, str, or "size" for bytes.

    Raises:
        UserError: the text is none of that kind.

    >>> read_setting("1e-3", float), read_setting("2GiB", "size")
    (0.001, 2147483648)
    """
    if kind is str:
        if not text.strip():
            raise UserError("it is empty: give a value, or leave the field away.")
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


def read_settings(texts: Mapping[str, str], kind: str) -> dict[str, Any]:
    """The values of a job's settings.

    Args:
        texts: what the plan gives, by name.
        kind: of the job.

    Raises:
        UserError: some are unknown, or of the wrong kind.
    """
    settings, wrong = {}, []
    for name, text in texts.items():
        try:
            settings[name] = read_setting(text, setting_kind(name, kind))
        except UserError as error:
            wrong.append(f"field {name!r}: {error}")
    if wrong:
        raise UserError(ALSO.join(wrong))
    return settings


def setting_kind(name: str, job_kind: str, others: tuple[str, ...] = ()) -> type | str:
    """What kind of value a setting takes.

    Args:
        name: of the setting.
        job_kind: dlrm, speech or script.
        others: further names that could be meant.

    Raises:
        UserError: jobs of that kind have no such setting.
    """
    if name == "budget":
        raise UserError(BY_THE_MODE)
    if job_kind == "script" and name in REQUESTED:
        raise UserError("it is for dlrm and speech jobs: pass it among the script's arguments.")
    known = PLACED if job_kind == "script" else REQUESTED | PLACED
    if name not in known:
        raise UserError(f"it is unknown: {did_you_mean(name, (*others, *known))}")
    return known[name]


def split_label(text: str) -> tuple[str, str | None]:
    """Kind and preset of "dlrm:tour"; the preset is None where none is named.

    Raises:
        UserError: no such job, or no such preset.
    """
    kind, colon, preset = (part.strip() for part in text.partition(":"))
    if kind not in TRAINED:
        raise UserError(f"job {kind!r} is unknown: {did_you_mean(kind, TRAINED)} A script's name ends in .py.")
    if colon and preset not in PRESETS[kind]:
        raise UserError(f"preset {preset!r} of {kind} is unknown: {did_you_mean(preset, PRESETS[kind])}")
    return kind, preset if colon else None


def trained_job(name: str, kind: str, settings: Mapping[str, Any], where: str) -> PlannedJob:
    """A job that labkit trains, checked as `labkit train` would.

    Args:
        name: of the job.
        kind: dlrm or speech.
        settings: values by name, of `REQUESTED` and `PLACED`.
        where: it was asked for.

    Raises:
        UserError: the settings do not make a job.
    """
    # written out, so that jobs with and without it are alike
    request = {"preset": TrainRequest.preset} | {k: value for k, value in settings.items() if k in REQUESTED}
    try:
        asked = TrainRequest(kind, **request)
        asked.data_name  # noqa: B018  a preset without data of its own is refused here
        asked.train_config(train_samples=1)
    except UserError as error:
        raise UserError(_without_flags(str(error))) from None
    return PlannedJob(name, kind, request=request, where=where, **placed(settings))


def script_job(
    name: str, script: Path, arguments: tuple[str, ...], settings: Mapping[str, Any], where: str, **others: Any
) -> PlannedJob:
    """A job that runs a script of the user's.

    Args:
        name: of the job.
        script: the file, from the working folder.
        arguments: one an item.
        settings: values by name, of `PLACED`.
        where: it was asked for.
        others: further fields of PlannedJob.

    Raises:
        UserError: the settings do not make a job.
    """
    return PlannedJob(
        name, "script", script=str(script), arguments=arguments, where=where, **placed(settings), **others
    )


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


def _without_flags(text: str) -> str:
    """An error of `labkit train` in the words of a plan.

    >>> _without_flags("batch_size (--batch-size) is 0: give one with --batch-size.")
    'batch_size is 0: give one with `batch_size`.'
    """
    text = re.sub(r" \(--[a-z-]+\)", "", text)
    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda flag: f"`{flag[1].replace('-', '_')}`", text)
