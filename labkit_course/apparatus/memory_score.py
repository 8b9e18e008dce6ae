"""Ways to predict the memory of a job's tensors, and what they are worth beside what the first steps really take.

Predictions walk through a step with tensors that have only shapes. Run as a program, this takes a job's first steps
while every allocation of a tensor is counted. It is of the kit's jobs with plain kernels.
"""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

from labkit.errors import UserError
from labkit.jobs import JOBS, job_command
from labkit.process import Child, Parent
from labkit.sharing import first_steps_bytes
from labkit.tracking import ScriptCommand, StopRequest, run_command
from labkit_course.apparatus.plain_step import PlainStep, plain_step

METHODS = ("formula", "torch's tracker", "Horus' formula")
PROCESS = "the whole process"
"""Stands where a method does: nothing predicts it, and what was measured is of all of the process"""
OPTIMISER_STATES = {"sgd": 0, "adagrad": 1, "rowwise-adagrad": 0, "adam": 2}
"""Tensors as large as the embedding tables that an optimiser keeps"""
STEPS = 3
"""That are counted: the optimiser's state is there while a whole step is taken, twice."""
NUMBER, ROW_NUMBER = 4, 8
"""Bytes of an fp32 number, and of a row's place in a sparse gradient"""


def formula(step: PlainStep) -> dict[str, int]:
    """Bytes of a job's tensors, by terms whose sum is the prediction: all held at once, as at the backward pass.

    Dense gradients are as large as their parameters; of an embedding table only the rows that a batch names have one,
    each with its number. Activations are what autograd keeps of the forward pass. What operators take while they run,
    and what the data takes, is not in it.
    """
    kept: dict[int, Tensor] = {}  # by storage; the tensors themselves, so that no number is given twice

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with FakeTensorMode(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model = step.model()
        loss = step.loss(model)
    own = {each.untyped_storage()._cdata for each in [*model.parameters(), *model.buffers()]}
    activations = [each.untyped_storage().nbytes() for place, each in kept.items() if place not in own]
    del loss
    parameters = gradients = sum(each.nbytes for each in model.parameters())
    if step.lookups:
        gradients -= sum(each.nbytes for each in model.tables.parameters())
        gradients += step.lookups * (NUMBER * model.config.embedding_dim + ROW_NUMBER)
    return {
        "parameters": parameters,
        "gradients": gradients,
        "optimiser": OPTIMISER_STATES[step.job.optimiser] * parameters,
        "activations": sum(activations),
        "gradient of the largest": max(activations),
    }


def horus_bytes(activations: int, parameters: int, batch_size: int) -> int:
    """Bytes by the formula of Horus (Yeung et al., IEEE TPDS 33(1), 2022), as CARMA (arXiv 2508.19073) computes it.

    (A·B + P) + B·P numbers of 4 bytes, for the A activations that the layers put out for one sample, P parameters and a
    batch of B, from the repository itu-rad/CARMA, commit e044017, `workloads/ehsan-horus_estimator.py`; Horus' own text
    was not at hand. It counts a gradient of every parameter for every sample. CARMA's DLRM has A = 5,768, P = 909,313
    and B = 32,768: 111.7 GiB, where 1.47 GB were measured.

    >>> horus_bytes(activations=10, parameters=3, batch_size=2)  # (20 + 3 + 6) numbers
    116
    """
    return NUMBER * (activations * batch_size + parameters + batch_size * parameters)


def horus_estimate(step: PlainStep) -> int:
    """Bytes of a job by Horus' formula; layers that count are ours to choose: modules without children."""
    put_out: list[int] = []

    def count(module: nn.Module, inputs: tuple, output) -> None:
        put_out.append(next(leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)).numel())  # not a state

    with FakeTensorMode():
        model = step.model()
        for module in model.modules():
            if not list(module.children()):
                module.register_forward_hook(count)
        step.loss(model)
        parameters = sum(parameter.numel() for parameter in model.parameters())
    return horus_bytes(sum(put_out) // step.job.batch_size, parameters, step.job.batch_size)


def tracked_bytes(step: PlainStep) -> int:
    """Peak of two training steps as torch's own tracker, `MemTracker`, sees it.

    It ends at the first sparse tensor, so embedding tables are buffers to it: their gradients, their optimiser's state
    and the room of their update are left out. Nor does it see what operators take beside their results.
    """
    with FakeTensorMode():
        model = step.model()
        optimisers = step.optimisers(model)
        for bag in model.tables.bags if step.lookups else ():
            bag.register_buffer("weight", bag._parameters.pop("weight").detach())
        tracker = MemTracker()
        tracker.track_external(model, *optimisers)
        with warnings.catch_warnings(), tracker:
            warnings.simplefilter("ignore")  # the tracker warns of gradients that are None
            for _ in range(2):
                tracker.reset_mod_stats()  # or it refuses a second step
                step.loss(model).backward()
                for optimiser in optimisers:
                    optimiser.step()
                    optimiser.zero_grad()
        return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]


