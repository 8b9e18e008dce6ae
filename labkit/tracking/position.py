"""Where a run is, what it has taken so far (its clock, its steps, their losses), and how it gets back there.

A resumed run goes on exactly where the interrupted one stopped: at the same batch, with the same random state.
"""

import contextlib
import math
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import torch

from labkit import UserError, errors
from labkit.tracking.events import SYNC, OnEvent, Point, Progress, phase
from labkit.tracking.log import RunLog
from labkit.tracking.values import real

REPORT_EVERY_S = 0.25
"""Seconds between step events; evaluations are always reported."""
NOT_SAVED = {"is_saved": False}
"""Marks what belongs to this process only: a checkpoint does not hold it."""


@dataclass
class Position:
    """Where a run is: everything that changes while it goes on, apart from tensors and files.

    The other parts of a run read and change only this; each of them also owns one file, or one kind of tensor.
    """

    epoch: int = 0
    """Number of epochs that are over."""
    batch: int = 0
    """Number of batches of this epoch that were trained on."""
    step: int = 0
    samples: int = 0
    wall_s: float = 0.0
    """Seconds since the clock started: training, evaluations, checkpoints and bookkeeping."""
    train_s: float = 0.0
    """Seconds of training alone."""
    next_evaluation: int = 0
    """Number of samples at which an evaluation is due."""
    evaluated_step: int = -1
    """Step of the latest evaluation."""
    best_metric: str | None = None
    """Metric by which the best evaluation was chosen."""
    best_value: float | None = None
    best_step: int | None = None
    keeps_best: bool = True
    """Whether the best weights are kept for testing; otherwise the last ones are tested."""
    best_age: int = 0
    """Number of evaluations since the best one."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of the latest evaluation."""

    num_epochs: int | None = field(metadata=NOT_SAVED, default=None)
    """Number of epochs that `Run.epochs` was given."""
    has_loop: bool = field(metadata=NOT_SAVED, default=False)
    """Whether the script loops over `Run.epochs` or `Run.batches`, which can end, and start in the middle."""
    given_out: int = field(metadata=NOT_SAVED, default=0)
    """Number of batches of this epoch that the script was given."""
    is_last_batch: bool = field(metadata=NOT_SAVED, default=False)
    """Whether the current batch is the last of its epoch, if the loader knows its length."""
    epoch_is_over: bool = field(metadata=NOT_SAVED, default=False)
    """Whether all batches of an epoch were used, while the code after them may still be running."""
    crossed: dict[str, Point] = field(metadata=NOT_SAVED, default_factory=dict)
    """The first and the sustained crossing of the target, once they have happened."""
    seen_enough: bool = field(metadata=NOT_SAVED, default=False)
    """Whether an observer has seen enough steps; this ends even a script that catches `Enough`."""
    agreed: str = field(metadata=NOT_SAVED, default="")
    """Reason why a run of several ranks is over, as agreed at the latest step or evaluation."""
    agreed_wall_s: float | None = field(metadata=NOT_SAVED, default=None)
    """Wall time of rank 0 at the latest step, where there are several ranks."""
    needs_checkpoint: bool = field(metadata=NOT_SAVED, default=False)
    """Whether there was an evaluation since the last checkpoint."""
    is_frozen: bool = field(metadata=NOT_SAVED, default=False)
    """Whether a resume will start from the last checkpoint, whatever the script does before its next step."""

    def saved(self) -> dict[str, Any]:
        """The part of it that a checkpoint holds."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.metadata.get("is_saved", True)}

    @property
    def point(self) -> Point:
        return Point(self.step, self.samples, self.wall_s, self.train_s)

    @property
    def tested_step(self) -> int:
        """Step whose weights are to be tested: the best, or the last if none is known to be the best."""
        return self.step if self.best_step is None or not self.keeps_best else self.best_step

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.train_s if self.train_s else 0.0


class Meter:
    """Counts the steps of a run, and adds the time that passes to its position."""

    def __init__(self, position: Position, log: RunLog, diverged: Callable[[str, Point], Exception]):
        """`diverged` makes the error for a loss that is not a number."""
        self.position, self._log, self.diverged = position, log, diverged
        self._ranks = log.ranks if log.ranks is not None and log.ranks.exchanges else None
        self.listeners: list[OnEvent] = []
        self.loss = math.nan
        """The latest loss that has reached the host."""
        self._on_their_way: deque[tuple[torch.Tensor, torch.cuda.Event | None, Point]] = deque()
        """Losses of steps, or what the ranks exchanged in them. Those on a GPU are copied while training goes on, and
        read once they have arrived."""
        self._has_losses = False
        self._at: float | None = None
        self._reported_at = 0.0

    @property
    def is_running(self) -> bool:
        return self._at is not None

    def start(self, at: float) -> None:
        """Start the clock, as if at that moment of `time.perf_counter`."""
        self._at = at

    def book(self, *, training: bool) -> None:
        """Add the time since the last call to the wall time, and with `training` also to the training time."""
        now = time.perf_counter()
        passed_s = now - errors.certain(self._at)
        self.position.wall_s += passed_s
        if training:
            self.position.train_s += passed_s
        self._at = now

    def step(self, loss: Any, samples: int) -> None:
        """Count a step that has just been taken."""
        self.book(training=True)
        position = self.position
        position.step += 1
        position.batch = position.given_out
        if loss is not None:
            self._has_losses = True
            loss = self._one_number(loss)
        if self._ranks is not None:
            self._send(self._ranks.exchange(loss, samples), position.point)
        else:
            position.samples += samples
            if loss is not None:
                self._send(loss, position.point)
        self.read_losses()
        now = time.perf_counter()
        if now - self._reported_at >= REPORT_EVERY_S:
            self._reported_at = now
            if not self._has_losses:
                self._log.metric("steps", position.step, position.point)
            self.report(evaluated=False)

    def _one_number(self, loss: Any) -> torch.Tensor:
        """A step's loss as a tensor: from a number, or a tensor with one number on any device."""
        if not isinstance(loss, torch.Tensor):
            loss = torch.tensor(real(loss, "run.step: loss"), dtype=torch.float64)
        if loss.numel() != 1 or loss.is_complex() or loss.is_meta or loss.is_nested:
            kind = "nested tensors" if loss.is_nested else f"shape {tuple(loss.shape)} ({loss.dtype} on {loss.device})"
            raise UserError(f"run.step got a loss of {kind}: give one real number, for example loss.mean().")
        return loss.detach()

    def _send(self, numbers: torch.Tensor, point: Point) -> None:
        """Put the numbers of a step on their way to the host."""
        host, arrived = numbers, None
        if numbers.is_cuda:
            # an asynchronous copy into pinned memory, so that the host does not wait for the GPU
            host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            host.copy_(numbers, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(torch.cuda.current_stream(numbers.device))  # it may not be the current device
        self._on_their_way.append((host, arrived, point))

    def read_losses(self, *, wait: bool = False) -> None:
        """Record the losses that have reached the host (with `wait`: all), and raise at one that is not a number."""
        with phase(SYNC) if wait else contextlib.nullcontext():
            while self._on_their_way:
                host, arrived, point = self._on_their_way[0]
                # ranks wait for each step, because it may say that they are over
                if arrived is not None and (wait or self._ranks is not None):
                    arrived.synchronize()
                elif arrived is not None and not arrived.query():
                    break
                self._on_their_way.popleft()
                loss, where = float(host) if self._ranks is None else None, ""
                if self._ranks is not None:
                    loss, samples, where = self._ranks.read(host)
                    self.position.samples += samples
                    point = replace(point, samples=self.position.samples)
                if loss is None:
                    continue
                self.loss = loss
                if not math.isfinite(loss):
                    what, at = f"the training loss is {loss}{where}", replace(self.position.point, step=point.step)
                    raise self.diverged(what, at)
                self._log.metric("loss", self.loss, point)

    def report(self, *, evaluated: bool) -> None:
        position = self.position
        event = Progress(position.point, position.samples_per_s, self.loss, position.metrics, evaluated)
        self._log.tell(event)
        for listener in self.listeners:
            listener(event)


class Loop:
    """The loader and the random state of `Run.epochs` and `Run.batches`, and how a resumed run gets back there."""

    def __init__(self, position: Position, record: Callable[..., None]):
        """`record` writes an event."""
        self._position, self._record = position, record
        self._loader: Any = None
        self._entered: dict[str, Any] = {}
        """Random state at the start of this epoch."""
        self._at_first_batch: dict[str, Any] = {}
        """Random state that determines the order of its batches."""
        self.resumed: dict[str, Any] | None = None
        """The `state` from which a resumed run continues."""

    def enter_epoch(self) -> None:
        """Begin an epoch, whose code may draw random numbers before its batches."""
        if self.resumed is not None:
            restore_random_state(self.resumed["entered" if self._position.batch else "now"])
        self._entered = random_state()

    def leave_epoch(self, *, without_batches: bool = False) -> None:
        """Count an epoch if all its batches were used, or if it has no `Run.batches`."""
        position = self._position
        if position.epoch_is_over or without_batches:
            position.epoch_is_over, position.given_out = False, 0
            position.epoch, position.batch = position.epoch + 1, 0
            self._record("epoch", epoch=position.epoch, **asdict(position.point))

    def begin_batches(self, loader: Any) -> Iterator[Any]:
        """The loader's batches from the current position on, with the random state that belongs there."""
        self._loader, start = loader, self._position.batch
        self._position.given_out = start
        resumed, self.resumed = self.resumed, None
        if resumed is not None:
            state = resumed["first batch" if start else "now"]
            if self._entered and not start:  # the script may have drawn since then
                state = random_state() | {"loader": state["loader"]}
            if getattr(loader, "persistent_workers", False) and self._position.epoch:
                iter(loader)  # starts the workers, whose seed only the first epoch draws
            restore_random_state(state, loader)
        self._at_first_batch = random_state(loader)
        if hasattr(loader, "at"):
            batches = iter(loader.at(self._position.epoch, start))
        else:
            batches = iter(loader)
            for _ in range(start):
                next(batches, None)
        if resumed is not None and start:
            restore_random_state(resumed["now"], loader)
        return batches

    def give_out(self) -> None:
        """Count a batch that the script gets."""
        self._position.given_out += 1
        try:
            self._position.is_last_batch = self._position.given_out == len(self._loader)
        except TypeError:  # the loader does not know its length
            self._position.is_last_batch = False

    def state(self) -> dict[str, Any]:
        """The part of a checkpoint that belongs to the loop."""
        now = random_state(self._loader)
        return {"entered": self._entered or now, "first batch": self._at_first_batch or now, "now": now}

    def let_go(self) -> None:
        """Release the loader. If it were collected later, one with workers would wait five seconds for each."""
        self._loader = None


class ChangedLoader:
    """The batches of a loader, changed on their way: `Run.batches` goes on with them as with the loader's own."""

    def __init__(self, loader: Any, change: Callable[[Iterator[Any]], Iterator[Any]]):
        self._loader, self._change = loader, change
        if hasattr(loader, "at"):
            self.at: Callable[[int, int], Iterator[Any]] = lambda epoch, start: change(loader.at(epoch, start))

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return self._change(iter(self._loader))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # such as generators, which a resumed run sets


def seed_all(seed: int) -> None:
    """Seed the generators of Python, NumPy (where it is loaded) and torch, GPUs included."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state(loader: Any = None) -> dict[str, Any]:
    """The state of Python's, NumPy's, torch's and a data loader's own generators."""
    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": [version, list(numbers), gauss],
        "loader": [generator.get_state() for generator in _generators(loader)],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = [kind, torch.from_numpy(keys.astype("int64")), *rest]
    return state


def restore_random_state(state: dict[str, Any], loader: Any = None) -> None:
    """Set all generators to what `random_state` returned."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available() and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        import numpy as np

        kind, keys, *rest = state["numpy"]
        np.random.set_state((kind, keys.numpy().astype("uint32"), *rest))
    for generator, its_state in zip(_generators(loader), state["loader"], strict=False):
        generator.set_state(its_state)


def _generators(loader: Any) -> list[torch.Generator]:
    """The generators of a DataLoader itself, which determine its order."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    places = (loader, getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None))
    found = [getattr(place, "generator", None) for place in places]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())
