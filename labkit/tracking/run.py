"""`labkit.Run`: the one thing a training script needs, to know what it costs to reach a target."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.tracking.command import ScriptCommand
from labkit.tracking.crossings import CONFIRM
from labkit.tracking.ending import EXIT_STOPPED, Diverged, Enough, Stopped, StopRequest, in_notebook
from labkit.tracking.evaluations import Evaluations
from labkit.tracking.goal import Goal, Target, evaluated_name
from labkit.tracking.harness import Harness, current_harness
from labkit.tracking.kept import Kept
from labkit.tracking.loop import Loop
from labkit.tracking.meter import Meter, Position
from labkit.tracking.phases import INPUT, phase
from labkit.tracking.progress_line import ProgressLine
from labkit.tracking.recording import Recording, nothing_to_do
from labkit.tracking.spawned import SpawnedHarness
from labkit.tracking.stopping import StoppingCriteria

_open_run: Run | None = None


def open_run() -> Run | None:
    """The run that this process has open."""
    return _open_run


class Run:
    """Keeps the clocks of a training script, watches its target, and writes its run folder.

        with labkit.Run("my-cnn", target="accuracy >= 0.9", config={"lr": 0.1}) as run:
            for epoch in range(20):
                for x, y in loader:
                    ...
                    run.step(loss, samples=len(y))
                if run.evaluate(accuracy=score(model)):
                    break

    The clock starts at the first batch of `run.batches`, else when the block is entered. What passes up to a `step` is
    training; what passes from the last `step` to the end of `evaluate` is evaluation, which counts as wall time only.
    Under `labkit run`, `profile run` or `collocate` the folder, budget, sampler and stop are theirs.
    """

    def __init__(
        self,
        name: str,
        *,
        target: Target | str | None = None,
        confirm: int = CONFIRM,
        config: dict[str, Any] | None = None,
        runs_dir: Path | str = "runs",
        max_seconds: float | None = None,
        evaluate_every: int | None = None,
        patience: int | None = None,
        seed: int | None = None,
    ):
        """Describe a run; entering the block begins it.

        Args:
            name: of the job; figures compare runs of one name.
            target: such as "auc >= 0.78"; "max auc" watches for the best value and never ends the run by it.
            confirm: evaluations in a row at or past the target that confirm it.
            config: what decides the run, JSON-able, dictionaries in it being sections; a resumed run has the same.
            runs_dir: the folder that the run's folder is made in, but for a harness that has its own.
            max_seconds: wall-clock seconds after which the run is over.
            evaluate_every: samples after which `run.due` asks for an evaluation; None: at each epoch's end.
            patience: evaluations without a better value after which the run is over.
            seed: recorded, and by default what the harness seeded Python, NumPy and torch with.
        """
        if not isinstance(name, str) or not name.strip():
            raise UserError(f"labkit.Run({name!r}): give the run a name, such as labkit.Run('my-cnn').")
        self.name, self.config, self.seed, self._runs_dir = name, dict(config or {}), seed, Path(runs_dir)
        wanted = Target.parse(target) if isinstance(target, str) else target
        self.goal = Goal(wanted, confirm, max_seconds, evaluate_every, patience)
        self.position = Position(next_evaluation=evaluate_every or 0)
        self.result: dict[str, Any] = {}
        """What the run came to; complete once the block is left."""
        self._recording: Recording | None = None
        self.is_implicit = False
        """Whether a script that has no run of its own is counted by this one"""
        self.is_leaving = False
        """Whether its end is being recorded, which nothing is to interrupt"""

    # the block

    def __enter__(self) -> Run:
        global _open_run
        if _open_run is not None:
            raise UserError(
                f"run {_open_run.name!r} is still open in this process, and clocks, sampler and stop are one each: "
                f"leave its `with` block before {self.name!r} begins, or train the two in processes of their own."
            )
        own = Harness(StopRequest(), ScriptCommand(runs_dir=str(self._runs_dir)), ProgressLine(), is_script=True)
        self._harness = current_harness() or SpawnedHarness.found() or own
        self._observer = self._harness.observer
        if self._observer is not None and self._harness.answers:
            raise Enough  # one run of the script has been looked at
        if self._observer is not None:  # a run that is looked at has nothing to reach
            self.goal = replace(self.goal, target=None, max_seconds=None, patience=None)
        self._test_metrics: dict[str, float] = {}
        self.seed = self._harness.settle_seed(self.seed)
        self._recording = Recording(self._harness, self.name, self.config, self.goal, self.seed)
        self.folder: Path = self._recording.folder
        self._meter = Meter(self.position, self._recording, lambda what, at: self._kept.diverged(what, at))
        self._loop = Loop(self.position, self._recording.event)
        self._evaluations = Evaluations(self.goal, self._meter, self._recording)
        self._stopping = StoppingCriteria(self._loop, self._evaluations, self._stopped_by)
        self._kept = Kept(self._meter, self._loop, self._evaluations, self._recording)
        _open_run = self
        try:
            self._harness.entered()
            if self._recording.before is not None:
                self._kept.resume()
            self._recording.started()
        except BaseException as error:
            self._leave(error)
            raise
        self._entered_at = time.perf_counter()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> bool:
        status = self._leave(error)
        ends_script = self._harness.is_script and not hasattr(sys, "ps1") and not in_notebook()
        if status == "stopped" and (error is None or isinstance(error, Stopped)) and ends_script:
            raise SystemExit(EXIT_STOPPED)
        return isinstance(error, Stopped)

    def _leave(self, error: BaseException | None) -> str:
        """Record how it ended; the status."""
        global _open_run
        status, word, reason = self._stopping.ending_of(error, self._recording.why)
        if self._recording.before is not None and not self._meter.is_running and word == "refused":
            _open_run = None
            self._recording.leave_as_it_was(reason)
            return status
        try:
            if error is None or isinstance(error, Stopped):
                self._meter.read_losses(wait=True)
                self._kept.save()
        except Exception as late:  # a loss that is no number, a full disk, a folder that is gone
            status, word, reason = self._stopping.ending_of(late, self._recording.why)
            error = error or late
            raise
        finally:
            self.is_leaving = True
            self._loop.let_go()
            self.result = self._evaluations.result()
            self.result |= {"metrics": self._test_metrics, "reason": reason, "ended_by": word}
            if isinstance(error, SystemExit) and isinstance(error.code, int):
                self.result["exit_code"] = error.code
            try:
                is_fault = isinstance(error, Exception) and not isinstance(error, Diverged)  # which was told before
                self._recording.finish(status, self.result, is_fault=is_fault)
            finally:
                _open_run = None
        return status

    # what a script calls

    def step(self, loss: Any = None, *, samples: int) -> None:
        """Count a step that has just been taken, of so many samples; its loss may be on a GPU, which is not waited for.

        Raises:
            RunFailed: a loss is no number; the run has failed.
        """
        self._must_be_open("step")
        if samples < 0:
            raise UserError(f"run.step(samples={samples!r}): give the number of samples that the step trained on.")
        self.start_clock(self._entered_at)
        self._kept.is_frozen = False
        self._meter.step(loss, samples, self._loop.given_out)
        self._stopping.seen_enough = self._harness.stepped()
        self._meter.book(training=False)  # what labkit itself took
        if self._stopping.seen_enough:
            raise Enough
        if not (self._loop.is_used or self.is_implicit) and self.over == "stopped":
            raise Stopped  # there is no loop of ours that could end

    def evaluate(self, **metrics: float) -> bool:
        """Take an evaluation of the model as it is now; True where the run is over.

        A "loss" is recorded as "validation_loss", beside that of the steps.

        Raises:
            UserError: the target's metric is missing.
            RunFailed: a metric or a weight is no number; the run has failed.
        """
        self._must_be_open("evaluate")
        self.start_clock(self._entered_at)
        self._meter.book(training=False)
        if self._observer is not None:
            return False
        numbers = self._evaluations.numbers({evaluated_name(name): value for name, value in metrics.items()})
        self._evaluations.check(numbers)
        self._meter.read_losses(wait=True)
        self._kept.check_weights()
        if self.position.samples >= self.position.next_evaluation:  # else this is one between those that are due
            self.position.next_evaluation = self.position.samples + (self.goal.evaluate_every or 0)
        if self._evaluations.take(numbers):
            self._kept.note_best()
        self._meter.tell(evaluated=True)
        self._meter.book(training=False)
        self._kept.is_wanted = True
        if not self._loop.is_used:
            self._kept.at_safe_point()
        self._stopping.agree()
        return bool(self.over)

    @property
    def due(self) -> bool:
        """Whether to evaluate now: so many samples have passed, an epoch ends, or the time is up.

        Asking waits for a GPU where it is True, so that training ends before evaluation begins.
        """
        self._must_be_open("due")
        position, loop, every = self.position, self._loop, self.goal.evaluate_every
        if self._observer is not None or position.evaluated_step == position.step:
            return False
        is_last_epoch = loop.num_epochs is not None and position.epoch + 1 >= loop.num_epochs
        ends = loop.is_last_batch and (every is None or is_last_epoch)
        if not (ends or (every and position.samples >= position.next_evaluation) or self._stopping.out_of_time):
            return False
        self._meter.read_losses(wait=True)
        if self._meter.is_running:
            self._meter.book(training=True)
        return True

    @property
    def over(self) -> str:
        """Why the run is over: "stopped", "target", "max_seconds", "max_epochs" or "patience"; else empty."""
        return self._stopping.over if self._recording is not None else ""

    def keep(self, **parts: Any) -> None:
        """Name what checkpoints hold, and put it back where this run is resumed: models, optimisers, schedulers."""
        self._must_be_open("keep")
        for name, part in parts.items():
            self._kept.add(name, part)
        self._recording.describe_training(keeps=sorted(self._kept.parts))
        self._harness.computes_on(self._kept.parameters())

    def epochs(self, count: int) -> Iterator[int]:
        """The numbers of the epochs that are left, from 0; none once the run is over."""
        self._must_be_open("epochs")
        if not isinstance(count, int) or count < 1:
            raise UserError(f"run.epochs({count!r}): give a whole number of epochs, at least 1.")
        self._loop.num_epochs = 2**31 if self._observer else count
        before = self._recording.before
        if before and before.status == "done" and self.over in ("max_seconds", "max_epochs"):
            raise nothing_to_do(self.folder, self._stopping.sentence(self.over))
        self._recording.describe_training(max_epochs=None if self._observer else count)
        return self._epochs()

    def _epochs(self) -> Iterator[int]:
        position, loop = self.position, self._loop
        loop.is_used = True
        while position.epoch < loop.num_epochs and not self.over:
            loop.enter_epoch()
            yield position.epoch
            if loop.given_out and not loop.epoch_is_over:
                if self.over:
                    return  # ended in the middle of an epoch
                loop.epoch_is_over = True  # the script left its batches early
            loop.leave_epoch(without_batches=not loop.given_out)
            self._kept.at_safe_point()

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of a loader, from where this run left off; they end when the run is over.

        A loader with `at(epoch, start)` begins anywhere; of others the used batches are drawn and dropped, with the
        random state that they were drawn with.
        """
        self._must_be_open("batches")
        return self._batches(loader)

    def _batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        loop = self._loop
        loop.is_used = True
        loop.leave_epoch()  # of a loop over batches alone, for whose epochs nobody asked
        if self.over:
            return
        batches = loop.begin_batches(loader)
        self.start_clock()
        while True:
            with phase(INPUT):
                batch = next(batches, self)
            if batch is self:
                break
            loop.give_out()
            yield batch
            over = bool(self.over)
            self._kept.at_safe_point(ends_here=over and not loop.is_last_batch)
            if over:
                loop.epoch_is_over = loop.is_last_batch
                return
        if not loop.given_out:
            raise UserError("run.batches got no batch: the loader is empty, or a generator that was used up before.")
        loop.epoch_is_over = loop.is_last_batch = True

    def phase(self, name: str) -> contextlib.AbstractContextManager:
        """Name a phase of the step for whoever profiles: "forward", "backward", "optimiser", or your own word."""
        return phase(name)

    def log(self, **numbers: float) -> None:
        """Record numbers of your own at this step."""
        self._must_be_open("log")
        for name, number in numbers.items():
            self._recording.metric(name, float(number), self.position.point)

    def load_best(self) -> bool:
        """Put the best weights by the target's metric into the models that are kept; whether to test them now.

        They are not where the run was stopped or profiled, or had tested these very weights.
        """
        self._must_be_open("load_best")
        if self._observer is not None or self.over == "stopped":
            return False
        tests = self._recording.tests()
        if tests and tests[-1].get("best_step") == self.position.tested_step:
            self._test_metrics = tests[-1]["metrics"]
            return False
        self._kept.save()
        self._kept.is_frozen = True  # or the run would go on from its best weights, not from its last
        if self.position.best_step is not None and self.position.keeps_best:
            self._kept.load_best()
        return True

    def test(self, **metrics: float) -> None:
        """Record the metrics of the test split: once, at the end."""
        self._must_be_open("test")
        look = len(self._recording.tests()) + 1
        self._test_metrics = self._evaluations.numbers(metrics)
        self._recording.event("tested", metrics=self._test_metrics, look=look, best_step=self.position.tested_step)
        if look > 1:
            self._recording.notice(f"this run has now been scored on the test split {look} times")

    def listen(self, listener: Callable[[Any], None]) -> None:
        """Tell `listener` of every event of `labkit.tracking.events` from here on."""
        self._must_be_open("listen")
        self._meter.listeners.append(listener)

    # parts of the above

    def start_clock(self, since: float | None = None) -> None:
        """Start sampler and clock, once everything is built; `since` is the moment that counts as the first."""
        if self._meter.is_running:
            return
        self._kept.restored = None  # all that is kept was named
        began = time.perf_counter()
        self._recording.begin(self._harness.computes_on(self._kept.parameters()))
        now = time.perf_counter()
        since = now if since is None else since + now - began
        self._meter.start(since)
        self._recording.event("began", clock_s=self.position.wall_s + now - since)

    def _stopped_by(self) -> str:
        if self._harness.stop:
            return f"stopped by {self._harness.stop.reason}"
        return "stopped on request" if self._recording.stop_asked else ""

    def _must_be_open(self, what: str) -> None:
        if self._recording is None or _open_run is not self:
            raise UserError(
                f"run.{what} was called outside of the run's block: write `with labkit.Run({self.name!r}) as run:` and "
                "call it inside."
            )
