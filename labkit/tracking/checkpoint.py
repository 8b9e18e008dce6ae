"""Checkpoints: written whole or not at all, read without running anything that is in them."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch

from labkit.errors import UserError
from labkit.runs.atomic import disk_full_as_user_error

FORMAT = 4
"""Up to 3, a checkpoint held a job of labkit's and not what a script keeps."""


class Checkpoints:
    """The two checkpoints of a run: the latest, to go on from, and the best on the validation split, to test.

    The latest is saved less often than the best. It says of which step the best was, and until it names a newer one
    the best that it names is kept, so that a run that was killed goes on with both as they were.
    """

    def __init__(self, run_folder: Path):
        folder = run_folder / "checkpoint"
        self.latest, self.best = folder / "latest.pt", folder / "best.pt"
        self._named_best = folder / "best-before.pt"
        self._best_is_named = False

    def save_best(self, content: dict[str, Any]) -> None:
        """Save the best; `content["position"]["step"]` is its step."""
        if self._best_is_named and not self._named_best.exists():
            _duplicate(self.best, self._named_best)
        self._best_is_named = False
        save_checkpoint(self.best, content)

    def save_latest(self, content: dict[str, Any]) -> None:
        """Save the latest; `content["position"]["best_step"]` names the best saved, or is None."""
        save_checkpoint(self.latest, content)
        self._best_is_named = content["position"]["best_step"] is not None
        self._named_best.unlink(missing_ok=True)

    def load_latest(self) -> dict[str, Any]:
        """Read the latest, and put back the best that it names."""
        content = load_checkpoint(self.latest)
        step = content["position"]["best_step"]
        if self._named_best.exists() and step_of(self._named_best) == step:
            self._named_best.replace(self.best)
        self._named_best.unlink(missing_ok=True)
        if step is None:
            self.best.unlink(missing_ok=True)
        self._best_is_named = step is not None
        return content


def step_of(path: Path) -> int | None:
    """The step that a checkpoint was saved after; None where there is no such file."""
    return load_checkpoint(path)["position"]["step"] if path.exists() else None


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write tensors and plain values to `path`, which holds either the old or the new checkpoint at every moment.

    Raises:
        UserError: the disk is full; the old checkpoint is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with disk_full_as_user_error(path.parent), temporary.open("wb") as file:
            torch.save({"format": FORMAT, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
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


def _duplicate(path: Path, other: Path) -> None:
    """Give a file that is only ever replaced a second name, or a copy where the file system has no links."""
    try:
        os.link(path, other)
    except OSError:
        temporary = other.with_name(f".{other.name}.{os.getpid()}")
        shutil.copyfile(path, temporary)
        temporary.replace(other)


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
