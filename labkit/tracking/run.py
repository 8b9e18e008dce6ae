"""`labkit.Run`: all that a training script needs to measure what it costs to reach a target."""

import contextlib
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit import UserError, errors, runs
from labkit.tracking.checkpoints import Kept
from labkit.tracking.ending import EXIT_STOPPED, Diverged, Enough, Stopped, StopRequest, in_notebook, is_cut_off
from labkit.tracking.events import INPUT, ProgressLine, phase
from labkit.tracking.goal import CONFIRM, Goal, Target, evaluated_name
from labkit.tracking.harness import Harness, ScriptCommand, SpawnedHarness, current_harness
from labkit.tracking.log import RunLog, nothing_to_do, own_rank
from labkit.tracking.position import Loop, Meter, Position
from labkit.tracking.ranks import Ranks
from labkit.tracking.stages import Stage, measured
from labkit.tracking.values import real, settings, whole
from labkit.tracking.watch import Watch

_open_run: "Run | None" = None


def open_run() -> "Run | None":
    """The run that is open in this process."""
    return _open_run


class Run:
    """Measures the time of a training script, watches its target, and writes its run folder.

        with labkit.Run("my-cnn", target="accuracy >= 0.9", config={"lr": 0.1}) as run:
            for epoch in range(20):
                for x, y in loader:
                    ...
                    run.step(loss, samples=len(y))
                if run.evaluate(accuracy=score(model)):
                    break

    The clock starts at the first batch of `run.batches`, or when the block is entered. Time up to a `step` is training.
    Time from the last `step` to the end of `evaluate` is evaluation, and counts as wall time only. `labkit run`,
    `profile run` and `collocate` provide the folder, the budget, the sampler and stop requests.
    """

    def __init__(
        self,
        name: str,
        *,
        target: Target | str | None = None,
        confirm: int = CONFIRM,
        config: Any = None,
        runs_dir: Path | str = "runs",
        max_seconds: float | None = None,
        evaluate_every: int | None = None,
        patience: int | None = None,
        seed: int | None = None,
    ):
        """Describe a run; entering the block starts it.

        Args:
            name: name of the job; figures compare runs with the same name.
            target: for example "auc >= 0.78"; "max auc" watches for the best value and never ends the run.
            confirm: number of evaluations in a row, at or past the target, that confirm it.
            config: settings that decide the run: a dictionary (one in it is a section), an argparse.Namespace, a
                dataclass, or OmegaConf's; paths, devices, enums and other libraries' numbers are written as text or
                number. A resumed run must have the same.
            runs_dir: folder in which the run's folder is made, unless a labkit command provides one.
            max_seconds: seconds of wall time after which the run is over.
            evaluate_every: number of samples after which `run.due` asks for an evaluation; None: each epoch's end.
            patience: number of evaluations without a better value after which the run is over.
            seed: seed to record; the default is the one with which a labkit command seeded Python, NumPy and torch.
        """
        if not isinstance(name, str) or not name.strip():
            raise UserError(f"labkit.Run({name!r}): give the run a name, for example labkit.Run('my-cnn').")
        self.name, self.config, self._runs_dir = name, settings(config), Path(runs_dir)
        self.seed = None if seed is None else whole(seed, "labkit.Run: seed")
        wanted = target if target is None or isinstance(target, Target) else Target.parse(target)
        self.goal = Goal(wanted, confirm, max_seconds, evaluate_every, patience)
        self.position = Position(next_evaluation=self.goal.evaluate_every or 0)
        self.result: dict[str, Any] = {}
        """The result of the run; complete after the block."""
        self._log: RunLog = None  # ty: ignore[invalid-assignment]  # until the block begins
        self.is_implicit = False
        """Whether this run counts the steps of a script that has no run of its own."""
        self.remark = ""
        """What the reason of its end does not say, such as what was not counted."""
        self.is_leaving = False
        """Whether its end is being recorded, which must not be interrupted."""

    # the block

    def __enter__(self) -> "Run":
        global _open_run
        if _open_run is not None:
            raise UserError(
                f"run {_open_run.name!r} is still open, and a process can have one run at a time: leave its `with` "
                f"block before {self.name!r} starts, or train the two in separate processes."
            )
        own = Harness(StopRequest(), ScriptCommand(runs_dir=str(self._runs_dir)), ProgressLine(), is_script=True)
        self._harness = current_harness() or SpawnedHarness.found() or own
        self._harness.had_run = True
        self._observer = self._harness.observer
        if self._observer is not None and self._harness.answer:
            raise Enough  # the observer has seen one run of the script
        if self._observer is not None:  # an observed run has no target
            self.goal = replace(self.goal, target=None, max_seconds=None, patience=None)
        self._test_metrics: dict[str, float] = {}
        self.seed = self._harness.settle_seed(self.seed)
        self._ranks = Ranks.found(exchanges=not self.is_implicit)
        self._exchange = None if self.is_implicit else self._ranks
        self._log = RunLog(self._harness, self.name, self.config, self.goal, self.seed, self._ranks)
        self.folder: Path = self._log.folder
        self._meter = Meter(self.position, self._log, lambda what, at: self._kept.diverged(what, at))
        self._loop = Loop(self.position, self._log.event)
        self._watch = Watch(self.goal, self._meter, self._log)
        self._kept = Kept(self._meter, self._loop, self._watch, self._log)
        _open_run = self
        try:
            if self._log.before is not None:
                self._kept.resume()
            self._log.started(self.position)
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

    def _leave(self, error: BaseException | None) -> "runs.Status":
        """Record how it ended. Returns its status."""
        global _open_run
        status, word, reason = self._watch.ending_of(error)
        if self._ranks is not None:
            if is_cut_off(error):
                reason = self._ranks.blame() or reason
            self._ranks.close(error, status, reason)
        if self._log.before is not None and not self._meter.is_running and word == "refused":
            _open_run = None
            self._log.leave_as_it_was(reason)
            return status
        try:
            if error is None or isinstance(error, Stopped):
                self._meter.read_losses(wait=True)
                self._kept.save()
        except Exception as late:  # a loss that is not a number, a full disk, a missing folder
            status, word, reason = self._watch.ending_of(late)
            error = error or late
            raise
        finally:
            self.is_leaving = True
            self._loop.let_go()
            self.result = self._watch.result()
            self.result |= {"metrics": self._test_metrics, "reason": reason + self.remark, "ended_by": word}
            self.result |= {"stages": self._log.stages} if self._log.stages else {}
            if isinstance(error, SystemExit) and isinstance(error.code, int):
                self.result["exit_code"] = error.code
            try:
                is_fault = isinstance(error, Exception) and not isinstance(error, Diverged)  # that is recorded already
                self._log.finish(status, self.result, is_fault=is_fault)
            finally:
                _open_run = None
        return status

    # what a script calls

    def step(self, loss: Any = None, *, samples: int) -> None:
        """Count a step that has just been taken. A loss on a GPU is read later, without waiting for the GPU.

        Args:
            loss: the loss, as a number or a tensor with one number.
            samples: number of samples in the step.

        Raises:
            RunFailed: a loss is not a number, so the run has failed.
        """
        self._must_be_open("step")
        samples = whole(samples, "run.step: samples", least=0)
        self.start_clock(self._entered_at)
        self.position.is_frozen = False
        self._meter.step(loss, samples)
        self.position.seen_enough = self._harness.stepped()
        self._meter.book(training=False)  # the time that labkit itself took
        if self.position.seen_enough:
            raise Enough
        if not (self.position.has_loop or self.is_implicit) and self.over == "stopped":
            raise Stopped  # there is no loop of labkit that could end

    def evaluate(self, **metrics: float) -> bool:
        """Record an evaluation of the current model. Returns True if the run is over.

        A metric "loss" is recorded as "validation_loss", because "loss" is that of the steps.

        Raises:
            UserError: the target's metric is missing.
            RunFailed: a metric or a weight is not a number, so the run has failed.
        """
        self._must_be_open("evaluate")
        self.start_clock(self._entered_at)
        self._meter.book(training=False)
        if self._observer is not None:
            return False
        with self._exchange.together() if self._exchange else contextlib.nullcontext():
            numbers = self._watch.numbers({evaluated_name(name): value for name, value in metrics.items()})
            self._meter.read_losses(wait=True)
            self._kept.check_weights()
        rested = self._kept.has_rested
        if self._exchange is not None:
            numbers, rested = self._exchange.first_says((numbers, rested))
        self._watch.check(numbers)
        if self.position.samples >= self.position.next_evaluation:  # otherwise it is an extra one
            self.position.next_evaluation = self.position.samples + (self.goal.evaluate_every or 0)
        if self._watch.take(numbers):
            self._kept.note_best()
        self._meter.report(evaluated=True)
        self._meter.book(training=False)
        self.position.needs_checkpoint = rested or not self._kept.shared
        if not self.position.has_loop:
            self._kept.at_safe_point()
        self._watch.agree()
        return bool(self.over)

    @property
    def due(self) -> bool:
        """Whether to evaluate now: enough samples have passed, an epoch ends, or the time is up.

        If it is True, this waits for the GPU, so that training time ends before evaluation starts.
        """
        self._must_be_open("due")
        position, every = self.position, self.goal.evaluate_every
        if self._observer is not None or position.evaluated_step == position.step:
            return False
        is_last_epoch = position.num_epochs is not None and position.epoch + 1 >= position.num_epochs
        ends = position.is_last_batch and (every is None or is_last_epoch)
        if not (ends or (every and position.samples >= position.next_evaluation) or self._watch.out_of_time):
            return False
        self._meter.read_losses(wait=True)
        if self._meter.is_running:
            self._meter.book(training=True)
        return True

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes the run: rank 0, or the only one.

        The others may call `evaluate` and `test` without metrics: those of rank 0 count.
        """
        return own_rank() == 0

    @property
    def wall_s(self) -> float:
        """Seconds since the clock started; on all of several ranks those of rank 0 at the latest step."""
        agreed = self.position.agreed_wall_s
        return self.position.wall_s if agreed is None else agreed

    @property
    def over(self) -> str:
        """Why the run is over: "stopped", "target", "max_seconds", "max_epochs" or "patience"; empty if it is not."""
        return self._watch.over if self._log is not None else ""

    def keep(self, **parts: Any) -> None:
        """Name the models, optimisers and schedulers that checkpoints hold; a resumed run restores their state."""
        self._must_be_open("keep")
        for name, part in parts.items():
            self._kept.add(name, part)
        self._log.describe_training(keeps=sorted(self._kept.parts))
        self._harness.computes_on(self._kept.parameters())

    def epochs(self, count: int) -> Iterator[int]:
        """The numbers of the remaining epochs, counted from 0; they end when the run is over."""
        self._must_be_open("epochs")
        count = whole(count, "run.epochs: count", least=1)
        self.position.num_epochs = 2**31 if self._observer else count
        before = self._log.before
        if before and before.status == "done" and self.over in ("max_seconds", "max_epochs"):
            raise nothing_to_do(self.folder, self._watch.sentence(self.over))
        self._log.describe_training(max_epochs=None if self._observer else count)
        return self._epochs()

    def _epochs(self) -> Iterator[int]:
        position, loop = self.position, self._loop
        position.has_loop = True
        while position.epoch < errors.certain(position.num_epochs) and not self.over:
            loop.enter_epoch()
            yield position.epoch
            if position.given_out and not position.epoch_is_over:
                if self.over:
                    return  # it ended in the middle of an epoch
                position.epoch_is_over = True  # the script left its batches early
            loop.leave_epoch(without_batches=not position.given_out)
            self._kept.at_safe_point()

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of a loader, from where this run is; they end when the run is over.

        A resumed run calls `at(epoch, start)` of a loader that has it. From another loader it draws and drops the used
        batches, with the random state with which they were first drawn.
        """
        self._must_be_open("batches")
        return self._batches(loader)

    def _batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        position, loop = self.position, self._loop
        position.has_loop = True
        loop.leave_epoch()  # for a loop over batches without `epochs`
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
            self._kept.at_safe_point(ends_here=over and not position.is_last_batch)
            if over:
                position.epoch_is_over = position.is_last_batch
                return
        if not position.given_out:
            raise UserError("run.batches got no batch: pass a loader that is not empty (or a generator not used up).")
        position.epoch_is_over = position.is_last_batch = True

    def phase(self, name: str) -> contextlib.AbstractContextManager:
        """Name a phase of the step for profilers: "forward", "backward", "optimiser", or a name of your own."""
        return phase(name)

    @contextlib.contextmanager
    def stage(self, name: str, *, at: str = "", smaller: str = "") -> Generator[Stage]:
        """A part of the run that is no training step: its seconds, joules and most memory are recorded.

            with run.stage("load", at="scale 4", smaller="--scale 2") as stage:
                table = pd.read_csv(path)
                stage.note(rows=len(table))

        If memory runs out inside it, the message names the stage, `at` which size, and what makes it `smaller`.
        """
        self._must_be_open("stage")
        self.start_clock(self._entered_at)
        self._meter.book(training=False)
        with measured(Stage(name), self._log, self._harness.budget, at, smaller) as stage:
            yield stage
        self._meter.book(training=True)
        if not self.position.has_loop and self.over == "stopped":
            raise Stopped

    def log(self, **numbers: float) -> None:
        """Record numbers of your own, at this step."""
        self._must_be_open("log")
        for name, number in numbers.items():
            self._log.metric(name, real(number, f"run.log: {name}"), self.position.point)

    def load_best(self) -> bool:
        """Load the best weights by the target's metric into the kept models. Returns whether to test them now.

        It returns False if the run was stopped or profiled, or if these weights were tested before.
        """
        self._must_be_open("load_best")
        if self._observer is not None or self.over == "stopped":
            return False
        tests = self._log.tests()
        is_tested = bool(tests) and tests[-1].get("best_step") == self.position.tested_step
        if self._exchange.first_says(is_tested) if self._exchange is not None else is_tested:
            self._test_metrics = tests[-1]["metrics"] if is_tested else {}
            return False
        self._kept.save()
        self.position.is_frozen = True  # or a resume would start from the best weights, not from the last
        if self.position.best_step is not None and self.position.keeps_best:
            self._kept.load_best()
        return True

    def test(self, **metrics: float) -> None:
        """Record metrics of the test split, once, at the end."""
        self._must_be_open("test")
        look = len(self._log.tests()) + 1
        self._test_metrics = self._watch.numbers(metrics)
        self._log.event("tested", metrics=self._test_metrics, look=look, best_step=self.position.tested_step)
        if look > 1:
            self._log.notice(f"this run has now been scored {look} times on the test split")

    def listen(self, listener: Callable[[Any], None]) -> None:
        """Call `listener` with every event of `labkit.tracking.events` from here on."""
        self._must_be_open("listen")
        self._meter.listeners.append(listener)

    # parts of the above

    def start_clock(self, since: float | None = None) -> None:
        """Start sampler and clock once everything is built; `since` is the moment at which the clock starts."""
        if self._meter.is_running:
            return
        self._kept.restored = None  # the script has named everything that it keeps
        began = time.perf_counter()
        self._log.begin(self._harness.computes_on(self._kept.parameters()))
        if self._exchange is not None:
            self._exchange.first_says(None)  # the clocks of all ranks start once rank 0 has its sampler
        now = time.perf_counter()
        since = now if since is None else since + now - began
        self._meter.start(since)
        self._log.event("began", clock_s=self.position.wall_s + now - since)

    def _must_be_open(self, what: str) -> None:
        if self._log is None or _open_run is not self:
            raise UserError(
                f"run.{what} was called outside the run's block: write `with labkit.Run({self.name!r}) as run:` and "
                "call it inside."
            )
