"""Presets: the shape of a model and how to train it, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit.errors import UserError


@dataclass(frozen=True)
class Preset:
    """What a preset fixes; the data fixes the rest (features, table sizes, alphabet)."""

    name: str
    source: str
    """Where the shape comes from."""
    model: dict[str, Any]
    """Fields of DlrmConfig or SpeechConfig."""
    train: dict[str, Any]
    """Fields of TrainConfig."""
    max_num_rows: int | None = None
    """Largest embedding table; larger vocabularies are hashed into it. None keeps the data's own sizes."""
    data: str | None = None
    """The dataset it is made for, used where none is named."""


FACEBOOK = "facebookresearch/dlrm, bench/*.sh"

DLRM_PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "tour",
            "labkit: reaches its target in seconds on two CPU cores",
            model={"embedding_dim": 16, "bottom_mlp": (64, 16), "top_mlp": (128, 64, 1)},
            train={"batch_size": 512, "optimiser": "adam", "lr": 2e-3},
            data="synthetic",
        ),
        Preset(
            "kaggle",
            FACEBOOK,
            model={"embedding_dim": 16, "bottom_mlp": (512, 256, 64, 16), "top_mlp": (512, 256, 1)},
            train={"batch_size": 128, "optimiser": "sgd", "lr": 0.1},
        ),
        Preset(
            "terabyte",
            FACEBOOK,
            model={"embedding_dim": 64, "bottom_mlp": (512, 256, 64), "top_mlp": (512, 512, 256, 1)},
            train={"batch_size": 2048, "optimiser": "sgd", "lr": 0.1},
            max_num_rows=10_000_000,
        ),
        Preset(
            "mlperf-v1",
            FACEBOOK,
            model={"embedding_dim": 128, "bottom_mlp": (512, 256, 128), "top_mlp": (1024, 1024, 512, 256, 1)},
            train={"batch_size": 2048, "optimiser": "sgd", "lr": 1.0},
            max_num_rows=40_000_000,
        ),
        Preset(
            "benchmark",
            FACEBOOK,
            model={"embedding_dim": 64, "bottom_mlp": (512, 64), "top_mlp": (1024, 1024, 1024, 1)},
            train={"batch_size": 2048, "optimiser": "sgd", "lr": 0.1},
            data="synthetic-benchmark",
        ),
    )
}

SPEECH_PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "tour",
            "labkit: of three sizes of four families the first at its target (benchmarks/speech_search.py)",
            model={
                "kind": "conv",
                "channels": 64,
                "layers": 4,
                "kernel": 7,
                "dropout": 0.1,
                "mask_bins": 8,
                "mask_frames": 6,
            },
            train={
                "batch_size": 32,
                "optimiser": "adam",
                "lr": 4e-3,
                "schedule": "cosine",
                "warmup_steps": 50,
                "grad_clip_norm": 5.0,
                "max_epochs": 12,
            },
            data="shipped",
        ),
        Preset(
            "budget-m5",
            "Baunsgaard et al., ADMS 2020 (arXiv 2003.12366): one convolution, five LSTM layers",
            model={
                "kind": "lstm",
                "channels": 600,
                "layers": 5,
                "hidden": 800,
                "kernel": 11,
                "strides": (2,),
                "dropout": 0.05,
            },
            # learning rate and clipping are ours: the paper's repository does not state them for this model
            train={"batch_size": 96, "optimiser": "adam", "lr": 3e-4, "warmup_steps": 200, "grad_clip_norm": 5.0},
            data="shipped",
        ),
    )
}

PRESETS = {"dlrm": DLRM_PRESETS, "speech": SPEECH_PRESETS}


def get_preset(job: str, name: str) -> Preset:
    """Return a job's preset.

    Raises:
        UserError: there is none of that name.
    """
    presets = PRESETS[job]
    if name not in presets:
        raise UserError(f"preset {name!r} of {job} is unknown: choose one of {', '.join(presets)}.")
    return presets[name]
