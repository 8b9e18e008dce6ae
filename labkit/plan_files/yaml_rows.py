"""YAML, read so that every row knows its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import yaml

from labkit.errors import UserError
from labkit.plan_files.rows import Row, read_text


class _Loader(yaml.SafeLoader):
    """Makes texts of scalars: 0.80 stays "0.80", and 1e-3, a text in YAML 1.1, can be a number."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, form) for tag, form in resolvers if tag.endswith((":merge", ":null"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def row(self, node: yaml.MappingNode) -> Row:
        """A mapping; `<<` brings in the fields of another, which its own replace."""
        names: list[Any] = []
        for key in (key for key, _ in node.value if not key.tag.endswith(":merge")):
            if key.value in names:
                raise yaml.MarkedYAMLError(
                    problem=f"field {key.value!r} stands there twice", problem_mark=key.start_mark
                )
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
    """The fields of a file; a UserError, with an example of what such a file holds, where it is no YAML."""
    text = read_text(path)
    try:
        loader = _Loader(text)
        loader.name = str(path)
        found = loader.get_single_data()
    except (RecursionError, ValueError, yaml.YAMLError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(
            f"{path}{line}: this is no YAML ({problem or error}): mend it; indent with spaces, and a plan looks "
            f"like\n{example}"
        ) from None
    if not isinstance(found, Row):
        raise UserError(f"{path}: it holds no fields: a plan looks like\n{example}")
    return found
