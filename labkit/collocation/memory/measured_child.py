"""The process in which a peak is measured: reads what to do as JSON from its input, writes what it found as JSON.

Run by `measure.measure_peak` and `process_base.base_bytes`, one process a figure, so that nothing of one is in another.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch

import labkit.training.loop
import labkit.training.session  # noqa: F401  what a run imports counts
from labkit.collocation.memory.job_shape import longest_batch
from labkit.hardware.budgets.budget import Budget
from labkit.hardware.devices import get_devices
from labkit.telemetry.memory import own_peak_bytes
from labkit.training.assembly import build_job, load_data
from labkit.training.config import TrainConfig
from labkit.training.job import Job
from labkit.training.request import TrainRequest
from labkit.training.step import StepKind, TrainStep
from labkit.training.step_choice import choose_step

BASE_SAMPLES = 4
EVALUATION = "labkit evaluation"
"""Marks in the profile where training ends."""


def main() -> None:
    asked = json.load(sys.stdin)
    if asked["what"] == "base":
        found = base(asked["job"], asked["compiled"])
    else:
        found = {"tensors": tensors, "process": process}[asked["what"]](
            TrainRequest.from_dict(asked["request"]), asked["steps"], torch.device(asked["device"])
        )
    json.dump(found, sys.stdout)


def tensors(request: TrainRequest, steps: int, device: torch.device) -> dict[str, Any]:
    """The peak of torch's allocator, and with it the arrays that tensors do not own but stand on."""
    data = load_data(request, lambda event: None)
    if device.type == "cuda":
        _, kind = _train(request, data, steps, device)
        return {"bytes": torch.cuda.max_memory_allocated(device), "kind": str(kind)}
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        arrays, kind = _train(request, data, steps, device)
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    held = peak = 0
    now = "training"
    for event in events:
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held + arrays[now])
        elif event.name() == EVALUATION:
            now = "evaluation"
    return {"bytes": peak, "kind": str(kind)}


def process(request: TrainRequest, steps: int, device: torch.device) -> dict[str, Any]:
    """The most memory that this process held; its data is read to the end, as an epoch does."""
    data = load_data(request, lambda event: None)
    _read_through(data)
    _, kind = _train(request, data, steps, device)
    return {"bytes": own_peak_bytes(), "kind": str(kind)}


def _train(request: TrainRequest, data: Any, steps: int, device: torch.device) -> tuple[dict[str, int], StepKind]:
    """Take steps on the longest batch, and evaluate; return the bytes of arrays that no allocator of torch made."""
    arrays = {"training": 0, "evaluation": 0}
    config = request.train_config(len(data.split("train")))
    torch.manual_seed(config.seed)
    budget = Budget("the whole machine", None, torch_name=str(device))
    job, _ = build_job(request, data, config, budget=budget, device=get_devices()[0])
    kind, _ = choose_step(config.precision, request.compiled_tables, job, config, device)
    step = TrainStep(job, config, kind, device)
    job.model.train()
    batch = _longest(request, job, data)

    def see(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        # on a CPU, where alone this counts, a batch's tensors lie in NumPy's memory
        now = "training" if model.training else "evaluation"
        arrays[now] = max(arrays[now], sum(each.nbytes for each in inputs))

    job.model.register_forward_pre_hook(see)
    for index in range(steps):
        step(batch, index)
    room = _compiled_room_bytes(step)
    del batch
    job.model.eval()
    with torch.profiler.record_function(EVALUATION), torch.inference_mode(), kind.autocast(device):
        job.evaluate(job.model, "validation")
    return {name: size + room for name, size in arrays.items()}, kind


def _longest(request: TrainRequest, job: Job, data: Any) -> Any:
    if request.job == "dlrm":
        return next(job.batches(0, 0))[0]
    split = data.split("train")
    return split.batch(longest_batch(split.lengths, request))


def _compiled_room_bytes(step: TrainStep) -> int:
    """The arrays in which the compiled table update works."""
    for each in step.optimisers._steps:
        room = getattr(getattr(each, "__self__", None), "_room", None)
        if room is not None:
            return room.slots.nbytes + room.touched.nbytes + room.sums.nbytes
    return 0


def _read_through(data: Any) -> None:
    for name in ("train", "validation"):
        split = data.split(name)
        for array in vars(split).values():
            if isinstance(array, np.ndarray):
                array.max(initial=0)


def base(job_name: str, compiled: bool) -> dict[str, Any]:
    """What a process holds whatever it trains: Python, torch, libraries, and what their first use makes of them."""
    from labkit.fast.models import fast_dlrm, fast_speech
    from labkit.models.dlrm import Dlrm, DlrmConfig
    from labkit.models.speech import SpeechConfig, SpeechModel

    if job_name == "dlrm":
        import labkit.data.clicks
        import labkit.training.clicks_job

        model = fast_dlrm(DlrmConfig(dense_dim=4, num_rows=(8, 8), embedding_dim=4, bottom_mlp=(4,), top_mlp=(1,)))
        batch = torch.rand(BASE_SAMPLES, 4), torch.ones(BASE_SAMPLES, 2, 1, dtype=torch.int32)
        names = ("tables.weight",)
    else:
        import labkit.data.speech
        import labkit.training.speech_job  # noqa: F401

        config = SpeechConfig(vocabulary=3, kind="conv", channels=4, layers=1, mel_bins=4)
        model = fast_speech(config)
        batch, names = (torch.rand(BASE_SAMPLES, 16, 4), torch.full((BASE_SAMPLES,), 16)), ()
    job = _BaseJob(model, names)
    step = TrainStep(job, TrainConfig(optimiser="adam"), StepKind("fp32", compiled), torch.device("cpu"))
    step(batch, 0)
    return {"bytes": own_peak_bytes()}


class _BaseJob:
    def __init__(self, model: torch.nn.Module, sparse_parameters: tuple[str, ...]):
        self.model, self.sparse_parameters = model, sparse_parameters

    def num_batches(self, epoch: int) -> int:
        return 1

    def loss(self, batch: Any) -> torch.Tensor:
        answer = self.model(*batch)
        return (answer[0] if isinstance(answer, tuple) else answer).sum()


if __name__ == "__main__":
    main()
