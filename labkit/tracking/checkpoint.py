"""Checkpoints: written whole or not at all, read without running anything that is in them."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch

from labkit.errors import UserError
from labkit.runs.atomic import disk_full_as_user_error, temporary_of

FORMAT = 4
"""Up to 3, a checkpoint held a job of labkit's and not what a script keeps."""


def step_of(path: Path) -> int | None:
    """The step that a checkpoint was saved after; None where there is no such file."""
    return load_checkpoint(path)["position"]["step"] if path.exists() else None


def save_checkpoints(contents: dict[Path, dict[str, Any]]) -> None:
    """Write tensors and plain values to each path; all hold their old checkpoints until all new ones are whole.

    Raises:
        UserError: the disk is full; the old checkpoints are still there.
    """
    written = {path: temporary_of(path) for path in contents}
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with disk_full_as_user_error(path.parent), written[path].open("wb") as file:
                torch.save({"format": FORMAT, **content}, file)
                file.flush()
                os.fsync(file.fileno())
        for path, temporary in written.items():
            temporary.replace(path)
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint, tensors on the CPU.

    Raises:
        UserError: the file is unreadable, holds more than tensors and plain values, or is of a newer labkit.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        written_as = content["format"]
    except (OSError, RuntimeError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise UserError(
            f"{path}: this checkpoint cannot be read ({type(error).__name__}): it was cut short or is none of "
            "labkit's. Start the run anew, or copy an intact checkpoint to that place."
        ) from error
    if written_as > FORMAT:
        raise UserError(
            f"{path}: this checkpoint has format {written_as} and this labkit reads up to {FORMAT}: upgrade labkit."
        )
    if written_as < FORMAT:
        raise UserError(
            f"{path}: this checkpoint has format {written_as}, of an older labkit, from which this one cannot go on: "
            "start a new run."
        )
    return content


def on_host(state: Any) -> Any:
    """A state dict with its tensors on the CPU, those that are there already copied by nobody."""
    if isinstance(state, torch.Tensor):
        return state.detach().cpu()
    if isinstance(state, dict):
        return {name: on_host(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(map(on_host, state))
    return state


def clone_into(weights: dict[str, torch.Tensor], copies: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies of weights on the CPU, made in the memory of older copies where these fit."""
    for name, tensor in weights.items():
        copy = copies.get(name)
        if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
            copies[name] = tensor.detach().to("cpu", copy=True)
        else:
            copy.copy_(tensor.detach())
    return copies
