"""Losses on their way to the host: a loss on a GPU is copied beside the training, and read when it has arrived."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from labkit.errors import UserError
from labkit.tracking.crossings import Point


class Losses:
    """Takes the loss of each step and gives back those that have reached the host, in order."""

    def __init__(self) -> None:
        self._on_their_way: deque[tuple[torch.Tensor, torch.cuda.Event | None, Point]] = deque()

    def take(self, loss: Any, point: Point) -> None:
        """Take a step's loss: a tensor of one number, on any device, or a number.

        Raises:
            UserError: it is neither.
        """
        if not isinstance(loss, torch.Tensor):
            loss = torch.tensor(float(loss), dtype=torch.float64)
        if loss.numel() != 1:
            raise UserError(
                f"run.step got a loss of shape {tuple(loss.shape)}: give the one number of this step, for example "
                "loss.mean()."
            )
        host, arrived = loss.detach(), None
        if loss.is_cuda:
            host = torch.empty(loss.shape, dtype=loss.dtype, pin_memory=True)
            host.copy_(loss.detach(), non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(torch.cuda.current_stream(loss.device))  # which need not be the current device
        self._on_their_way.append((host, arrived, point))

    def arrived(self, *, wait: bool = False) -> list[tuple[float, Point]]:
        """Those that are on the host by now; with `wait`, all."""
        found = []
        while self._on_their_way:
            host, arrived, point = self._on_their_way[0]
            if arrived is not None:
                if wait:
                    arrived.synchronize()
                elif not arrived.query():
                    break
            self._on_their_way.popleft()
            found.append((float(host), point))
        return found
