"""Checkpoints: written as a whole or not at all, and read without running any code in them."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from labkit import UserError, runs

FORMAT = 5


def step_of(path: Path) -> int | None:
    """The step after which a checkpoint was saved; None if there is no such file."""
    return load_checkpoint(path)["position"]["step"] if path.exists() else None


def save_checkpoints(contents: dict[Path, dict[str, Any]]) -> None:
    """Write tensors and plain values to each path. All keep their old checkpoints until all new ones are whole."""
    written = {path: runs.temporary_of(path) for path in contents}
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with runs.disk_full_as_user_error(path.parent), written[path].open("wb") as file:
                torch.save({"format": FORMAT, **content}, file)
                file.flush()
                os.fsync(file.fileno())
        for path, temporary in written.items():
            temporary.replace(path)
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint, tensors on the CPU."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch.load does not verify its checksums
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"{damaged} has a wrong checksum")
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']} and this labkit reads {FORMAT}")
    except Exception as error:  # a damaged zip file or pickle can raise any error
        raise UserError(
            f"{path}: this checkpoint cannot be read ({type(error).__name__}: {error}), because it is damaged or from "
            "another version of labkit: resume with the version that wrote it, or start a new run."
        ) from error
    return content


def on_host(state: Any, *, copied: bool = False) -> Any:
    """A state dict with its tensors on the CPU; with `copied`, tensors already there are copied too."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().to("cpu", copy=copied), state)
