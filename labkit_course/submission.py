"""Where a student stands, and what is handed in."""

import json
import re
import shutil
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from labkit.errors import UserError, certain
from labkit.runs import timestamp
from labkit_course.checks import MYLAB
from labkit_course.notebook_file import code_cells, has_answers, notebooks_in, read_notebook
from labkit_course.progress import done, first_guesses, kept, progress_file, ratio_error

LEFT_OUT = ("checkpoint", "trace", ".ipynb_checkpoints", "__pycache__")
"""Folders that are not handed in: they are large, or nothing in them is graded."""


def status(notebooks: Path) -> list[dict[str, Any]]:
    """A row a notebook: what is done of its exercises and claims, which is next, and how good the guesses were."""
    guessed, looked = first_guesses(kept()), {entry["name"] for entry in kept("reference")}
    rows, finished = [], done()
    for path in notebooks_in(notebooks):
        asked = [name for name, _ in _asked(path)]
        own = [made for name, made in guessed.items() if name.startswith(f"{path.name[:2]}.")]
        near = sum(ratio_error(made.value, certain(made.truth)) <= 2 for made in own)
        rows.append(
            {
                "notebook": path.stem,
                "done": f"{len(finished & set(asked))} of {len(asked)}",
                "next": next((name for name in asked if name not in finished), ""),
                "references seen": len(looked & set(asked)),
                "guesses within 2×": f"{near} of {len(own)}" if own else "",
            }
        )
    return rows


def _asked(path: Path) -> list[tuple[str, bool]]:
    """What a notebook asks for, by name, and whether there is an answer."""
    found = []
    for above, cell in pairwise(code_cells(read_notebook(path))):
        if call := re.search(r'^(check|explain|claim)\("([\w.]+)"', cell.source, re.MULTILINE):
            answer = (above if call[1] == "check" else cell).source
            found.append(
                (call[2], not re.search(r"^ *(answer = \.\.\.|raise NotImplementedError)", answer, re.MULTILINE))
            )
    return found


def _damage(path: Path) -> list[str]:
    """What was done to the cells that nbgrader knows: it finds no points in one that is gone, and one of two copies."""
    named = [cell.metadata.get("nbgrader", {}).get("grade_id", "") for cell in code_cells(read_notebook(path))]
    gone = {re.sub("^answer-", "check-", name) for name in named} - set(named)
    copied = [name for name, count in Counter(filter(None, named)).items() if count > 1]
    return [f"{name} is gone: copy it from a new notebook" for name in sorted(gone)] + [
        f"{name} stands there more than once: only the last counts, so delete the others" for name in copied
    ]


def _number(path: Path) -> int | None:
    """The number whose questions a notebook drew; None if it draws none."""
    source = "\n".join(cell.source for cell in code_cells(read_notebook(path)))
    number = re.search(r"^student = (\d+)", source, re.MULTILINE)
    return int(number[1]) if number else None


def hand_in(notebooks: Path, runs: Path, archive: Path, lab: str = "", student: str = "") -> tuple[int, dict[str, Any]]:
    """Pack the notebooks that were worked in, the student's modules, run folders and progress.

    Args:
        notebooks: the folder that the student worked in.
        runs: the folder of run folders; checkpoints and traces in it are left out.
        archive: the zip file to write; it appears when it is complete.
        lab: the only one to pack, such as "60".
        student: who hands in.

    Returns:
        The number of files; what `submission.json` says: who, when, which number each notebook has, answers not given,
        cells that are gone or copied, and links, which are left out because they may lead anywhere.

    Raises:
        UserError: there is no notebook that was worked in, or the archive exists already.
    """
    if archive.exists():
        raise UserError(f"{archive}: this file exists: move it, or name another with --out.")
    found = [path for path in notebooks_in(notebooks) if lab in ("", path.name[:2]) and has_answers(path)]
    if not found:
        raise UserError(f"{notebooks}: no notebook{f' {lab}' if lab else ''} has an answer in it yet: save it first.")
    labs = {path.name[:2] for path in found}
    missing = {path.stem: [name for name, given in _asked(path) if not given] for path in found}
    said: dict[str, Any] = {
        "student": student,
        "handed_in": timestamp(),
        "numbers": {path.stem: _number(path) for path in found},
    }
    said["missing"] = {name: names for name, names in missing.items() if names}
    said["damage"] = {path.stem: damage for path in found if (damage := _damage(path))}
    said["links"] = []

    def ignored(place: str, names: list[str]) -> set[str]:
        paths = {name: Path(place, name) for name in names}
        odd = {name for name, path in paths.items() if path.is_symlink() or not (path.is_file() or path.is_dir())}
        said["links"] += [str(paths[name]) for name in sorted(odd)]
        return odd | shutil.ignore_patterns(*LEFT_OUT)(place, names)

    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{archive.name}.") as folder:
        packed = Path(folder, "packed")
        packed.mkdir()
        for path in found:
            shutil.copy(path, packed)
        if progress_file().is_file():
            (packed / progress_file().name).write_text(
                "".join(f"{json.dumps(entry)}\n" for entry in kept() if entry["name"][:2] in labs), encoding="utf-8"
            )
        for name, path in ((MYLAB.name, notebooks / MYLAB), ("runs", runs)):
            if path == notebooks / MYLAB and path.is_symlink():
                said["links"].append(str(path))
            elif path.is_dir():
                shutil.copytree(path, packed / name, ignore=ignored)
        (packed / "submission.json").write_text(json.dumps(said, indent=1), encoding="utf-8")
        Path(shutil.make_archive(str(Path(folder, "made")), "zip", packed)).replace(archive)
        return sum(path.is_file() for path in packed.rglob("*")), said
