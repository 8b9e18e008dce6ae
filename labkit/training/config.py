"""How to train: everything the loop needs to know that is not data or model."""

from __future__ import annotations

from dataclasses import dataclass

from labkit.errors import UserError, with_flag

PRECISIONS = ("auto", "fp32", "bf16")
OPTIMISERS = ("sgd", "adagrad", "rowwise-adagrad", "adam")
SCHEDULES = ("constant", "cosine")
FLAGS = ("batch_size", "optimiser", "lr", "max_epochs", "max_seconds", "seed")
"""Settings that are flags of `labkit train`, too."""


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one training run."""

    seed: int = 0
    """Seeds weights, data order and dropout."""
    batch_size: int = 2048
    """Samples (click log rows, utterances) a step."""
    optimiser: str = "adam"
    """"sgd", "adagrad", "rowwise-adagrad" (for tables; Adagrad for the rest) or "adam"."""
    lr: float = 1e-3
    """Learning rate after warm-up."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises linearly from zero."""
    schedule: str = "constant"
    """"constant", or "cosine": the learning rate falls to zero along half a cosine over max_epochs."""
    grad_clip_norm: float | None = None
    """Largest L2 norm of all gradients together; None leaves them."""
    precision: str = "auto"
    """"fp32", "bf16" (autocast), or "auto": the faster one on this device."""
    evaluate_every_samples: int = 100_000
    """Training samples between two evaluations of the validation split."""
    target: float | None = None
    """Value of `target_metric` at which to stop; None trains until an end below."""
    target_metric: str = "auc"
    """The metric that is watched, for the target and for the best checkpoint."""
    confirm_evaluations: int = 2
    """Evaluations in a row at or past the target that make a crossing a sustained one, and end the run."""
    patience_evaluations: int | None = None
    """Evaluations without a better value after which the run ends; None never does."""
    max_epochs: int = 10
    """Passes over the training split after which the run ends."""
    max_seconds: float | None = None
    """Wall-clock seconds of training and evaluation after which the run ends."""

    def __post_init__(self):
        for name in ("batch_size", "evaluate_every_samples", "max_epochs", "confirm_evaluations"):
            if getattr(self, name) < 1:
                raise UserError(f"{_named(name)} is {getattr(self, name)}: give a whole number of at least 1.")
        for name in ("lr", "max_seconds", "grad_clip_norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise UserError(f"{_named(name)} is {value}: give a number above 0.")
        if self.precision not in PRECISIONS:
            raise UserError(f"precision {self.precision!r} is unknown: choose one of {', '.join(PRECISIONS)}.")
        if self.optimiser not in OPTIMISERS:
            raise UserError(
                f"{_named('optimiser')} is {self.optimiser!r}, which is unknown: choose one of {', '.join(OPTIMISERS)}."
            )
        if self.schedule not in SCHEDULES:
            raise UserError(f"schedule {self.schedule!r} is unknown: choose one of {', '.join(SCHEDULES)}.")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"{with_flag('seed')} is {self.seed}: give a whole number from 0 to 2^63 - 1.")


def _named(name: str) -> str:
    return with_flag(name) if name in FLAGS else name
