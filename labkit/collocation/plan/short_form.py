"""Jobs as one line of text: "dlrm:tour[batch_size=256] x3, train.py --lr 0.1"."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from labkit.collocation.plan.job_names import numbered, safe_name
from labkit.collocation.plan.job_settings import (
    SCRIPT,
    find_script,
    labkits_job,
    placed,
    read_settings,
    split_label,
)
from labkit.collocation.plan.mistakes import Mistakes
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.plan.quoted_text import split_bracket, split_outside, split_words
from labkit.errors import UserError

EXAMPLE = "dlrm:tour x3, speech:tour[max_epochs=1], train.py --lr 0.1"
MOST_COPIES = 1000
"""More of one job are a slip of the finger: no device holds them."""


def parse_jobs(text: str) -> list[PlannedJob]:
    """Read jobs in their short form, separated by commas.

    An item is `job[:preset][settings] xN` or `script.py[settings] arguments xN`; preset, settings in square brackets
    (`[batch_size=256,max_epochs=1]`), arguments and number of copies can be left away. Arguments are quoted as in a
    shell. Commas in quotes or square brackets separate nothing. Copies of one job have seeds that count up from its
    own, or from 0; in a script's arguments {seed} stands for it.

    Raises:
        UserError: with every mistake, one a line.

    >>> [job.name for job in parse_jobs("dlrm:tour x2, speech")]
    ['dlrm-tour-1', 'dlrm-tour-2', 'speech-tour']
    """
    mistakes = Mistakes("--jobs")
    jobs: list[PlannedJob] = []
    try:
        items = [item.strip() for item in split_outside(text, ",")]
    except UserError as error:
        raise UserError(f"--jobs: {error}") from None
    if items[-1] == "" and len(items) > 1:
        items.pop()  # a comma at the end
    for number, item in enumerate(items, 1):
        where = f"job {number} of --jobs ({item})"
        with mistakes.noting(where):
            jobs += item_jobs(item, where, (Path(),))
    mistakes.raise_if_any()
    return [replace(job, name=name) for job, name in zip(jobs, numbered([job.name for job in jobs]), strict=True)]


def item_jobs(text: str, where: str, folders: tuple[Path, ...]) -> list[PlannedJob]:
    """The jobs of one item, all named after what they train.

    Args:
        text: of the item, in the form that `parse_jobs` tells.
        where: it was asked for.
        folders: in which a script is looked for.

    Raises:
        UserError: it is no job.
    """
    text, copies = _split_copies(text.strip())
    head, *rest = split_outside(text, " ", most=1)
    what, settings = _split_settings(head)
    if not what:
        raise UserError(f"there is no job in it: write jobs such as {EXAMPLE}.")
    arguments = tuple(split_words(rest[0])) if rest else ()
    if what.endswith(".py"):
        script, own = find_script(what, folders), placed(read_settings(settings, SCRIPT))
        return copies_of(PlannedJob(safe_name(script.stem), str(script), arguments, where=where, **own), copies)
    job, preset = split_label(what)
    if arguments:
        raise UserError(
            f"{rest[0].strip()!r} is not understood after {what}: settings stand in brackets, as in "
            f"{what}[batch_size=256], copies as in {what} x3, and a comma before the next job."
        )
    return copies_of(labkits_job(job, preset, read_settings(settings, job), where), copies)


def copies_of(job: PlannedJob, copies: int) -> list[PlannedJob]:
    """So many jobs like this one; where its arguments take a seed, with seeds that count up."""
    return [replace(job, seed=job.seed + number * job.takes_seed) for number in range(copies)]


def check_copies(copies: int, example: str) -> int:
    """The same number of copies.

    Args:
        copies: that were asked for.
        example: of a number that can be, as the plan writes it.

    Raises:
        UserError: it is none that can be.
    """
    if not 1 <= copies <= MOST_COPIES:
        raise UserError(f"{copies} copies cannot be: give a whole number from 1 to {MOST_COPIES}, such as {example}.")
    return copies


def _split_copies(text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(.*\S)(?:\s+|(?<=\]))[xX](\d{1,9})", text, re.DOTALL)
    return (found[1], check_copies(int(found[2]), "x3")) if found else (text, 1)


def _split_settings(head: str) -> tuple[str, dict[str, str]]:
    what, inside = split_bracket(head)
    what = "".join(split_words(what))
    if inside is None:
        return what, {}
    settings: dict[str, str] = {}
    for part in split_outside(inside, ","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UserError(
                f"{part.strip()!r} is no setting: write name=value in the brackets, as in [batch_size=256]."
            )
        if name in settings:
            raise UserError(f"field {name!r}: it stands there twice: leave one away.")
        settings[name] = " ".join(split_words(value))
    return what, settings
