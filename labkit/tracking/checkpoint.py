"""Checkpoints: written whole or not at all, read without running anything that is in them."""

from __future__ import annotations

import hashlib
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import torch

from labkit.errors import UserError
from labkit.runs.atomic import disk_full_as_user_error, temporary_of

FORMAT = 4
"""Up to 3, a checkpoint held a job of labkit's and not what a script keeps."""
UNREADABLE = (
    *(OSError, RuntimeError, EOFError, LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError),
    *(pickle.UnpicklingError, struct.error, zipfile.BadZipFile),
)
"""What is raised by reading a damaged zip file, or by unpickling what is none of labkit's."""
DIGEST = b"sha256:"
"""What the comment at the end of a checkpoint, a zip file, begins with; the digest is of all bytes before it."""


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
            with disk_full_as_user_error(path.parent), written[path].open("w+b") as file:
                torch.save({"format": FORMAT, **content}, file)
                _add_digest(file)
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
        UserError: the file is damaged, holds more than tensors and plain values, or is of a newer labkit.
    """
    try:
        _check(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
        written_as = content["format"]
    except UNREADABLE as error:
        raise UserError(
            f"{path}: this checkpoint cannot be read ({type(error).__name__}: {error}): it was cut short or damaged, "
            "or is none of labkit's. Start the run anew, or copy an intact checkpoint to that place."
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


def _add_digest(file: BinaryIO) -> None:
    """Put the SHA-256 of a zip file that has just been written into its comment, which its readers pass over."""
    length = len(DIGEST) + 2 * hashlib.sha256().digest_size
    file.seek(-2, os.SEEK_END)  # the last two bytes are the length of the comment
    file.write(struct.pack("<H", length))
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    file.write(DIGEST + digest.encode())


def _check(path: Path) -> None:
    """Compare a checkpoint with its digest, or one of an older labkit, which has none, with the sums that zip keeps.

    torch.load does neither: of weights with a flipped bit it makes other weights.

    Raises:
        zipfile.BadZipFile: they differ, or it is no zip file. What else `UNREADABLE` names may be raised as well.
    """
    with zipfile.ZipFile(path) as archive:
        comment, damaged = archive.comment, None if archive.comment else archive.testzip()
    if comment:
        digest, left = hashlib.sha256(), path.stat().st_size - len(comment)
        with path.open("rb") as file:
            while left and (read := file.read(min(left, 2**20))):
                digest.update(read)
                left -= len(read)
        damaged = comment != DIGEST + digest.hexdigest().encode()
    if damaged:
        raise zipfile.BadZipFile("its content is not what was written")


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
