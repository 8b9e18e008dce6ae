"""Where a student stands, and what is handed in."""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit_course.checks import MYLAB
from labkit_course.notebook_file import code_cells, read_notebook
from labkit_course.progress import first_guesses, kept, progress_file, ratio_error

LEFT_OUT = ("checkpoint", "trace", ".ipynb_checkpoints", "__pycache__")
"""Folders that are not handed in: they are large, or nothing in them is graded."""


def status(notebooks: Path) -> list[dict[str, Any]]:
    """A row a notebook: what is done of its exercises and claims, which is next, and how good the guesses were."""
    done = {entry["name"] for entry in kept("attempt") if entry.get("right")}
    done |= {entry["name"] for kind in ("explanation", "claim") for entry in kept(kind)}
    guessed, looked = first_guesses(), {entry["name"] for entry in kept("reference")}
    rows = []
    for path in _notebooks(notebooks):
        source = "\n".join(cell.source for cell in code_cells(read_notebook(path)))
        asked = re.findall(r'^(?:check|explain|claim)\("([\w.]+)"', source, re.MULTILINE)
        own = [made for name, made in guessed.items() if name.startswith(f"{path.name[:2]}.")]
        near = sum(ratio_error(made.value, made.truth) <= 2 for made in own)
        rows.append(
            {
                "notebook": path.stem,
                "done": f"{len(done & set(asked))} of {len(asked)}",
                "next": next((name for name in asked if name not in done), ""),
                "references seen": len(looked & set(asked)),
                "guesses within 2×": f"{near} of {len(own)}" if own else "",
            }
        )
    return rows


def _notebooks(folder: Path) -> list[Path]:
    found = sorted(folder.glob("[0-9]*.ipynb"))
    if not found:
        raise UserError(
            f"{folder}: there is no notebook such as 00_start_here.ipynb: name its folder with --notebooks."
        )
    return found


def hand_in(notebooks: Path, runs: Path, archive: Path) -> int:
    """Pack notebooks, the student's modules, run folders and progress; return the number of files.

    Args:
        notebooks: the folder that the student worked in.
        runs: the folder of run folders; checkpoints and traces in it are left out.
        archive: the zip file to write; it appears when it is complete.

    Raises:
        UserError: there is no notebook, or the archive exists already.
    """
    if archive.exists():
        raise UserError(f"{archive}: this file exists: move it, or name another with --out.")
    found = _notebooks(notebooks)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{archive.name}.") as folder:
        packed = Path(folder, "packed")
        packed.mkdir()
        for path in [*found, *filter(Path.is_file, [progress_file()])]:
            shutil.copy(path, packed)
        for name, path in ((MYLAB.name, notebooks / MYLAB), ("runs", runs)):
            if path.is_dir():
                shutil.copytree(path, packed / name, ignore=shutil.ignore_patterns(*LEFT_OUT))
        Path(shutil.make_archive(str(Path(folder, "made")), "zip", packed)).replace(archive)
        return sum(path.is_file() for path in packed.rglob("*"))
