"""Where a student stands, and what is handed in."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit_course.guesses import first_guesses, ratio_error
from labkit_course.mylab import FOLDER
from labkit_course.notebook_file import code_cells, read_notebook
from labkit_course.progress import kept, progress_file

LEFT_OUT = ("checkpoint", "trace", ".ipynb_checkpoints")
"""Folders that are not handed in: large, and nobody grades them."""


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


def hand_in(notebooks: Path, runs: Path, archive: Path) -> dict[str, str]:
    """Pack notebooks, the student's modules, run folders and progress, with a manifest of SHA-256 checksums.

    Args:
        notebooks: the folder that the student worked in.
        runs: the folder of run folders; checkpoints and traces in it are left out.
        archive: the zip file to write; it is not there before it is whole.

    Returns:
        Checksums by the names in the archive.

    Raises:
        UserError: there is no notebook, or the archive is there already.
    """
    if archive.exists():
        raise UserError(f"{archive}: this file exists: move it, or name another with --out.")
    files, sums, unfinished = [*_files(notebooks, runs)], {}, archive.with_name(f".{archive.name}.part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, path in files:
            content = path.read_bytes()
            packed.writestr(name, content)
            sums[name] = hashlib.sha256(content).hexdigest()
        packed.writestr("manifest.json", json.dumps(sums, indent=1) + "\n")
    unfinished.replace(archive)
    return sums


def _files(notebooks: Path, runs: Path) -> Iterator[tuple[str, Path]]:
    """What is handed in: its name in the archive, and the file."""
    yield from ((path.name, path) for path in _notebooks(notebooks))
    yield from ((f"mylab/{path.name}", path) for path in sorted((notebooks / FOLDER).glob("*.py")))
    for path in sorted(runs.rglob("*")) if runs.is_dir() else []:
        inside = path.relative_to(runs)
        if path.is_file() and not set(LEFT_OUT) & set(inside.parts):
            yield f"runs/{inside.as_posix()}", path
    if progress_file().is_file():
        yield "progress.jsonl", progress_file()
