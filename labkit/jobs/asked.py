"""What a plan or a sweep asks of a job: its name and preset, its settings by their flags, or the path of a script."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from labkit.errors import UserError, did_you_mean
from labkit.jobs.command import as_flags
from labkit.jobs.flags import job_flags, read_arguments
from labkit.jobs.presets import JOBS

KITS_SCRIPTS = Path(__file__).parent
"""The folder of labkit's own, where a script is looked for last"""
SHAPE_SCRIPT = KITS_SCRIPTS.resolve() / "dlrm_shape.py"
"""One whose settings are known, as those of labkit's jobs are"""
NO_SETTINGS = ("help", "device", "runs_dir")
"""Flags of labkit's jobs that the harness answers"""


def named_job(what: str) -> tuple[str, str, ArgumentParser]:
    """Name, preset ("" where none is named) and parser of one of labkit's own jobs, such as dlrm:tour.

    Raises:
        UserError: there is no such job. What the parser refuses is one, too.
    """
    job, _, preset = (part.strip() for part in what.partition(":"))
    if job not in JOBS:
        raise UserError(f"job {job!r} is unknown: {did_you_mean(job, JOBS)} A script's name ends in .py.")
    return job, preset, refusing(job_flags(job))


def refusing(parser: ArgumentParser) -> ArgumentParser:
    """The same, which raises a UserError instead of ending the process."""
    parser.error = _refuse
    return parser


def setting_kinds(parser: ArgumentParser) -> dict[str, Any]:
    """The kinds of a job's settings by name, as `read_setting` takes them; without those that the harness answers."""
    kinds = {each.dest: tuple(each.choices or ()) or each.type or str for each in parser._actions}
    return {name: kind for name, kind in kinds.items() if name not in NO_SETTINGS}


def job_arguments(parser: ArgumentParser, preset: str, settings: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """The arguments that settings of a job make, in order of their names, the seed last; checked by its parser.

    The preset is written out ("tour" where it is ""), so that jobs with and without it are alike. A path of data counts
    from the folder where it leads to something there.

    Raises:
        UserError: the job refuses them.
    """
    settings = {"preset": preset or "tour"} | dict(sorted(settings.items()))
    seed = {"seed": settings.pop("seed", 0)}
    for name in {"data", "schema"} & settings.keys():  # names stay
        path = Path(settings[name])
        if (path.suffix or len(path.parts) > 1) and (folder / path).exists():
            settings[name] = str(folder / path)
    arguments = as_flags(settings | seed)
    read_arguments(parser, arguments)
    return arguments


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
