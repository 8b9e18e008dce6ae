"""The command line inside the child process of a campaign."""

from __future__ import annotations

import contextlib
import io

from labkit.cli import main
from labkit.errors import UserError


def labkit(*argv: object) -> str:
    """What a command prints, its notes in front.

    Raises:
        UserError: the command refused.
        AssertionError: it ended in a traceback.
    """
    out, notes = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(notes):
        try:
            status = main([str(each) for each in argv])
        except SystemExit as ended:
            status = ended.code
    if status == 2:
        raise UserError(notes.getvalue())
    assert status != 1 or "Traceback" not in notes.getvalue(), notes.getvalue()
    return notes.getvalue() + out.getvalue()
