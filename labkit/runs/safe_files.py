"""Files that are whole at every moment, without home folders and secrets; and notes on what readers left out."""

import contextlib
import contextvars
import errno
import functools
import os
import re
import shutil
import sys
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

from labkit import UserError


@contextlib.contextmanager
def disk_full_as_user_error(folder: Path) -> Generator[None]:
    """Turn "no space left", or a file beyond its size limit, into a UserError that names the folder and the fix."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if not is_disk_full(error):
            raise
        what = f"the disk is full ({shutil.disk_usage(folder).free / 2**20:.0f} MiB free)"
        fix = "Free some space or choose a folder on another disk"
        if is_disk_full(error, errno.EFBIG):
            what, fix = "a file here would be larger than this process may write", "Raise the limit (`ulimit -f`)"
        raise UserError(
            f"{folder}: {what}; everything written before is intact. {fix}, then try again; a run that stopped here "
            "continues with --resume."
        ) from error


def is_disk_full(error: BaseException | None, *numbers: int) -> bool:
    """Whether an error, or its cause, says that no more can be written; `numbers` (errno) are those that say so."""
    # torch.save wraps the system's error in a RuntimeError of its own
    return error is not None and (
        getattr(error, "errno", None) in (numbers or (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
        or is_disk_full(error.__cause__ or error.__context__, *numbers)
    )


def temporary_of(path: Path) -> Path:
    """Path where this process writes the new content of a file."""
    return path.with_name(f".{path.name}.{os.getpid()}")


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A path for the new content of a file, whose place it takes when the block has ended well.

    Raises:
        UserError: the disk is full.
    """
    temporary = temporary_of(path)
    try:
        with disk_full_as_user_error(path.parent):
            yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a text file in one step: a reader sees the old or the new content, even after a crash."""
    if path.exists() and not path.is_file():  # a pipe or a device, such as /dev/stdout, has no old content
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()  # a link stays one
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        if path.exists():
            shutil.copymode(path, temporary)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


_collected: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("notes", default=None)


def note_left_out(path: Path, why: str) -> None:
    """Warn, once, that a run, a part or a line is left out."""
    note = why if why.startswith(str(path)) else f"{path}: {why}"
    notes = _collected.get()
    if notes is not None and note not in notes:
        notes.append(note)
    warnings.warn(f"left out: {note}", stacklevel=2)


@contextlib.contextmanager
def notes_kept() -> Generator[list[str]]:
    """Collect the notes of the block as well, for a page that is read elsewhere."""
    notes: list[str] = []
    token = _collected.set(notes)
    try:
        yield notes
    finally:
        _collected.reset(token)


HIDDEN = "***"
SECRET = re.compile(
    r"(?:^|_)(?:passw(?:or)?d|passphrase|secrets?|credentials?|bearer)(?:_|$)|(?:^|_)(?:auth|authorization|apikey)$"
    r"|(?:^|_)(?:api|access|private|ssh|encryption|auth)_(?:key|token)$"
    r"|^token$|(?:^|_)(?:hf|hub|github|gh|gitlab|wandb|refresh|session|user|bot|personal)_token$"
    r"|(?:api|auth|service|account|db|database|priv|client|wandb|comet|openai|aws|azure|signing)_?key$"
    r"|(?:^|_)pwd$|_pass$|^(?:pat|dsn|cookie)$|connection_string$"
)
"""Names of secrets, in snake_case. A text model's settings have other words before `token`."""
LEAST = 8
"""Shortest secret, in characters, that is looked for in other texts; a shorter one could be any word."""
IN_TEXT = re.compile(r"(?<![\w-])(--?[A-Za-z][\w.-]*(?:=|\s+)|[A-Za-z_][\w.-]*=)(\"[^\"]*\"|'[^']*'|[^\s'\",;)\]&]+)")
IN_URL = re.compile(r"(?<=://)(?:[^/\s:@]+:[^/\s@]+|[^/\s:@]{12,})(?=@)")
"""A name with its password, or a token without a name"""
IN_QUERY = re.compile(r"(?<=[?&])((?:sig|signature|token|key|code|auth|x-amz-[\w-]+)=)[^&\s'\"]+", re.IGNORECASE)
IN_HEADER = re.compile(r"(?i)\b(authorization['\"]?\s*[:=]\s*['\"]?(?:\w+\s+)?|bearer\s+|cookie:\s*)[^\s'\"]+")
SHORT_NAMES = {"key", "sig", "signature", "auth", "code", "pat"}
"""Names that mean a secret only where the value looks drawn at random"""
DRAWN = re.compile(r"(?=\S*[A-Za-z])(?=\S*\d)[\w+/=.-]{12,}")
LIKE_A_TOKEN = re.compile(r"\b(?=\w*\d)(?=\w*[g-zA-Z])\w{20,}|xox|eyJ|PRIVATE KEY|hooks\.slack")
"""What the patterns of known tokens are tried on: they come with a library that takes a moment to load"""


def is_secret(name: str) -> bool:
    """Whether a setting looks like a secret, by its name.

    >>> [name for name in ("hf-token", "apiKey", "AUTH", "max_tokens", "author", "keys") if is_secret(name)]
    ['hf-token', 'apiKey', 'AUTH']
    """
    snake = re.sub(r"([a-z])([A-Z])", r"\1_\2", name)
    return SECRET.search(re.sub(r"[-._]+", "_", snake).strip("_").lower()) is not None


