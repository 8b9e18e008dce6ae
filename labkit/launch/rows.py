"""Files in which a user plans runs: each field knows its line, and one error lists all that is wrong."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import yaml

from labkit import UserError, errors, hardware

MOST_COPIES = 1000
"""More copies of one job are a typing error: no device holds them."""
NUMBERS: dict[Any, tuple[Callable[[str], Any], Callable[[Any], bool], str, str]] = {
    int: (int, lambda _: True, "a whole number", "256"),
    float: (float, lambda _: True, "a number", "0.5"),
    "size": (hardware.parse_size, lambda _: True, "a size", "2GiB"),
    "count": (int, lambda number: number >= 1, "a whole number from 1", "3"),
    "copies": (int, lambda number: 1 <= number <= MOST_COPIES, f"a whole number from 1 to {MOST_COPIES}", "2"),
    "time": (float, lambda number: number >= 0, "a number of seconds from 0", "30"),
    "duration": (float, lambda number: number > 0, "a number of seconds above zero", "60"),
    "share": (float, lambda number: 0 < number <= 1, "a share of the device above 0 and up to 1", "0.5"),
}
"""How a number of a kind is read, whether it fits, what it is called, and an example"""
LONGEST = 52
"""Characters of a name before its number, of the 60 that a name may have"""

Kind = type | str | tuple[str, ...] | list["Kind"]
"""One of NUMBERS, str, "words" of a command line, the texts to choose from, "fields" for a row, Row for a list of rows;
in a list: one or more of it"""


class Row(dict[str, Any]):
    """The fields of a row by name, without empty ones: texts as they were written, lists, and such rows."""

    def __init__(
        self,
        fields: Mapping[str, Any] | Iterable[tuple[str, Any]],
        place: str,
        places: Mapping[str, str] = MappingProxyType({}),
    ):
        super().__init__(fields)
        self.place = place
        """A file and its line, or an item of --jobs"""
        self.places = places
        """Those of fields, by name, that are not `PLACE, field 'NAME'`"""


class Mistakes:
    """Collects what is wrong with a file, one line per error, so that all of it can be fixed at once."""

    def __init__(self, plan: str):
        self.plan = plan
        self.lines: list[str] = []

    def add(self, place: str, what: str) -> None:
        """Note what is wrong at a place, and how to fix it; several lines are several errors."""
        self.lines += [f"{place}: {line}" for line in what.splitlines()]

    def add_field(self, row: Row, name: str, what: str) -> None:
        """Note what is wrong with a field of a row."""
        self.add(row.places.get(name, f"{row.place}, field {name!r}"), what)

    @contextmanager
    def noting(self, row: Row, usual: str | None = None) -> Generator[None]:
        """Note a UserError that the block raises, and go on after the block.

        It is about the field that it names itself if the row has that, else about the usual one.
        """
        try:
            yield
        except UserError as error:
            name = error.field if usual is None or error.field in row else usual
            if name is None:
                self.add(row.place, str(error))
            else:
                self.add_field(row, name, str(error))

    def raise_if_any(self) -> None:
        """End here with all of them as a UserError, unless there were none."""
        lines = list(dict.fromkeys(self.lines))
        if len(lines) > 1:
            lines.insert(0, f"{self.plan}: {len(lines)} errors; nothing was started:")
        if lines:
            raise UserError("\n".join(lines))


def read_text(path: Path) -> str:
    """The text of a plan; a UserError where there is no such file, or it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"There is no file {path}: check the path.") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8.") from None


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


