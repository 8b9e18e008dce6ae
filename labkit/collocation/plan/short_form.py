"""Jobs as one line of text: "dlrm:tour[batch_size=256] x3, train.py --lr 0.1"."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from labkit.collocation.plan.job_names import numbered
from labkit.collocation.plan.job_settings import jobs_of
from labkit.collocation.plan.mistakes import Mistakes
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError

EXAMPLE = "dlrm:tour x3, speech:tour[max_epochs=1], train.py --lr 0.1"
QUOTED = r"""\\.|"(?:\\.|[^"\\])*"|'[^']*'"""
BRACKETS = rf"""\[(?:{QUOTED}|[^\[\]'"\\])*\]"""
TOKEN = re.compile(rf"""{QUOTED}|{BRACKETS}|[^\s\['"\\]+|\s+""", re.DOTALL)
COPIES = re.compile(r"(?<=[\s\]])[xX](\d{1,9})$")


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
        items = [item.strip() for item in split_outside(text)]
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


def item_jobs(text: str, where: str, folders: Sequence[Path]) -> list[PlannedJob]:
    """The jobs of one item; `where` it was asked for, and the folders in which a script is looked for."""
    split_outside(text)  # all quotes and brackets are closed
    copies = COPIES.search(text := text.strip())
    tokens = TOKEN.findall(text[: copies.start()] if copies else text)
    head = list(takewhile(lambda token: not token.isspace(), tokens))
    arguments = split_words("".join(tokens[len(head) :]))
    brackets = head.pop() if len(head) > 1 and head[-1].startswith("[") else ""
    what = "".join(split_words("".join(head)))
    if not what:
        raise UserError(f"there is no job in it: write jobs such as {EXAMPLE}.")
    settings: dict[str, str] = {}
    for part in split_outside(brackets[1:-1]) if brackets else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UserError(
                f"{part.strip()!r} is no setting: write name=value in the brackets, as in [batch_size=256]."
            )
        if name in settings:
            raise UserError(f"field {name!r}: it stands there twice: leave one away.")
        settings[name] = " ".join(split_words(value))
    times = int(copies[1]) if copies else 1
    return jobs_of(what, where, folders, settings=settings, arguments=arguments, copies=times)


def split_outside(text: str) -> list[str]:
    """The parts of a text between commas that stand outside quotes and square brackets.

    >>> split_outside("a[x=1,y=2] 'b, c', d")
    ["a[x=1,y=2] 'b, c'", ' d']
    """
    parts, place = [], -1
    while place < len(text):
        part = re.compile(rf"""(?:{QUOTED}|{BRACKETS}|[^,\['"\\])*""", re.DOTALL).match(text, place + 1)
        parts.append(part[0])
        place = part.end()
        if text[place : place + 1] not in (",", ""):
            raise UserError(
                f"{text[place]} in {text.strip()!r} is not closed: close the quote or bracket, or write a backslash "
                "before it."
            )
    return parts


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
