"""From a request to a job: its data, and the model that fits them."""

from __future__ import annotations

from typing import Any

import torch

from labkit.errors import UserError
from labkit.hardware.budgets.budget import Budget
from labkit.hardware.device import Device
from labkit.hardware.sizes import size_text
from labkit.training.announcements import OnEvent, Preparing
from labkit.training.config import TrainConfig
from labkit.training.job import Job
from labkit.training.request import TrainRequest

OPTIMISER_STATES = {"sgd": 0, "adagrad": 1, "rowwise-adagrad": 0, "adam": 2}
"""Tensors as large as the embedding tables that an optimiser keeps."""


def load_data(request: TrainRequest, on_event: OnEvent) -> Any:
    """The prepared click log or speech set of a request."""

    def on_progress(fraction: float, text: str) -> None:
        on_event(Preparing(fraction, text))

    if request.job == "dlrm":
        from labkit.data.clicks import load_clicks

        options = {}
        if request.chosen_preset.max_num_rows is not None:
            options["max_rows_per_table"] = request.chosen_preset.max_num_rows
        return load_clicks(
            request.data_name, schema=request.schema, on_bad_row=request.on_bad_row, progress=on_progress, **options
        )
    from labkit.data.speech import load_speech
    from labkit.models.speech import SpeechConfig

    return load_speech(
        request.data_name,
        on_bad_row=request.on_bad_row,
        progress=on_progress,
        # a transcript that needs more outputs than its utterance has frames for is bad input for this model
        frames_an_output=SpeechConfig(vocabulary=1, **request.chosen_preset.model).frames_an_output,
    )


def build_job(
    request: TrainRequest, data: Any, config: TrainConfig, *, budget: Budget, device: Device
) -> tuple[Job, Any]:
    """The job, its model's weights drawn from torch's random state, and the model's configuration.

    Raises:
        UserError: the embedding tables cannot fit in the memory there is.
    """
    shape = request.chosen_preset.model
    options = {"batch_size": config.batch_size, "seed": config.seed, "device": torch.device(budget.torch_name)}
    if request.job == "dlrm":
        from labkit.models.dlrm import DlrmConfig
        from labkit.training.clicks_job import ClicksJob

        model = DlrmConfig(dense_dim=len(data.dense_names), num_rows=tuple(data.table_rows), **shape)
        needed = model.parameter_bytes * (1 + OPTIMISER_STATES[config.optimiser])
        limit = budget.memory_bytes or device.memory_bytes
        if limit is not None and needed > limit:
            raise UserError(
                f"preset {request.preset!r} on this data needs {size_text(needed)} for its embedding tables and "
                f"their optimiser state, and {device.name} has {size_text(limit)} under this budget: choose a "
                "smaller preset (kaggle, tour), or data with smaller vocabularies."
            )
        return ClicksJob(data, model, **options), model
    from labkit.models.speech import SpeechConfig
    from labkit.training.speech_job import SpeechJob

    model = SpeechConfig(vocabulary=len(data.alphabet), **shape)
    return SpeechJob(data, model, **options), model
