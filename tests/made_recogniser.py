"""A finished speech run without training: a tiny random recogniser in a run folder."""

from dataclasses import asdict
from pathlib import Path

import torch
from made_up import new_run

from labkit.models import ConvBlock, SpeechConfig, SpeechModel
from labkit.tracking.log import save_checkpoints


def tiny_model(kind: str = "conv", strides: tuple[int, ...] = (2, 2), block=ConvBlock, **fields) -> SpeechModel:
    """A random model in evaluation, its norms as after some training."""
    torch.manual_seed(0)
    shape = {"channels": 8, "layers": 2, "hidden": 8, "kernel": 5} | fields
    model = SpeechModel(SpeechConfig(29, kind, strides=strides, **shape), block=block).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return model


def write_speech_run(
    runs_dir: Path, model: SpeechModel | None = None, *, status: str | None = "done", job="speech", data="", saves=True,
    **train,
) -> Path:  # fmt: skip
    """The run of a model, with these settings of its training; None of `status`: it is still running."""
    model = model or tiny_model()
    source = {"name": data or "shipped", "source": data or "shipped", "fingerprint": ""}
    config = {"job": job, "data": source, "model": asdict(model.config), "train": train}
    run = new_run(runs_dir, job, config=config, budget={"name": "all-cores"})
    if saves:
        save_checkpoints({run.folder / "checkpoint" / "best.pt": {"kept": {"model": model.state_dict()}}})
    if status is not None:
        run.finish(status, {})
    return run.folder
