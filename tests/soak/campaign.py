"""Damages copies of a folder as disks, copies, editors and other programs do it, each seed in the same way every time;
reads each in a child process within limits, and tells what became of them."""

import contextlib
import gzip
import io
import multiprocessing
import random
import re
import shutil
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from labkit.cli import main
from labkit.errors import UserError, refusal
from labkit.telemetry import own_peak_bytes

LIMIT_S = 60.0
LIMIT_BYTES = 2e9
BAD = ("traceback", "hang", "memory")

VALUE = re.compile(
    rb'"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\b(?:true|false|null)\b|\[[^][]*\]|\{[^{}]*\}'
)
"""Strings, numbers, constants, and lists and objects that hold no other, in text of any format."""
ODD_VALUES = [
    *(b"0", b"-1", b"5", b"1e200", b"1e999", b"NaN", b"-Infinity", b"9007199254740993", b"1" * 5000),
    *(b'""', b'"1"', b'"\\ud800"', b'"\\u0000"', b'"[red]x[/]\\u001b[2J"', b'"../../x"', b'"a text"', b"a,b", b"'"),
    *(b"null", b"true", b"[]", b"{}", b"[1]", b'{"a": 1}', b"[[[]]]", b"", b" ", b"\t", b"\xe9", b"\xff\xfe"),
    *(b"\x00", b"#"),
]


def damaged(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    """The content with one random change, and what that was; half the changes to gzip data are made to its text."""
    if content.startswith(b"\x1f\x8b") and draw.random() < 0.5:
        text, what = damaged(gzip.decompress(content), draw)
        return gzip.compress(text, 1), f"{what}, inside gzip"
    if not content:
        return draw.choice(ODD_VALUES), "something in an empty file"
    at = draw.randrange(len(content))
    values = list(VALUE.finditer(content[:2_000_000])) if b"\0" not in content else []
    lines = content.splitlines(keepends=True)
    ways = ["bit", "cut", "zeros"] + ["value"] * 5 * bool(values)
    ways += ["twice", "drop", "line"] * (len(lines) > 1 and b"\0" not in content)
    line, odd, bit = draw.randrange(len(lines)), draw.choice(ODD_VALUES), draw.randrange(8)
    value = draw.choice(values or [None])
    before, after = lines[:line], lines[line + 1 :]
    match draw.choice(ways):
        case "bit":
            return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :], f"bit {bit} of byte {at} flipped"
        case "cut":
            return content[:at], f"cut to {at} bytes"
        case "zeros":
            return content[:at] + bytes(16) + content[at + 16 :], f"16 zero bytes over byte {at}"
        case "value":
            what = f"{value[0][:40]!r} at byte {value.start()} became {odd[:40]!r}"
            return content[: value.start()] + odd + content[value.end() :], what
        case "twice":
            return b"".join([*lines[: line + 1], *lines[line:]]), f"line {line + 1} twice"
        case "drop":
            return b"".join(before + after), f"line {line + 1} dropped"
    return b"".join([*before, odd, b"\n", *after]), f"line {line + 1} became {odd[:40]!r}"


def damage_folder(folder: Path, seed: int) -> str:
    """Damage one file below a folder; the answer says which and how."""
    draw = random.Random(seed)
    path = draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    name = path.relative_to(folder).as_posix()
    match draw.choice(["content"] * 12 + ["copy", "delete", "folder", "empty"]):
        case "content":
            content, what = damaged(path.read_bytes(), draw)
            path.write_bytes(content)
            return f"{name}: {what}"
        case "copy":
            shutil.copy(path, path.with_name(f"{path.stem} 2{path.suffix}"))
            return f"{name}: copied beside itself as another file, as file synchronisers do"
        case "empty":
            path.write_bytes(b"")
            return f"{name}: emptied"
        case way:
            path.unlink()
            if way == "folder":
                path.mkdir()
            return f"{name}: {'became a folder' if way == 'folder' else 'deleted'}"


class Outcome(NamedTuple):
    """What became of one damaged copy: "refused" (a UserError), "same" (as undamaged), "other", or one of BAD."""

    seed: int
    damage: str
    kind: str
    told: str
    """The error's text, the answer or the traceback."""


class Reader:
    """A child process that reads folders; it is started again after a case that it did not survive."""

    def __init__(self):
        self._pool = None

    def read(self, read: Callable[[Path], Any], folder: Path) -> tuple[str, str]:
        """Call `read(folder)`, of a module that can be imported: "answer", "refused" or one of BAD, and its text."""
        if self._pool is None:
            self._pool = multiprocessing.get_context("spawn").Pool(1)
            self._pool.apply(own_peak_bytes)  # it is there
        try:
            kind, told, peak = self._pool.apply_async(_read, (read, folder)).get(LIMIT_S)
        except multiprocessing.TimeoutError:  # also of one that died
            kind, told, peak = "hang", f"not done after {LIMIT_S:g} s", LIMIT_BYTES
        if peak > 0.75 * LIMIT_BYTES:  # lest what many cases gather be taken for one case's
            self.close()
        return ("memory", f"{peak / 1e9:.1f} GB") if peak > LIMIT_BYTES else (kind, told)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None


def _read(read: Callable[[Path], Any], folder: Path) -> tuple[str, str, float]:
    warnings.simplefilter("ignore")
    try:
        answer = ("answer", repr(read(folder)))
    except BaseException as error:  # whatever it is, it is what the campaign looks for
        # the command line says the system's refusals in words: no such file, no right to read it
        refused = isinstance(error, UserError) or refusal(error)
        answer = ("refused", str(error)) if refused else ("traceback", traceback.format_exc())
    return *answer, own_peak_bytes()


def campaign(reader: Reader, read: Callable[[Path], Any], original: Path, seeds: range) -> list[Outcome]:
    """Damage a copy of `original` by each seed and read it; tracebacks, hangs and too much memory fail the test that
    asked, each with its seed and damage."""
    copy = original.with_name("damaged")  # the same path every time, so that answers compare
    outcomes, undamaged = [], None
    for seed in (None, *seeds):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(original, copy)
        damage = "" if seed is None else damage_folder(copy, seed)
        kind, told = reader.read(read, copy)
        if seed is None:
            assert kind == "answer", told
            undamaged = told
            continue
        if kind == "answer":
            kind = "same" if told == undamaged else "other"
        outcomes.append(Outcome(seed, damage, kind, told))
    print(dict(Counter(outcome.kind for outcome in outcomes)))
    bad = [outcome for outcome in outcomes if outcome.kind in BAD]
    assert not bad, f"{len(bad)} of {len(outcomes)}; one of them alone: LABKIT_SOAK=SEED:SEED+1\n" + "\n".join(
        f"seed {each.seed}, {each.damage}: {each.kind}\n{each.told[-1500:]}" for each in bad[:5]
    )
    return outcomes


def labkit(*argv: object) -> str:
    """What a command prints, its notes in front; for the child process.

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


def each_told(*reads: Callable[[], Any]) -> list:
    """What each says, or why it refuses: any of the files may be the damaged one."""
    told = []
    for read in reads:
        try:
            told.append(read())
        except UserError as error:
            told.append(str(error))
    return told
