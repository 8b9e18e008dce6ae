"""This process as one of a run's several ranks: what they exchange at each step, and what each writes of itself.

All ranks call the same methods of `Run`. In `Run.step` they sum their losses, samples and flags, so that all of them
know the mean loss, and end after the same step. A flag is summed because gloo's MAX and MIN can lose a NaN.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from labkit import UserError, errors, hardware, project, runs, telemetry
from labkit.tracking.ending import Diverged, Stopped, is_cut_off

WORDS = ("", "stopped", "target", "max_seconds", "max_epochs", "patience", "profiled")
"""Reasons why rank 0 is over, by the number that the others get"""
FREE = ("rank", "device", "seed", "world")
"""Parts of the names of settings that ranks may differ in"""
JUDGES = 4
"""Number of ranks that look for one that hangs: more would read each other's files all the time"""
BLAME_S = 2.0
"""Seconds in which a rank whose connection broke waits for another one's last word"""
OWN, LIBRARY = Path(__file__).parents[1], Path(sysconfig.get_paths()["stdlib"])


class Ranks:
    """The ranks of this run."""

    def __init__(self, *, exchanges: bool):
        """Without `exchanges` they only write of themselves: the steps of a script without `Run` need not be equal."""
        self.rank, self.count, self.exchanges = dist.get_rank(), dist.get_world_size(), exchanges
        self.own_reason: Callable[[], str] = str
        """Why this process is over by itself, as `Run.over` says it"""
        self.everyone: list[dict[str, Any]] = []
        """Host, pid, versions and settings of all ranks, by rank; empty without exchanges"""
        self._position: Any = None  # Any: a Position, whose file imports this one
        pid, started = runs.own_process()
        self._word = runs.RankWord(self.rank, self.count, platform.node(), pid, started)
        self._folder: Path | None = None
        self._store: Any = None if exchanges else dist.distributed_c10d._get_default_store()
        self._main = errors.certain(threading.main_thread().ident)
        self._over, self._writer = threading.Event(), threading.Thread(target=self._write, daemon=True)
        self._watch: runs.HangWatch | None = None
        self._phases_s: dict[str, list[float]] = {}

    @classmethod
    def found(cls, *, exchanges: bool) -> Ranks | None:
        """The ranks that this process is one of; None if it is the only one, or has not joined the others yet."""
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        if several:
            return cls(exchanges=exchanges)
        if exchanges and (count := int(os.environ.get("WORLD_SIZE") or "1")) > 1 and not dist.is_initialized():
            raise UserError(
                f"this script was started on {count} processes, but each of them would train by itself: call "
                'torch.distributed.init_process_group("gloo") before labkit.Run, and train with '
                "DistributedDataParallel (docs/clusters.md)."
            )
        return None

    # the beginning

    def meet(self, settings: dict[str, Any]) -> None:
        """Refuse ranks that differ in settings, data or versions.

        Raises:
            UserError: on all ranks, with the rank and the host that differ.
        """
        if not self.exchanges:
            return
        versions: dict[str, Any] = {"labkit": project.VERSION, "python": ".".join(platform.python_version_tuple()[:2])}
        versions["torch"] = hardware.package_versions().get("torch")
        own = {name: repr(value) for name, value in (versions | settings).items()}
        own = {name: value for name, value in own.items() if not any(free in name for free in FREE)}
        everyone: list[Any] = [None] * self.count
        dist.all_gather_object(everyone, {"host": self._word.host, "pid": self._word.pid, "settings": own})
        self.everyone, first = everyone, everyone[0]["settings"]
        for rank, each in enumerate(everyone):
            for name in sorted(first.keys() | each["settings"].keys()):
                if (ours := first.get(name)) != (its := each["settings"].get(name)):
                    raise UserError(
                        f"rank {rank} of {self.count} on {each['host']} has {name} {its}, but rank 0 on "
                        f"{everyone[0]['host']} has {ours}: start all ranks with the same script, settings, data and "
                        "versions."
                    )

    @property
    def here(self) -> dict[int, int]:
        """The ranks of this host, by pid."""
        own = self._word.host
        return {each["pid"]: rank for rank, each in enumerate(self.everyone) if each["host"] == own}

    def first_makes(self, make: Callable[[], str]) -> str | None:
        """The run's folder, which rank 0 makes, as far as this rank knows it. An error of rank 0 ends all of them."""
        folder, failure = None, None
        if self.rank == 0:
            try:
                folder = make()
            except UserError as error:
                failure = error
        if self.exchanges:
            folder, said = self.first_says((folder, failure and str(failure)))
            if said and failure is None:
                raise UserError(f"rank 0 of {self.count}: {said}")
        elif folder is not None:
            self._store.set("labkit/folder", folder)
        if failure is not None:
            raise failure
        return folder

    def begin(self, folder: str | None, position: Any) -> None:
        """Write of this rank into the run's folder from here on, if this host sees it."""
        self._position = position
        if folder is not None and Path(folder).is_dir():
            self._folder = Path(folder)
        self._say()  # a rank that stops within its first half second is known, too
        self._writer.start()

    # steps

    def exchange(self, loss: Any, samples: int) -> torch.Tensor:
        """Sum this step over all ranks; `read` reads what came of it."""
        on_gpu = isinstance(loss, torch.Tensor) and loss.is_cuda
        on_gpu = "nccl" in dist.get_backend() or (on_gpu and "gloo" not in dist.get_backend())
        numbers = torch.zeros(8, dtype=torch.float64, device="cuda" if on_gpu else "cpu")
        if loss is not None:
            weight = samples or 1
            numbers[0], numbers[1] = loss.detach() if isinstance(loss, torch.Tensor) else loss, weight
            bad = (~torch.isfinite(numbers[0])).double()
            numbers[3], numbers[4] = bad, bad * (self.rank + 1)
            numbers[0] *= weight
        numbers[2] = samples
        reason = self.own_reason()
        numbers[5] = float(reason == "stopped")
        if self.rank == 0:
            numbers[6], numbers[7] = WORDS.index(reason), self._position.wall_s
        dist.all_reduce(numbers)
        return numbers

    def read(self, numbers: torch.Tensor) -> tuple[float | None, int, str]:
        """The mean loss of all ranks (None: there is none), the sum of their samples, and where a loss is no number.

        It also takes the reason why the run is over.
        """
        loss, weight, samples, bad, bad_rank, stopped, word, wall_s = numbers.tolist()
        self._position.agreed = "stopped" if stopped else WORDS[int(word)]
        self._position.agreed_wall_s = wall_s
        where = f" on rank {int(bad_rank) - 1}" if bad == 1 else f" on {bad:.0f} ranks" if bad else ""
        return (loss / weight if weight else None), int(samples), where

    @contextlib.contextmanager
    def together(self) -> Generator[None]:
        """If something is no number on any rank in this block, all of them end as diverged."""
        found = None
        try:
            yield
        except Diverged as error:
            found = error
        bad = torch.tensor(float(found is not None), device="cuda" if "nccl" in dist.get_backend() else "cpu")
        dist.all_reduce(bad)
        if found is not None:
            raise found
        if bad:
            raise Diverged(f"{self._folder or 'this run'}: a number of an evaluation is not finite on another rank.")

    def first_says(self, value: Any) -> Any:
        """The value that rank 0 has, on all ranks."""
        content = [value]
        dist.broadcast_object_list(content, src=0)
        return content[0]

    # the end

    def close(self, error: BaseException | None, status: str, reason: str) -> None:
        """Write this rank's last word."""
        self._over.set()
        if self._writer.ident is not None:
            self._writer.join()
        ended = status
        if error is not None and not isinstance(error, Stopped | KeyboardInterrupt):
            clean = isinstance(error, SystemExit) and error.code in (None, 0)
            ended = "cut_off" if is_cut_off(error) else "raised"
            kinds = ((Diverged, "diverged"), (UserError, "refused"), (SystemExit, "done" if clean else "exited"))
            ended = next((word for kind, word in kinds if isinstance(error, kind)), ended)
            ended = "out_of_memory" if hardware.is_out_of_memory(error) else ended
        trace = None if error is None else error.__traceback__
        self._say([*traceback.walk_tb(trace)][::-1], ended=ended, words=reason)

    def blame(self) -> str:
        """A sentence on the rank because of which this one lost its connections; empty if it cannot be found."""
        until = time.monotonic() + BLAME_S
        while self._folder is not None:
            others = [word for word in runs.read_ranks(self._folder) if word.rank != self.rank]
            if (found := runs.first_failure([*others, replace(self._word, ended="cut_off")])) is not None:
                return found[1]
            if time.monotonic() > until:
                break
            time.sleep(0.05)
        return ""

    def table(self, *, waits: bool) -> list[dict[str, Any]]:
        """What each rank was and took; with `waits`, once all have written their last word."""
        until = time.monotonic() + BLAME_S * waits
        while self._folder is not None:
            words = runs.read_ranks(self._folder)
            others_ended = all(word.ended or word.is_gone for word in words if word.rank != self.rank)
            if (len(words) == self.count and others_ended) or time.monotonic() > until:
                names = ("rank", "host", "pid", "peak_memory_bytes", "cpu_s", "ended", "phases_s")
                return [{name: getattr(word, name) for name in names} for word in words]
            time.sleep(0.02)
        return []

    # what it writes

    @contextlib.contextmanager
    def timed(self, phase: str) -> Generator[None]:
        """Time a phase of a step, and in how much of it the main thread of this rank did not compute.

        On CPUs a thread that waits for other ranks, or for an exchange with them, does not compute. The last rank to
        arrive waits for none, so the least such time of all ranks is that of the exchange, and what another has more is
        waiting.
        """
        began, computed = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            took = time.perf_counter() - began
            total = self._phases_s.setdefault(phase, [0.0, 0.0])
            total[0] += took
            total[1] += max(0.0, took - (time.thread_time() - computed))

    def _write(self) -> None:
        limit_s = runs.hang_s() + self.rank  # the lowest rank that can judges first
        while not self._over.wait(runs.BEAT_S):
            if self._folder is None and self._store is not None:
                with contextlib.suppress(Exception):  # the store goes with its process
                    if self._store.check(["labkit/folder"]):
                        folder = Path(self._store.get("labkit/folder").decode())
                        self._folder = folder if folder.is_dir() else None
            if self._folder is None:
                continue
            self._say()
            if self.rank < JUDGES:
                self._watch = self._watch or runs.HangWatch(self._folder, limit_s)
                if (found := self._watch.look()) is not None and not self._over.is_set():
                    self._end_hung(found[1])

    def _end_hung(self, reason: str) -> None:
        """End a run that hangs. The main thread waits in a call that nothing interrupts, so the process ends here."""
        self._say(ended="hung", words=reason)
        with contextlib.suppress(UserError, OSError):
            runs.fail_killed(errors.certain(self._folder), reason, even=("interrupted", "running"))
        os._exit(1)

    def _say(self, frames: Iterable[tuple[FrameType, int]] | None = None, **more: Any) -> None:
        """Write where this rank is; `frames`, innermost first, have lines; by default those of its main thread."""
        if self._folder is None:
            return
        if frames is None:
            frames = traceback.walk_stack(sys._current_frames()[self._main])
        place, waits = _place(frames)
        position = self._position
        self._word = replace(
            self._word,
            step=position.step,
            progress=position.step + position.given_out + position.epoch + max(position.evaluated_step, 0),
            place=place,
            waits=waits,
            written_at=time.time(),
            cpu_s=telemetry.family_cpu_s(),
            peak_memory_bytes=telemetry.own_peak_bytes(),
            phases_s=self._phases_s,
            **more,
        )
        self._word.save(self._folder)


def _place(frames: Iterable[tuple[FrameType, int]]) -> tuple[str, bool]:
    """The innermost line of a script, and whether a library is further in."""
    for number, (frame, line) in enumerate(frames):
        path = Path(file := frame.f_code.co_filename)
        is_own = path.is_relative_to(OWN) and not path.is_relative_to(OWN / "jobs")
        if not (is_own or path.is_relative_to(LIBRARY) or "site-packages" in path.parts or file.startswith("<")):
            return f"{path.name}:{line}", number > 0
    return "", True
