"""The flags of a job, made from the fields of its dataclass.

tyro would make them, too. Measured on two cores of an AMD EPYC, it needs 0.25 s to import and 0.2 s for a help of three
flags, and its spellings, boxes and errors differ from those of all other `labkit` commands.
"""

from __future__ import annotations

import re
import sys
from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from collections.abc import Sequence
from typing import Any

from labkit import data, placement
from labkit.jobs.job import Job, Setting, settings_of

METAVARS = {int: "N", float: "X"}


def job_flags(kind: type[Job], prog: str | None = None) -> ArgumentParser:
    """The flags of a kind of job. The help shows the defaults of its default preset."""
    about = (kind.__doc__ or "").partition("\n")[0]
    parser = ArgumentParser(prog=prog, description=about, allow_abbrev=False, argument_default=SUPPRESS)
    usual = kind()
    for name, setting in settings_of(kind).items():
        spellings = f"--{name.replace('_', '-')}", *setting.field.metadata.get("flags", ())
        options: dict[str, Any] = {"dest": name, "help": _help(kind, setting, setting.of(usual))}
        if setting.shape is bool:
            options["action"] = BooleanOptionalAction
        elif setting.choices:
            options["choices"] = setting.choices
        else:
            options["type"] = setting.kind
            options["metavar"] = setting.field.metadata.get("metavar") or METAVARS.get(setting.shape, "TEXT")
        parser.add_argument(*spellings, **options)
    return parser


def read_flags(
    kind: type[Job], arguments: Sequence[str] | None = None, *, prog: str | None = None, usage: str | None = None
) -> dict[str, Any]:
    """The settings that a command line gives, by name, for `Job.from_settings`; None reads that of this process.

    Flags that are not understood end the process with a message and status 2, as argparse does it.
    """
    parser = job_flags(kind, prog)
    parser.usage = usage
    given = sys.argv[1:] if arguments is None else arguments
    # --num_rows is understood as --num-rows is
    return vars(parser.parse_args([re.sub(r"^--\w+", lambda flag: flag[0].replace("_", "-"), each) for each in given]))


def _help(kind: type[Job], setting: Setting, usual: Any) -> str:
    words = setting.words.replace("{policies}", data.POLICY_WORDS)
    words = words.replace("{presets}", ", ".join(map(str, getattr(kind, "presets", {}).values())))
    words = words.replace("{metrics}", ", ".join(getattr(kind, "metrics", ())))
    if usual is None or "(default" in words:
        text = words
    elif setting.field.default is None:
        text = f"{words} (default: the preset's; tour: {placement.flag_text(setting.name, usual)})"
    else:
        number = f"{usual:,}" if isinstance(usual, int) else placement.flag_text(setting.name, usual)
        text = f"{words} (default: {number})"
    return text.replace("%", "%%")
