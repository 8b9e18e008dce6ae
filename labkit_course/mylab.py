"""The student's own modules, `mylab/`: right code is kept there, and later labs take it from there."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from labkit.runs import replace_text

FOLDER = Path("mylab")
"""Below the notebook's folder, so that `from mylab.dlrm import MyDlrm` works in it."""
HEAD = '"""What I wrote; the checks of the course keep it here. Change it as you like, and check it again."""\n'


def cell_of(code: Callable) -> str | None:
    """The cell that defines a function or class; None where a file does."""
    parts = [code] if inspect.isfunction(code) else [getattr(each, "__func__", each) for each in vars(code).values()]
    made = [each for each in parts if inspect.isfunction(each)]
    name = made[0].__code__.co_filename if made else ""
    lines = [] if Path(name).is_file() else linecache.getlines(name)
    return "".join(line for line in lines if not re.match(r"\s*### (BEGIN|END) SOLUTION|[%!]", line)).strip() or None


def keep_code(name: str, module: str, code: Callable, works: Callable[[Any], None]) -> str:
    """Keep the cell of right code in its module; return a line that says where it is, or why not; none if no cell.

    Args:
        name: of the exercise, under which a later version replaces this one.
        works: is given the code as the module has it, and raises where it does not work there.
    """
    if (cell := cell_of(code)) is None:
        return ""
    path = FOLDER / f"{module}.py"
    head, sections = _parts(path)
    sections[name] = cell
    text = head + "".join(f"\n# --- {each}\n{sections[each]}\n" for each in sorted(sections))
    try:
        works(getattr(_module(module, text, path), code.__name__))
    except Exception as error:  # whatever the student's code raises
        why = f"{type(error).__name__}: {error}"
        return f"It is not kept for later labs, for its cell does not stand alone ({why}): import there what it uses.\n"
    FOLDER.mkdir(exist_ok=True)
    replace_text(path, text)
    return f'It is kept in {path}; `mine("{name}")` finds it there.\n'


def load(module: str, attribute: str) -> Any:
    """What the student's module has under that name.

    Raises:
        AttributeError, OSError: it has none, or there is no such module.
        Exception: whatever the module raises.
    """
    path = FOLDER / f"{module}.py"
    return getattr(_module(module, path.read_text(encoding="utf-8"), path), attribute)


def _parts(path: Path) -> tuple[str, dict[str, str]]:
    """What stands at the head of a module, and what is kept below it, by exercise."""
    text = path.read_text(encoding="utf-8") if path.is_file() else HEAD
    head, *parts = re.split(r"^# --- (\d\d\.\w+)\n", text, flags=re.MULTILINE)
    return head.rstrip() + "\n", {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _module(name: str, text: str, path: Path) -> ModuleType:
    made = ModuleType(f"mylab.{name}")
    made.__file__ = str(path)
    exec(compile(text, str(path), "exec"), vars(made))
    return made
