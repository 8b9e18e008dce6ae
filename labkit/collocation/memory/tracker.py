"""The estimate of torch's own tracker, `torch.distributed._tools.mem_tracker.MemTracker`, under FakeTensorMode.

It sees what every operator returns. It cannot see the update of embedding tables, whose sizes depend on the values of
the batch (FakeTensorMode refuses `unique_consecutive`): rows are looked up and their gradient is made, but the tables'
optimiser state and the room of their update are left out. Nor does it see what operators take beside their results, or
the evaluation. Dense parameters are updated by their own optimiser.
"""

from __future__ import annotations

import warnings

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from labkit.collocation.memory.job_shape import ClickShape, SpeechShape
from labkit.collocation.memory.walk import shaped_job
from labkit.fast.tables import EmbeddingTables
from labkit.training.optimisers import Optimisers
from labkit.training.request import TrainRequest
from labkit.training.step import StepKind


def tracked_bytes(request: TrainRequest, shape: ClickShape | SpeechShape, kind: StepKind) -> int:
    """Peak of two training steps as torch's tracker sees it, in bytes; what is left out is said above."""
    config = request.train_config(shape.train_samples)
    place = torch.device("cpu")
    with FakeTensorMode():
        job = shaped_job(request, shape, config.batch_size, place)
        tables = [module for module in job.model.modules() if isinstance(module, EmbeddingTables)]
        sparse = {id(each.weight) for each in tables}
        dense = [parameter for parameter in job.model.parameters() if id(parameter) not in sparse]
        optimisers = Optimisers(torch.nn.ParameterList(dense), (), config, total_steps=1)
        for each in tables:
            each.keeps_bags = True
        tracker = MemTracker()
        tracker.track_external(job.model, *optimisers.parts)
        with warnings.catch_warnings(), tracker:
            warnings.simplefilter("ignore")  # the tracker warns of gradients that are None
            for _ in range(2):
                tracker.reset_mod_stats()  # or it refuses a second step
                batch = job.batch()
                with kind.autocast(place):
                    loss = job.loss(batch)
                loss.backward()
                for each in tables:
                    each.take_bags()
                optimisers.step(0)
        return tracker.get_tracker_snapshot("peak")[place]["Total"]
