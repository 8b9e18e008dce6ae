"""Three ways to predict the memory of a job's tensors, and what they are worth compared with what its first steps take.

Predictions walk through a step with tensors that have only shapes. They are of the kit's jobs with plain kernels.
Shapes: B batch, D dense features, F tables, L pooling factor, T frames.
"""

import functools
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._pytree import tree_leaves

from labkit.data.clicks import load_clicks
from labkit.errors import UserError
from labkit.fast import autocast
from labkit.jobs import JOBS, DlrmJob, SpeechJob, dlrm, job_command, speech
from labkit.models import Dlrm, DlrmConfig, SpeechModel
from labkit.sharing import first_steps_bytes
from labkit_course.apparatus import counted_bytes

METHODS = ("formula", "torch's tracker", "Horus' formula")
PROCESS = "the whole process"
"""Stands where a method does: nothing predicts it, and what was measured is of all of the process"""
OPTIMISER_STATES = {"sgd": 0, "adagrad": 1, "rowwise-adagrad": 0, "adam": 2}
"""Tensors as large as the embedding tables that an optimiser keeps"""
NUMBER, ROW_NUMBER = 4, 8
"""Bytes of an fp32 number, and of a row's place in a sparse gradient"""


@dataclass(frozen=True)
class PlainStep:
    """What to call under torch's FakeTensorMode."""

    job: DlrmJob | SpeechJob
    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module], Tensor]
    """The loss of a batch, which each call makes again"""
    optimisers: Callable[[nn.Module], list[torch.optim.Optimizer]]
    lookups: int = 0
    """Lookups in embedding tables"""


def plain_step(job: DlrmJob | SpeechJob) -> PlainStep:
    """The step that a job takes; its data is prepared if it was not."""
    build = {"name": job.optimiser, "lr": job.lr, "kernels": "plain"}
    if isinstance(job, DlrmJob):
        most_rows = job.preset_values.max_num_rows
        options = {} if most_rows is None else {"max_rows_per_table": most_rows}
        log = load_clicks(job.data, schema=job.schema, on_bad_row=job.on_bad_row, **options)
        config = DlrmConfig(len(log.dense_names), log.table_rows, **job.preset_values.model)
        bags = job.batch_size, config.num_tables, log.pooling_factor  # (B, F, L)

        def click_loss(model: nn.Module) -> Tensor:
            dense, label = torch.empty(job.batch_size, config.dense_dim), torch.empty(job.batch_size)
            with autocast(job.precision, "cpu"):
                return dlrm.loss_of(model, (dense, torch.empty(bags, dtype=torch.int32), label))

        optimisers = functools.partial(dlrm.build_optimizers, **build)
        return PlainStep(job, lambda: Dlrm(config), click_loss, optimisers, torch.Size(bags).numel())
    data, shape, _ = speech.load_data(job)
    frames = int(max(data.split("train").lengths))  # at random, nearly every batch has one of the longest

    def speech_loss(model: nn.Module) -> Tensor:
        with autocast(job.precision, "cpu"):
            features, lengths = torch.empty(job.batch_size, frames, shape.mel_bins), torch.empty(job.batch_size)
            return model(features, lengths.long())[0].sum()  # the sizes of a CTC loss depend on its batch's values

    return PlainStep(
        job, lambda: SpeechModel(shape), speech_loss, lambda model: [speech.build_optimizer(model, **build)]
    )


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
