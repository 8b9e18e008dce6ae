"""What a user asks for, and the settings it leads to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from labkit.errors import UserError
from labkit.training.config import TrainConfig
from labkit.training.metrics import CLICK_METRICS, SPEECH_METRICS, Target
from labkit.training.presets import Preset, get_preset

JOB_METRICS = {"dlrm": CLICK_METRICS, "speech": SPEECH_METRICS}

EVALUATIONS_AN_EPOCH = {"dlrm": 10, "speech": 3}
"""A crossing is known to within one evaluation, and each evaluation takes its share of the run."""

PATIENCE_EPOCHS = 3
"""Without a target, a run ends after this many epochs that brought nothing better."""

NO_TARGET = "none"
"""Asks for no target, where the dataset has one of its own"""

GOALS = {
    ("dlrm", "synthetic"): ("auc", 0.78),
    ("dlrm", "synthetic-small"): ("auc", 0.72),
    ("speech", "shipped"): ("cer", 0.05),
}
"""Targets of our own datasets: a little short of the best that the preset `tour` reaches on them."""


@dataclass(frozen=True)
class TrainRequest:
    """One `labkit train` command: what is not given follows from preset and data."""

    job: str
    """"dlrm" or "speech"."""
    data: str | None = None
    """A dataset's name or a path; None takes the preset's own."""
    schema: str | None = None
    """A schema file for `data`; dlrm only."""
    preset: str = "tour"
    target: str | None = None
    """Such as "0.78" or "log_loss=0.45"; "none" for none; None takes the dataset's own target, if it has one."""
    budget: str | None = None
    """A budget's name; None takes the whole machine."""
    device: str = "auto"
    """"auto", "cpu", "cuda" or "cuda:1"."""
    seed: int = 0
    batch_size: int | None = None
    optimiser: str | None = None
    """One of `config.OPTIMISERS`; another one than the preset's needs an `lr` of its own."""
    lr: float | None = None
    precision: str = "auto"
    compiled_tables: bool | None = None
    """Whether to update embedding tables with compiled kernels where they can be; None where they are faster."""
    max_seconds: float | None = None
    max_epochs: int | None = None
    on_bad_row: str = "error"
    """"error" or "skip"."""
    sample_hz: float | None = None
    """Telemetry samples a second; None takes the sampler's own."""

    def __post_init__(self):
        if self.job not in JOB_METRICS:
            raise UserError(f"job {self.job!r} is unknown: choose one of {', '.join(JOB_METRICS)}.")
        self.chosen_preset  # noqa: B018  an unknown preset is refused here
        if self.target is not None:
            self.parsed_target()
        if self.schema is not None and self.data is None:
            raise UserError(f"schema {self.schema!r} describes a file of yours: name that file too, with --data.")
        if self.sample_hz is not None:
            self._check_sample_hz()
        self._check_optimiser()

    def _check_sample_hz(self):
        from labkit.telemetry import LEAST_HZ, MOST_HZ  # imports Arrow, which a request does without

        if not LEAST_HZ <= self.sample_hz <= MOST_HZ:
            raise UserError(
                f"sample_hz is {self.sample_hz:g}: give a number of samples a second from {LEAST_HZ:g} to {MOST_HZ:g}, "
                "such as 10."
            )

    def _check_optimiser(self):
        usual = self.chosen_preset.train["optimiser"]
        if self.optimiser in (None, usual):
            return
        if self.lr is None:
            raise UserError(
                f"the learning rate of preset {self.preset!r} is for {usual}, and would not suit {self.optimiser}: "
                "give one with --lr."
            )
        if self.job == "speech" and self.optimiser == "rowwise-adagrad":
            raise UserError(
                "rowwise-adagrad is for the embedding tables of a DLRM, and a recogniser has none: "
                "choose --optimiser adagrad."
            )

    @property
    def chosen_preset(self) -> Preset:
        return get_preset(self.job, self.preset)

    @property
    def chosen_batch_size(self) -> int:
        return self.batch_size or self.chosen_preset.train["batch_size"]

    @property
    def data_name(self) -> str:
        """The dataset asked for, or the preset's own.

        Raises:
            UserError: neither is there.
        """
        name = self.data or self.chosen_preset.data
        if name is None:
            raise UserError(
                f"preset {self.preset!r} is made for a dataset that labkit does not ship: name yours with --data, "
                "or try the preset on --data synthetic."
            )
        return name

    def parsed_target(self) -> Target | None:
        """The target asked for, or the dataset's own, or None."""
        metrics = JOB_METRICS[self.job]
        if self.target == NO_TARGET:
            return None
        if self.target is not None:
            return Target.parse(self.target, default_metric=metrics[0], allowed=metrics)
        if (self.job, self.data_name) in GOALS:
            metric, value = GOALS[self.job, self.data_name]
            return Target.parse(f"{metric}={value}", default_metric=metric, allowed=metrics)
        return None

    def train_config(self, train_samples: int) -> TrainConfig:
        """Settings for a training split of `train_samples` samples."""
        settings: dict[str, Any] = dict(self.chosen_preset.train)
        for name in ("batch_size", "optimiser", "lr", "max_seconds", "max_epochs"):
            if getattr(self, name) is not None:
                settings[name] = getattr(self, name)
        target = self.parsed_target()
        evaluations = EVALUATIONS_AN_EPOCH[self.job]
        # for so many seconds and no target: then its length is all that matters
        to_the_end = target is not None or (self.target == NO_TARGET and self.max_seconds is not None)
        settings |= {
            "seed": self.seed,
            "precision": self.precision,
            "evaluate_every_samples": max(1, train_samples // evaluations),
            "target_metric": target.metric.name if target else JOB_METRICS[self.job][0],
            "target": target.value if target else None,
            "patience_evaluations": None if to_the_end else PATIENCE_EPOCHS * evaluations,
        }
        return TrainConfig(**settings)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainRequest:
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})
