"""Where a student stands, and what is handed in."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labkit.course.check import all_exercises
from labkit.course.explanation import Explanation
from labkit.course.guesses import first_guesses, ratio_error
from labkit.course.labs import LABS
from labkit.course.mylab import FOLDER
from labkit.course.progress import kept, progress_file
from labkit.errors import UserError

LEFT_OUT = ("checkpoint", "trace", ".ipynb_checkpoints")
"""Folders that are not handed in: large, and nobody grades them."""


def status() -> list[dict[str, Any]]:
    """A row a notebook: what is done of its exercises, which is next, and how good the guesses were."""
    right = {entry["name"] for entry in kept("attempt") if entry.get("right")}
    right |= {entry["name"] for entry in kept("explanation")}
    guessed, looked = first_guesses(), {entry["name"] for entry in kept("reference")}
    rows = []
    for lab in LABS:
        number = lab.notebook[:2]
        asked = [name for name in all_exercises() if name.startswith(f"{number}.")]
        factors = [
            ratio_error(made.value, made.truth) for name, made in guessed.items() if name.startswith(f"{number}.")
        ]
        rows.append(
            {
                "notebook": lab.notebook,
                "done": f"{len(right & set(asked))} of {len(asked)}",
                "next": next((name for name in asked if name not in right), ""),
                "explained": sum(isinstance(all_exercises()[name], Explanation) for name in right & set(asked)),
                "references seen": len(looked & set(asked)),
                "guesses within 2×": f"{sum(factor <= 2 for factor in factors)} of {len(factors)}" if factors else "",
            }
        )
    return rows


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
    if not list(notebooks.glob("[0-9]*.ipynb")):
        raise UserError(
            f"{notebooks}: there is no notebook such as 00_start_here.ipynb: name its folder with --notebooks."
        )
    sums, unfinished = {}, archive.with_name(f".{archive.name}.part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, path in _files(notebooks, runs):
            content = path.read_bytes()
            packed.writestr(name, content)
            sums[name] = hashlib.sha256(content).hexdigest()
        packed.writestr("manifest.json", json.dumps(sums, indent=1) + "\n")
    unfinished.replace(archive)
    return sums


def _files(notebooks: Path, runs: Path) -> Iterator[tuple[str, Path]]:
    """What is handed in: its name in the archive, and the file."""
    yield from ((path.name, path) for path in sorted(notebooks.glob("[0-9]*.ipynb")))
    yield from ((f"mylab/{path.name}", path) for path in sorted((notebooks / FOLDER).glob("*.py")))
    for path in sorted(runs.rglob("*")) if runs.is_dir() else []:
        inside = path.relative_to(runs)
        if path.is_file() and not set(LEFT_OUT) & set(inside.parts):
            yield f"runs/{inside.as_posix()}", path
    if progress_file().is_file():
        yield "progress.jsonl", progress_file()
