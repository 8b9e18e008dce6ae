"""A YAML file whose values know their lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from labkit.collocation.plan.job_settings import BY_THE_MODE
from labkit.collocation.plan.mistakes import Mistakes, did_you_mean
from labkit.errors import UserError

Node = yaml.Node
STANDARD = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp")}
NULL = "tag:yaml.org,2002:null"
MERGE = "tag:yaml.org,2002:merge"
BOOL = "tag:yaml.org,2002:bool"


class YamlFile:
    """The nodes of a file. Nothing is constructed from them but texts, so that no tag can run anything.

    A scalar is read as it was written: 0.80 stays "0.80", and 1e-3, a text in YAML 1.1, can be a number.
    """

    def __init__(self, path: Path, example: str):
        """Read it.

        Args:
            path: of the file.
            example: of what such a file holds, for errors.

        Raises:
            UserError: it cannot be read, or is no YAML.
        """
        self.path = path
        self.mistakes = Mistakes(str(path))
        try:
            self._loader = yaml.SafeLoader(path.read_text(encoding="utf-8-sig"))
            root = self._loader.get_single_node()
        except FileNotFoundError:
            raise UserError(f"There is no file {path}: check the path.") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8.") from None
        except RecursionError:
            raise UserError(f"{path}: its lists are nested too deep: a plan looks like\n{example}") from None
        except yaml.YAMLError as error:
            mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
            line = f", line {mark.line + 1}" if mark else ""
            raise UserError(
                f"{path}{line}: this is no YAML ({problem or error}): mend it; indent with spaces, and a plan looks "
                f"like\n{example}"
            ) from None
        if not isinstance(root, yaml.MappingNode):
            raise UserError(f"{path}: it holds no fields: a plan looks like\n{example}")
        self.root = root

    def place(self, node: Node) -> str:
        """File and line of a node."""
        return f"{self.path}, line {line(node)}"

    def fields(self, node: Node, place: str, known: tuple[str, ...] | None, example: str) -> dict[str, Node] | None:
        """The values of a mapping by name, without those that are empty; `<<` brings in those of another mapping.

        Args:
            node: of the mapping.
            place: of the item that it is, for mistakes.
            known: names that it may have, the only ones in the answer; None leaves that to the caller.
            example: of a field.

        Returns:
            None where it is no mapping, which is noted.
        """
        with self.mistakes.noting(place):
            fields = self._all_fields(node, example)
            for name in [name for name in fields if known is not None and name not in known]:
                wrong = fields.pop(name)
                what = BY_THE_MODE if name == "budget" else f"it is unknown: {did_you_mean(name, known)}"
                self.mistakes.add(self.place(wrong), what, within=f"field {name!r}")
            return fields
        return None

    def value(self, fields: dict[str, Node], name: str, read: Callable[[Node], Any], place: str | None = None) -> Any:
        """A field's value; None where it is absent, or wrong, which is noted.

        Args:
            fields: of a mapping.
            name: of the field.
            read: makes the value, or raises a UserError.
            place: of the item that the mapping is; None takes the field's own.
        """
        if name not in fields:
            return None
        own = self.place(fields[name])
        elsewhere = place is not None and not f"{place},".startswith(f"{own},")
        within = f"field {name!r}" + (f" (line {line(fields[name])})" if elsewhere else "")
        with self.mistakes.noting(place or own, within=within):
            return read(fields[name])
        return None

    def _all_fields(self, node: Node, example: str) -> dict[str, Node]:
        if not isinstance(node, yaml.MappingNode):
            raise UserError(f"{described(node)} stands where fields belong: write them as in {example}.")
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != MERGE]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UserError(f"field {twice[0]!r}: it stands there twice: leave one away.")
        try:
            self._loader.flatten_mapping(node)
        except yaml.YAMLError:
            raise UserError(
                "<< takes the fields of another part of the file: give it an alias, as in <<: *usual."
            ) from None
        return {text(key): value for key, value in node.value if value.tag != NULL}


def line(node: Node) -> int:
    """The line that a node begins in, from 1."""
    return node.start_mark.line + 1


def described(node: Node) -> str:
    """What a node is, in words."""
    if isinstance(node, yaml.ScalarNode):
        return repr(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "a group of fields"


def text(node: Node) -> str:
    """A single value, as it was written.

    Raises:
        UserError: it is a list or a mapping, or has a tag of its own.
    """
    if not isinstance(node, yaml.ScalarNode):
        raise UserError(f"{described(node)} stands where one value belongs: give one.")
    if node.tag not in STANDARD:
        raise UserError(f"{node.value!r} has the tag {node.tag}, which a plan does not know: leave the tag away.")
    return node.value


def items(node: Node) -> list[Node]:
    """The items of a list.

    Raises:
        UserError: it is none, or is empty.
    """
    if not isinstance(node, yaml.SequenceNode):
        raise UserError(f"{described(node)} stands where a list belongs: begin each item with a dash.")
    if not node.value:
        raise UserError("the list is empty: give at least one item.")
    return node.value


def truth(node: Node) -> bool:
    """Whether a value is true.

    Raises:
        UserError: it is neither true nor false.
    """
    if node.tag != BOOL:
        raise UserError(f"{described(node)} is neither: write true or false.")
    return node.value.lower() in ("true", "yes", "on")
