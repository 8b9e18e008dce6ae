"""What commands print without a library for terminals, which takes longer to load than most of them take to answer."""

import atexit
import codecs
import io
import json
import os
import re
import shutil
import sys
from typing import IO, Any

WIDTH_FOR_PROGRAMS = 200
"""Width of a table in characters if there is no terminal, so that `grep` finds whole lines."""
# C0 and C1 control characters except tab and line end, each as its picture in Unicode or a question mark
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {127: 0x2421}
_PICTURES |= dict.fromkeys(range(128, 160), ord("?"))
NUMBER = re.compile(r"[-+≤≥~]?\.?\d|[-–]$|inf")

_NARROW = re.compile(r"[ -~¡-¬®-ʯ–—…·]*")
"""Texts in which each character takes one place of a terminal, and none controls it"""


def harmless(text: str) -> str:
    r"""The text with pictures in place of characters that control a terminal.

    >>> harmless("a\x1b[2Jb")
    'a␛[2Jb'
    """
    return text.translate(_PICTURES)


def plain_table(rows: list[dict[str, str]]) -> str | None:
    """Rows of texts as `labkit.cli.console.frame_table` shows them, a hundred times as fast; None if they do not fit.

    >>> print(plain_table([{"run": "a", "seed": "3"}, {"run": "b", "seed": "12"}]).replace(" ", "_"))
    ______________
    __run___seed__
    _────────────_
    __a________3__
    __b_______12__
    ______________
    """
    columns = [[name, *(row[name] for row in rows)] for name in rows[0]]
    widths = [max(map(len, column)) for column in columns]
    across = sum(widths) + 3 * len(widths) + 1
    room = max(shutil.get_terminal_size().columns, 0 if sys.stdout.isatty() else WIDTH_FOR_PROGRAMS)
    if across > room or not all(_NARROW.fullmatch(text) for column in columns for text in column):
        return None
    for place, (wide, column) in enumerate(zip(widths, columns, strict=True)):
        said = list(filter(None, column[1:]))
        is_right = place > 0 and said and all(map(NUMBER.match, said))
        column[:] = [f"{text:{'>' if is_right else '<'}{wide}}" for text in column]
    head, *lines = ["  " + "   ".join(cells) + "  " for cells in zip(*columns, strict=True)]
    return "\n".join([" " * across, head, f" {'─' * (across - 2)} ", *lines, " " * across])


SPELT = {"─": "-", "–": "-", "…": "...", "×": "x", "≥": ">=", "≤": "<=", "≈": "~", "·": "*", "±": "+-", "÷": "/"}
"""Signs of tables and sentences as ASCII writes them"""


def _spell(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError) or (sign := SPELT.get(error.object[error.start])) is None:
        return codecs.backslashreplace_errors(error)
    return sign, error.start + 1


def spell_for_ascii() -> None:
    r"""Let a terminal that knows ASCII only show signs in ASCII, and other letters as numbers: "\xfc" for "ü"."""
    codecs.register_error("labkit.spell", _spell)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="labkit.spell")


def say(line: object, *, to_stderr: bool = False) -> None:
    """Print a line, with control characters as pictures."""
    print(harmless(str(line)), file=sys.stderr if to_stderr else sys.stdout)


def write_nowhere(stream: IO[str] = sys.stdout) -> None:
    """Discard everything that is still written to a stream whose reader has left."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


_last: list[Any] | None = None
"""What is printed at the very end of this process; None where the process is not the command's own"""


def print_at_exit() -> None:
    """Let `print_last` wait until the end of this process; called before a script that may print at its exit, too."""
    global _last
    _last = []
    atexit.register(lambda: [print_json(content) for content in _last or ()])  # handlers run in the opposite order


def print_last(content: Any) -> None:
    """Print the answer of a command that runs a script here as the last line, whatever the script prints."""
    if _last is None:
        print_json(content)
    else:
        _last.append(content)


def print_json(content: Any, indent: int | None = None) -> None:
    """Print the answer for programs, even if its reader has left."""
    text = json.dumps(content, indent=indent)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        write_nowhere()
