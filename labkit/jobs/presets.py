"""Presets: the shape of a model and how to train it, by name; targets of our own datasets."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labkit import UserError, errors, tracking


@dataclass(frozen=True)
class Preset:
    """What a preset fixes; the data fixes the rest (features, table sizes, alphabet)."""

    name: str
    model: dict[str, Any]
    """Fields of DlrmConfig or SpeechConfig"""
    train: dict[str, Any]
    """Settings of the job where none are given"""
    max_num_rows: int | None = None
    """Most rows of an embedding table, into which larger vocabularies are hashed; None: the data's own sizes"""
    data: str | None = None
    """Dataset that it is made for, used where none is named"""
    words: str = ""
    """Its purpose, in the commands' help"""

    def __str__(self) -> str:
        return f"{self.name} ({self.words})" if self.words else self.name


def _by_name(*presets: Preset) -> dict[str, Preset]:
    return {preset.name: preset for preset in presets}


def _dlrm(name: str, bottom: tuple, top: tuple, train: tuple, **more: Any) -> Preset:
    """The bottom MLP ends with the embedding's dimension; `train` is batch size, optimiser and learning rate."""
    model = {"embedding_dim": bottom[-1], "bottom_mlp": bottom, "top_mlp": (*top, 1)}
    return Preset(name, model, dict(zip(("batch_size", "optimiser", "lr"), train, strict=True)), **more)


DLRM_PRESETS = _by_name(
    # labkit's own: reaches its target in seconds on two CPU cores
    _dlrm("tour", (64, 16), (128, 64), (512, "adam", 2e-3), data="synthetic"),
    # facebookresearch/dlrm, bench/*.sh
    _dlrm("kaggle", (512, 256, 64, 16), (512, 256), (128, "sgd", 0.1)),
    _dlrm("terabyte", (512, 256, 64), (512, 512, 256), (2048, "sgd", 0.1), max_num_rows=10_000_000),
    _dlrm("mlperf-v1", (512, 256, 128), (1024, 1024, 512, 256), (2048, "sgd", 1.0), max_num_rows=40_000_000),
    _dlrm("benchmark", (512, 64), (1024, 1024, 1024), (2048, "sgd", 0.1), data="synthetic-benchmark"),
)


def _budget_m5(name: str, narrower: int) -> Preset:
    """The recogniser of Baunsgaard et al., ADMS 2020 (arXiv 2003.12366): a convolution, then five layers of LSTMs.

    A narrower one has the same layers, each narrower by this factor. Training follows the paper's repository: AdaDelta
    at a learning rate of 1.0 without clipping (defaults of AM.py, which no script overrides).
    """
    shape = {"kind": "lstm", "layers": 5, "kernel": 11, "strides": (2,), "dropout": 0.05}
    model = shape | {"channels": 600 // narrower, "hidden": 800 // narrower}
    words = f"the paper's, {narrower} times narrower" if narrower > 1 else "the paper's, for a GPU"
    return Preset(name, model, {"batch_size": 96, "optimiser": "adadelta", "lr": 1.0}, data="shipped", words=words)


ADAM = {"optimiser": "adam", "clip_norm": 5.0}
IMAGES = {"strides": (3, 1, 1), "maps": (8, 24, 32)}
AUGMENTED = {"mask_bins": 8, "mask_frames": 6, "speed": 0.1, "tract": 0.1}
STRONGER = AUGMENTED | {"speed": 0.15, "tract": 0.15}
SPEECH_PRESETS = _by_name(
    # labkit's own: residual convolutions, small enough to reach their target in seconds on two CPU cores; for its
    # accuracy on voices outside the training data see docs/performance.md
    Preset(
        "tour",
        {"kind": "conv", "channels": 64, "layers": 4, "kernel": 7, "dropout": 0.2} | IMAGES | AUGMENTED,
        ADAM | {"batch_size": 32, "lr": 4e-3, "schedule": "cosine", "warmup_steps": 50, "max_epochs": 12},
        data="shipped",
        words="learns in seconds",
    ),
    # for readers with minutes to spare: wider, with stronger augmentation
    Preset(
        "digits-large",
        {"kind": "conv", "channels": 96, "layers": 4, "kernel": 7, "dropout": 0.3, "noise": 0.2} | IMAGES | STRONGER,
        ADAM | {"batch_size": 32, "lr": 4e-3, "schedule": "cosine", "warmup_steps": 100, "max_epochs": 40},
        data="shipped",
        words="four minutes and more",
    ),
    _budget_m5("budget-m5", 1),
    _budget_m5("budget-m5-mini", 8),
    # after DeepSpeech2 (Amodei et al., ICML 2016): convolutions, then recurrent layers in both directions
    Preset(
        "deepspeech2-mini",
        {"kind": "bilstm", "channels": 64, "layers": 3, "hidden": 96, "kernel": 11, "dropout": 0.1},
        ADAM | {"batch_size": 32, "lr": 1e-3, "warmup_steps": 100},
        data="shipped",
        words="minutes",
    ),
)


GOALS = {
    ("dlrm", "synthetic"): "auc >= 0.78",
    ("dlrm", "synthetic-small"): "auc >= 0.72",
    ("speech", "shipped"): "cer <= 0.05",
}
"""Targets of our own datasets, a little below the best that preset `tour` reaches on them"""
NO_TARGET = "none"
"""The text that asks for no target where the dataset has one of its own"""


def chosen_target(
    job: str, metrics: Sequence[str], data: str, asked: "tracking.Target | str | float | None"
) -> "tracking.Target":
    """The target asked for, or the dataset's own, or the first metric without a value to reach.

    Asked is a number, of the first metric, or a text such as "0.78", "log_loss=0.45", "log_loss <= 0.45" or "none".

    >>> str(chosen_target("dlrm", ("auc", "log_loss"), "synthetic", "log_loss=0.45"))
    'log_loss <= 0.45'
    """
    if isinstance(asked, tracking.Target):
        return asked
    if isinstance(asked, dict):
        return tracking.Target.from_json(asked)
    watched = f"{'max' if tracking.METRICS[metrics[0]].higher_is_better else 'min'} {metrics[0]}"
    if asked in (None, NO_TARGET, watched):
        return tracking.Target.parse(watched if asked else GOALS.get((job, data), watched))
    parts = re.fullmatch(r"(?s)(?:\s*(\w+)\s*([<>]=?|=))?(.*)", str(asked))
    name, operator, number = errors.certain(parts).groups()
    name = name or metrics[0]
    if name not in metrics:
        known = f"choose one of {', '.join(metrics)}"
        raise UserError(f"target: metric {name!r} is not one that this job measures: {known}.", field="target")
    try:
        float(number)
    except ValueError:
        example = 0.8 if tracking.METRICS[metrics[-1]].higher_is_better else 0.1
        fix = f"write a value such as 0.78, or a metric and a value such as {metrics[-1]}={example}."
        raise errors.wrong_value("target", repr(asked), fix) from None
    if operator in (None, "="):
        operator = ">=" if tracking.METRICS[name].higher_is_better else "<="
    return tracking.Target.parse(f"{name} {operator} {number}")
