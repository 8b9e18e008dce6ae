"""What a student has done, kept line by line on this machine: guesses, attempts, explanations and verdicts."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import platformdirs

from labkit.runs import timestamp


def progress_file() -> Path:
    """Where it is kept, across notebooks and days; LABKIT_COURSE names another folder."""
    folder = os.environ.get("LABKIT_COURSE")
    return (Path(folder) if folder else platformdirs.user_data_path("labkit") / "course") / "progress.jsonl"


def keep(kind: str, name: str, **facts: Any) -> None:
    """Add a line: what was done ("guess", "attempt", "reference", "explanation", "claim"), of which exercise."""
    path = progress_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"time": timestamp(), "kind": kind, "name": name, **facts}).encode() + b"\n"
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a crash cut the last line, which must not take this one with it
                line = b"\n" + line
        file.write(line)


def kept(kind: str, name: str | None = None) -> list[dict[str, Any]]:
    """The lines of a kind, oldest first; one that a crash cut short is left out."""
    path, lines = progress_file(), []
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("kind") == kind and isinstance(entry.get("name"), str):
                lines.append(entry)
    return [entry for entry in lines if name is None or entry["name"] == name]
