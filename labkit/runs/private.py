"""What a run folder, which is made to be passed on, does not say word for word: home folders and secrets.

A home folder is written as ~. What looks like a secret by its name (`--token X`, `api_key=X`, a key `password` of a
configuration, an environment variable `HF_TOKEN`) is written as ***. LABKIT_VERBATIM=1 keeps everything as it is.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from typing import Any

from labkit.errors import UserError

HIDDEN = "***"
ANYWHERE = {"password", "passwd", "passphrase", "secret", "secrets", "credential", "credentials", "bearer"}
"""A name with one of these words"""
LAST = {"auth", "authorization", "apikey"}
"""A name that ends in one of these words"""
KEYS = {"api", "access", "private", "secret", "ssh", "encryption", "auth"}
"""Before `key`"""
TOKENS = KEYS | {"", "hf", "hub", "github", "gh", "gitlab", "wandb", "refresh", "session", "user", "bot", "personal"}
"""Before `token`; of a text model, other words are"""
LEAST = 8
"""Characters of a secret that is looked for in other texts; a shorter one could be any word"""
FLAG = re.compile(r"(-{0,2})([A-Za-z_][\w.-]*)(?:=(.*))?", re.DOTALL)
IN_TEXT = re.compile(r"(?<![\w-])(--?[A-Za-z][\w.-]*(?:=|\s+)|[A-Za-z_][\w.-]*=)(\"[^\"]*\"|'[^']*'|[^\s'\",;)\]]+)")
IN_URL = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")


def is_secret(name: str, value: Any = "") -> bool:
    """Whether a setting looks like a secret.

    >>> [name for name in ("hf-token", "apiKey", "AUTH", "start_token", "max_tokens", "author") if is_secret(name)]
    ['hf-token', 'apiKey', 'AUTH']
    """
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().replace("-", "_").replace(".", "_").split("_")
    words = [word for word in words if word]
    if not words or not isinstance(value, str):  # a number is a setting
        return False
    before = words[-2] if len(words) > 1 else ""
    by_pair = {"key": KEYS, "token": TOKENS}.get(words[-1], ())
    return bool(ANYWHERE & set(words)) or words[-1] in LAST or before in by_pair


def shielded(value: Any) -> Any:
    """JSON-able data without home folders and secrets.

    >>> shielded({"arguments": ["--token", "abc", "--lr=0.1"], "train": {"password": "abc", "lr": 0.1}})
    {'arguments': ['--token', '***', '--lr=0.1'], 'train': {'password': '***', 'lr': 0.1}}
    """
    return value if os.environ.get("LABKIT_VERBATIM") == "1" else _shielded(value, _known_secrets())


def restored(value: Any) -> Any:
    """Data as `shielded` wrote it, with the home folder of now in place of ~."""
    if isinstance(value, dict):
        return {name: restored(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [restored(item) for item in value]
    if isinstance(value, str) and (homes := _homes()):
        return re.sub(r"(?<![^\s=:,'\"])~(?=[/\\]|$)", lambda _: homes[0], value)
    return value


def given_again(recorded: list[str], given: list[str], place: object) -> list[str]:
    """A script's recorded arguments, without the secrets among them that are given anew.

    Args:
        recorded: as the run's record has them.
        given: those of now, which come after them.
        place: of the record, for the error.

    Raises:
        UserError: a secret is not given.
    """
    kept, missing = [], []
    arguments = iter(restored(recorded))
    new = {argument.partition("=")[0] for argument in given}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and value == HIDDEN:
            missing += [name] if name not in new else []
        elif argument == HIDDEN and kept:
            flag = kept.pop()
            missing += [flag] if flag not in new else []
        else:
            kept.append(argument)
    if missing:
        raise UserError(
            f"{place}: the value of {', '.join(missing)} looks like a secret and was not kept: give it again, as in "
            f"--resume RUN -- {missing[0]} VALUE. LABKIT_VERBATIM=1 makes new runs keep such values."
        )
    return kept


def _shielded(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {
            name: _hidden(item) if is_secret(str(name), _first(item)) else _shielded(item, secrets)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return _shielded_arguments(list(value), secrets)
    return _shielded_text(value, secrets) if isinstance(value, str) else value


def _first(value: Any) -> Any:
    """Of a list, which may be one of secrets, the first item; a group of settings is judged by its own names."""
    return (
        (value[0] if value else None) if isinstance(value, list | tuple) else None if isinstance(value, dict) else value
    )


def _hidden(value: Any) -> Any:
    return [HIDDEN] * len(value) if isinstance(value, list | tuple) else HIDDEN


def _shielded_arguments(items: list[Any], secrets: tuple[str, ...]) -> list[Any]:
    """A list, which may be a command line: what follows the name of a secret is one."""
    found = []
    for item in items:
        before = FLAG.fullmatch(found[-1]) if found and isinstance(found[-1], str) and isinstance(item, str) else None
        if before and before[1] and before[3] is None and is_secret(before[2]) and not item.startswith("--"):
            found.append(HIDDEN)
        else:
            found.append(_shielded(item, secrets))
    return found


def _shielded_text(text: str, secrets: tuple[str, ...]) -> str:
    for home in _homes():
        if home in text:
            text = re.sub(rf"(?<![\w/.-]){re.escape(home)}(?![\w.-])", "~", text)
    for secret in secrets:
        if secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    if "=" in text or "-" in text:
        text = IN_TEXT.sub(
            lambda found: found[1] + (HIDDEN if is_secret(found[1].strip("-= \t\n")) else found[2]), text
        )
    return IN_URL.sub(HIDDEN, text) if "://" in text else text


def _known_secrets() -> tuple[str, ...]:
    """Those of this process' command line and environment: a message may quote them."""
    known = [value for name, value in os.environ.items() if is_secret(name, value)]
    for flag, value in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        if (found := FLAG.fullmatch(flag)) and found[1] and is_secret(found[2]):
            known.append(value if found[3] is None else found[3])
    # a folder in which secrets lie is none
    known = {each for each in known if len(each) >= LEAST and not each.startswith(("/", "~", "."))}
    return tuple(sorted(known, key=len, reverse=True))


@functools.cache
def _homes() -> tuple[str, ...]:
    """The home folder as it is named, and as links lead to it; none where it is the root, or unknown."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() fails where there is none
    return tuple(dict.fromkeys(each for each in (home, os.path.realpath(home)) if len(each) > 1 and each != "~"))
