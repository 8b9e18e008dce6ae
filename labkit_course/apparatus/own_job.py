"""What stands around a student's code where jobs share a device: a model and batches, and a packing policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit import tracking
from labkit.data import clicks
from labkit.jobs import get_preset

if TYPE_CHECKING:
    from torch import nn

    from labkit.models import DlrmConfig
    from labkit.sharing import Admission, DeviceState, JobProfile


def small_dlrm(
    build: Callable[[DlrmConfig], nn.Module], data: str, batch_size: int, seed: int
) -> tuple[nn.Module, clicks.ClickBatches]:
    """A model with the sizes of preset `tour` for a click log, and the batches of its training split; torch is seeded.

    Args:
        build: makes the model, such as `mine("10.model")`.
        data: name of the click log, such as "synthetic-small".
        batch_size: rows of a batch.
        seed: of the model's first weights and of the order of the rows.
    """
    import torch

    from labkit.models import DlrmConfig

    torch.manual_seed(seed)
    log = clicks.load_clicks(data)
    model = build(DlrmConfig(len(log.dense_names), log.table_rows, **get_preset("dlrm", "tour").model))
    return model, clicks.ClickBatches(log.split("train"), batch_size=batch_size, seed=seed)


def train_clicks(build: Callable[[DlrmConfig], nn.Module], data: str, batch_size: int, epochs: int, seed: int) -> None:
    """Train `small_dlrm` for some epochs in a run of its own, and never evaluate it."""
    from torch.nn import functional as F
    from torch.optim import Adam

    model, batches = small_dlrm(build, data, batch_size, seed)
    optimizer = Adam(model.parameters(), lr=2e-3)
    with tracking.Run("my-job", seed=seed) as run:
        for _ in run.epochs(epochs):
            for dense, categorical, label in run.batches(batches):
                loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss, samples=len(label))


@dataclass(frozen=True)
class OwnPolicy:
    """A policy that is one function of what is believed, and knows nothing of what jobs cost each other."""

    name: str
    place: Callable[[int, float, list[tuple[float, list[float]]]], int | None]
    """From the memory (bytes) and the utilisation of a job, and for each device its free bytes (none where it is
    closed) and the utilisations of its jobs, to the position of the device, or None"""

    def choose(self, profile: JobProfile, states: Sequence[DeviceState], admission: Admission) -> int | None:
        """Like that of `labkit.sharing.packing.Policy`, without its admission."""
        seen = [
            (0 if state.closed else state.free_bytes, [each.utilisation for each in state.profiles]) for state in states
        ]
        return self.place(profile.memory_estimate_bytes, profile.utilisation, seen)
