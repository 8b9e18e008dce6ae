"""Profilers that are not here, as small scripts on PATH."""

from __future__ import annotations

import os
from pathlib import Path


def fake_tool(name: str, body: str, folder: Path, monkeypatch) -> Path:
    """Put a shell script on PATH before all else; its arguments go to `name.args`, one a line."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/sh\nfor part in "$@"; do echo "$part"; done > "$0.args"\n{body}\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return path


def arguments(tool: Path) -> list[str]:
    """What a fake tool was called with the last time."""
    return tool.with_name(f"{tool.name}.args").read_text().splitlines()
