"""The parameters of notebooks: which each has, checked before anything runs."""

from __future__ import annotations

import ast
import contextlib
import difflib
from pathlib import Path

from labkit.course.notebook_file import read_notebook
from labkit.errors import UserError


def check_parameters(notebooks: list[Path], parameters: dict[str, object]) -> dict[Path, dict[str, object]]:
    """What of the parameters each notebook takes; papermill would only warn of a name that none has.

    Raises:
        UserError: no notebook has a parameter of that name, or one has it with another type.
    """
    import papermill

    chosen, known = {}, {}
    for path in notebooks:
        read_notebook(path)  # which refuses a file that is none
        has = papermill.inspect_notebook(str(path))
        known |= has
        chosen[path] = {name: value for name, value in parameters.items() if name in has}
        for name, value in chosen[path].items():
            default = literal_default(path, name)
            number = isinstance(default, int | float) and isinstance(value, int | float)
            if default is not None and value is not None and not number and type(value) is not type(default):
                raise UserError(f"{path}: the parameter {name!r} is {value!r}, and has to be one such as {default!r}.")
    for name in parameters:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            where = notebooks[0] if len(notebooks) == 1 else "these notebooks"
            raise UserError(f"{where}: there is no parameter {name!r}. {hint}There are {', '.join(known) or 'none'}.")
    return chosen


def literal_default(path: Path, name: str) -> object:
    """The default of a notebook's parameter; None where it has none, or no literal."""
    for cell in read_notebook(path).cells:
        if "parameters" not in cell.metadata.get("tags", []):
            continue
        with contextlib.suppress(SyntaxError):  # magics are no Python
            for node in ast.parse(cell.source).body:
                if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
                    return node.value.value if isinstance(node.value, ast.Constant) else None
    return None