def read_setting(value: Any, kind: Kind) -> Any:
    """The value of a setting as the plan has it; a UserError where it is none of that kind.

    >>> read_setting("1e-3", float), read_setting("2GiB", "size")
    (0.001, 2147483648)
    """
    if kind is Row:
        if value == []:
            raise UserError("the list is empty: give at least one item.")
        if not isinstance(value, list) or not all(isinstance(each, Row) for each in value):
            raise UserError("this must be a list whose items have fields: begin each as in `- job: dlrm:tour`.")
        return value
    if kind == "fields":
        if not isinstance(value, Row) or not value.places:
            raise UserError("this must be fields: write each in a line of its own, as `name: value`.")
        return value
    if isinstance(kind, list):
        if value == []:
            raise UserError("the list is empty: give at least one value.")
        return [read_setting(each, kind[0]) for each in (value if isinstance(value, list) else [value])]
    if kind == "words" and isinstance(value, list):
        return [read_setting(each, str) for each in value]
    if not isinstance(value, str):
        what = "a list" if isinstance(value, list) else "a group of fields"
        raise UserError(f"this is {what}, and must be one value: give one.")
    if kind == "words":
        return split_words(value)
    if kind is str:
        if not value.strip():
            raise UserError("it is empty: give a value, or remove the field.")
        return value
    if isinstance(kind, tuple):
        if value not in kind:
            raise UserError(f"{value!r} is unknown: {errors.did_you_mean(value, kind)}")
        return value
    try:
        read, fits, words, example = NUMBERS[kind]
        number = read(value.strip())
    except ValueError:
        number = None
    # a number that is none, or without end, compares with nothing
    if number is None or not abs(number) < float("inf") or not fits(number):
        raise UserError(f"{value!r} is not {words}: write one, such as {example}.")
    return number


def read_settings(
    row: Row, kinds: Mapping[str, Kind], mistakes: Mistakes, elsewhere: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """The values of a row's fields, given the kinds of all possible fields; what is wrong is noted and left out.

    `elsewhere` says of fields that a user may look for here what to do instead.
    """
    values = {}
    for name, value in row.items():
        with mistakes.noting(row, name):
            if name not in kinds:
                raise UserError(elsewhere.get(name, f"it is unknown: {errors.did_you_mean(name, kinds)}"))
            values[name] = read_setting(value, kinds[name])
    return values


def safe_name(text: str) -> str:
    """A text as the name of a job, and so of a file.

    >>> safe_name("dlrm:tour"), safe_name("MPS shared gpu 1"), safe_name("../..")
    ('dlrm-tour', 'MPS-shared-gpu-1', 'job')
    """
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.+")[:LONGEST] or "job"


def numbered(names: Sequence[str]) -> list[str]:
    """The same names, with numbers where several are equal.

    >>> numbered(["dlrm-tour", "dlrm-tour", "speech-tour"])
    ['dlrm-tour-1', 'dlrm-tour-2', 'speech-tour']
    """
    once = {name for name, times in Counter(names).items() if times == 1}
    used, found = set(once), []
    for name in names:
        free = name if name in once else next(new for n in count(1) if (new := f"{name}-{n}") not in used)
        used.add(free)
        found.append(free)
    return found


class _Loader(yaml.SafeLoader):
    """Makes texts of scalars: 0.80 stays "0.80", and 1e-3, a text in YAML 1.1, can be a number."""

    yaml_implicit_resolvers: ClassVar = {  # ty: ignore[incompatible-attribute-override]  # the stubs call it an instance's
        first: [(tag, form) for tag, form in resolvers if tag.endswith((":merge", ":null"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def row(self, node: yaml.MappingNode) -> Row:
        """A mapping; `<<` brings in the fields of another, which its own replace."""
        names: list[Any] = []
        for key in (key for key, _ in node.value if not key.tag.endswith(":merge")):
            if key.value in names:
                raise yaml.MarkedYAMLError(problem=f"field {key.value!r} is given twice", problem_mark=key.start_mark)
            names.append(key.value)
        made = self.construct_mapping(node, deep=True)
        fields = {str(name): value for name, value in made.items() if value not in (None, "")}
        # by now the other's fields are among the node's own, each with its line
        places = {str(key.value): f"{_place(key)}, field {key.value!r}" for key, _ in node.value}
        return Row(fields, _place(node), places)


def _place(node: yaml.Node) -> str:
    return f"{node.start_mark.name}, line {node.start_mark.line + 1}"


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.row)


def read_yaml(path: Path, example: str) -> Row:
    """The fields of a YAML file; a UserError, with an example of such a file, where it is not YAML."""
    text = read_text(path)
    try:
        loader = _Loader(text)
        loader.name = str(path)
        found = loader.get_single_data()
    except (RecursionError, ValueError, yaml.YAMLError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(
            f"{path}{line}: this is not YAML ({problem or error}): fix it; indent with spaces, and a plan looks "
            f"like\n{example}"
        ) from None
    if not isinstance(found, Row):
        raise UserError(f"{path} has no fields: a plan looks like\n{example}")
    return found
