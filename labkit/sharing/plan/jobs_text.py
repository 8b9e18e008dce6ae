"""Plans in one line of text, that of `--jobs`: its grammar, and the rows of which it is another spelling."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from labkit.errors import UserError
from labkit.launch.rows import Mistakes, Row, split_words
from labkit.sharing.plan.job_rows import read_jobs
from labkit.sharing.plan.planned_job import PlannedJob

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
    (`[batch_size=256,max_epochs=1]`), arguments and number of copies can be left away. Arguments are quoted as in a
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
            raise UserError(f"{setting.strip()!r} is no setting: write name=value in the brackets.")
        if name in row:
            raise UserError("it stands there twice: leave one away.", field=name)
        row[name] = value
    return row
