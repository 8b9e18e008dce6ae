"""The estimate of torch's own tracker, `torch.distributed._tools.mem_tracker.MemTracker`, under FakeTensorMode.

It sees what every operator returns, but no sparse tensor: it ends at the first. So embedding tables are buffers to it,
and their gradients, their optimiser's state and the room of their update are left out. Nor does it see what operators
take beside their results.
"""

from __future__ import annotations

import warnings

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from labkit.jobs.plain_step import PlainStep


def tracked_bytes(step: PlainStep) -> int:
    """Peak of two training steps as torch's tracker sees it; what is left out is said above."""
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