def estimates(job: str, **settings: Any) -> pd.DataFrame:
    """What three methods predict for the tensors of a job on a CPU.

    Args:
        job: "dlrm" or "speech".
        settings: flags of its script, by name; kernels is "plain", and precision "fp32" or "bf16".

    Returns:
        Columns model, preset, batch_size, precision, method, predicted (bytes).

    Raises:
        UserError: a setting cannot be.
    """
    if settings.get("kernels") != "plain" or settings.get("precision") not in ("fp32", "bf16"):
        raise UserError('estimates are of plain kernels: give kernels="plain", and precision="fp32" or "bf16".')
    step = plain_step(JOBS[job].from_settings(settings))
    predicted = [sum(formula(step).values()), tracked_bytes(step), horus_estimate(step)]
    asked = {name: getattr(step.job, name) for name in ("preset", "batch_size", "precision")}
    return pd.DataFrame({"model": job, **asked, "method": METHODS, "predicted": predicted})


def score(jobs: Iterable[tuple[str, dict[str, Any]]]) -> pd.DataFrame:
    """Predict and measure jobs, each its name and settings as `estimates` takes them, on this machine's CPU in turn.

    Returns:
        The columns of `estimates`, measured (bytes), error_% (above zero: predicted more than was measured). The last
        row of each job is of its process.
    """
    frames = []
    for job, settings in jobs:
        command = job_command(job, **settings)
        frame = estimates(job, **settings).assign(measured=counted_bytes(command))
        process = {"method": PROCESS, "predicted": None, "measured": first_steps_bytes(command, "cpu")}
        frames += [frame, frame.iloc[:1].assign(**process)]
    scored = pd.concat(frames, ignore_index=True).astype({"predicted": float, "measured": float})
    return scored.assign(**{"error_%": 100 * (scored["predicted"] / scored["measured"] - 1)})


def counted_bytes(command: ScriptCommand) -> int:
    """Peak of all tensors in a script's first steps on a CPU, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="labkit-") as folder:
        content = replace(command, runs_dir=folder, device="cpu").to_dict()
        with Child("labkit_course.apparatus.memory_score", content) as child:
            counted = next((message["bytes"] for message in child.messages() if message["kind"] == "Counted"), None)
            if counted is None:
                said = child.stderr_tail().strip().splitlines()[-1:]
                raise UserError(f"{command.script}: the process that counts its tensors failed: {''.join(said)}")
    return counted


def main() -> None:
    parent, steps = Parent(), itertools.count(1)
    command = ScriptCommand.from_dict(parent.content)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run_command(command, StopRequest(), lambda event: None, on_step=lambda: next(steps) == STEPS)
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    parent.tell("Counted", bytes=max(itertools.accumulate(changes)))


if __name__ == "__main__":
    main()