def shielded(value: Any) -> Any:
    """JSON-able data without home folders and secrets, because run folders are made to be shared.

    The home folder is written as ~. A value whose name looks like a secret (`--token X`, `api_key=X`, a configuration
    key `password`, an environment variable `HF_TOKEN`) is written as ***. LABKIT_VERBATIM=1 keeps everything as it is.

    >>> shielded({"arguments": ["--token", "abc", "--lr=0.1"], "train": {"password": "abc", "lr": 0.1}})
    {'arguments': ['--token', '***', '--lr=0.1'], 'train': {'password': '***', 'lr': 0.1}}
    """
    return value if os.environ.get("LABKIT_VERBATIM") == "1" else _shielded(value, _known_secrets())


def restored(value: Any) -> Any:
    """Data that `shielded` wrote, with the current home folder for ~."""
    if isinstance(value, dict):
        return {name: restored(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [restored(item) for item in value]
    if isinstance(value, str) and (homes := _homes()):
        return re.sub(r"(?<![^\s=:,'\"])~(?=[/\\]|$)", lambda _: homes[0], value)
    return value


def given_again(recorded: list[str], given: list[str], place: object) -> list[str]:
    """A script's recorded arguments, without those that are secrets, which must be in `given`.

    Raises:
        UserError: a secret is missing; the text names the `place` of the record.
    """
    kept, hidden = [], []
    for argument in restored(recorded):
        name, _, value = argument.partition("=")
        if value == HIDDEN:
            hidden.append(name)
        elif argument == HIDDEN and kept:
            hidden.append(kept.pop())
        else:
            kept.append(argument)
    if missing := [name for name in hidden if name not in {argument.partition("=")[0] for argument in given}]:
        raise UserError(
            f"{place}: the value of {', '.join(missing)} looks like a secret, so it was not saved: give it again, as "
            f"in --resume RUN -- {missing[0]} VALUE. With LABKIT_VERBATIM=1, new runs save such values."
        )
    return kept


def _shielded(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, dict):
        return {
            # a number is no secret, and a section is judged by the names in it
            name: HIDDEN if _is_hidden(str(name), item) else _shielded(item, secrets)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):  # this may be a command line
        hidden = [_is_value_of(flag, item) for flag, item in zip([None, *value], value, strict=False)]
        return [HIDDEN if hide else _shielded(item, secrets) for hide, item in zip(hidden, value, strict=True)]
    return _shielded_text(value, secrets) if isinstance(value, str) else value


def _is_hidden(name: str, item: Any) -> bool:
    if isinstance(item, str) and name.lower() in SHORT_NAMES:
        return DRAWN.fullmatch(item) is not None
    return is_secret(name) and isinstance(item, str | list | tuple)


@functools.cache
def _token_patterns() -> list[re.Pattern]:
    """Patterns of the tokens of known services."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    kinds = get_mapping_from_secret_type_to_class()
    known = [kinds[name] for name in sorted(kinds) if issubclass(kinds[name], RegexBasedDetector)]
    return [each for kind in known if kind.secret_type != "Public IP (ipv4)" for each in kind.denylist]


def _is_value_of(flag: Any, item: Any) -> bool:
    """Whether an argument is the value of the flag before it, and that flag names a secret."""
    are_words = isinstance(flag, str) and isinstance(item, str)
    return are_words and flag.startswith("-") and "=" not in flag and is_secret(flag) and not item.startswith("--")


def _shielded_text(text: str, secrets: list[str]) -> str:
    for home in _homes():
        if home in text:
            text = re.sub(rf"(?<![\w/.-]){re.escape(home)}(?![\w.-])", "~", text)
    for secret in secrets:
        if secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    if "=" in text or "-" in text:
        text = IN_TEXT.sub(
            lambda found: found[1] + (HIDDEN if _is_hidden(found[1].strip("-= \t\n"), found[2]) else found[2]), text
        )
    if "://" in text:
        text = IN_QUERY.sub(rf"\1{HIDDEN}", IN_URL.sub(HIDDEN, text))
    text = IN_HEADER.sub(rf"\1{HIDDEN}", text)
    for pattern in _token_patterns() if LIKE_A_TOKEN.search(text) else ():
        text = pattern.sub(HIDDEN, text)
    return text


def _known_secrets() -> list[str]:
    """Secrets on this process' command line and in its environment, which a message may quote."""
    known = {value for name, value in os.environ.items() if is_secret(name)}
    for flag, value in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        name, equals, its_value = flag.partition("=")
        if name.startswith("-") and is_secret(name):
            known.add(its_value if equals else value)
    # a path to a secret is not a secret
    known = {each for each in known if len(each) >= LEAST and not each.startswith(("/", "~", "."))}
    return sorted(known, key=len, reverse=True)


@functools.cache
def _homes() -> tuple[str, ...]:
    """The home folder by its name and by its real path; empty if it is the root or unknown."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() fails where there is none
    return tuple(dict.fromkeys(each for each in (home, os.path.realpath(home)) if len(each) > 1 and each != "~"))
