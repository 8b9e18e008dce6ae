"""Runs a list of launches: starts those whose turn it is, watches them, and leaves nothing running however it ends."""

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from labkit import UserError, errors, jobs, json_data, process, runs, tracking
from labkit.launch.launches import Launches, Part

WARM = "LABKIT_WARM"
WORKER = "labkit.tracking.worker"
"""What `python -m` runs for a launch"""
LEFT_S = 40.0
"""Time in which what a killed launcher started ends by itself, before it is killed"""
IDLE_S = 300.0
"""Time without a process that it forked after which a notebook's template ends"""
TAIL = 4000
"""Characters of a log that are read for its last line"""

OnEvent = Callable[[Part, dict[str, Any]], None]
"""Called with a launch and what happened to it. The "kind" of an event is a class of `labkit.tracking.events`, Ended or
Failed (it reports its end), State (its status changed), Go (the barrier of its round was lifted) or Notice"""


@dataclass(frozen=True)
class Start:
    """What a launch is started with."""

    command: "tracking.ScriptCommand"
    environment: Mapping[str, str] = field(default_factory=dict)
    device: str = ""


@dataclass(frozen=True)
class End:
    """How the process of a launch ended."""

    status: str
    """One of ENDED"""
    reason: str
    said: Mapping[str, Any] = field(default_factory=dict)
    """What it reported itself, Ended or Failed; empty where it could not"""
    exit_status: int | None = None
    """Exit status of its process, below 0 a signal's number; None where that did not end"""
    was_asked: bool = False
    """Whether it was asked to end"""

    @property
    def answer(self) -> dict[str, Any]:
        """Run, folder, status and result; empty where there is no run."""
        answer = (self.said if self.said.get("kind") == "Ended" else self.said.get("answer")) or {}
        return {name: value for name, value in answer.items() if name != "kind"}


@dataclass(eq=False)
class _Round:
    """Launches that were started together."""

    parts: dict[str, Part]
    began_s: float = field(default_factory=time.monotonic)
    built: set[str] = field(default_factory=set)
    """Those that wait at the barrier"""
    went_s: float | None = None
    """When the barrier was lifted"""
    said: dict[str, tuple[dict[str, Any], float]] = field(default_factory=dict)
    """What each reported of its end, and when"""
    over: set[str] = field(default_factory=set)
    """Those whose process has ended"""
    folders: dict[str, str] = field(default_factory=dict)
    """Of the runs that have begun"""
    ending: tuple[str, str] | None = None
    """Status and reason of those that are asked to end"""


def starts_warm(command: "tracking.ScriptCommand", environment: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Whether the process of a command may be forked from a template, with these variables added."""
    is_ours = jobs.known_job(Path(errors.certain(command.script))) is not None
    # while they are loaded, libraries count the cores and read variables
    is_as_loaded = command.cores is None and not process.library_variables(environment)
    return (is_ours or os.environ.get(WARM) == "1") and is_as_loaded and process.is_possible()


class Engine:
    """Runs what waits in a list, round after round.

    A maker of lists overrides `due` (what may start now), `begin` (what a process gets), `settle` (what its end means),
    `heard` and `look` (what is done meanwhile).
    """

    poll_s = runs.STOP_POLL_S
    grace_s = process.GRACE_S
    shows_output = False
    """Whether what scripts print goes to standard error; else it goes to a log for each launch"""

    def __init__(
        self, launches: Launches, *, stop: "tracking.StopRequest", on_event: OnEvent = lambda part, event: None
    ):
        self.launches, self.stop, self.on_event = launches, stop, on_event
        self.pids: dict[str, int] = {}
        """Of the processes under way, by launch"""
        self._rounds: list[_Round] = []
        """Under way"""
        self._executor: process.SupervisedJobs | None = None

    # what makers override

    def due(self) -> list[list[Part]]:
        """The rounds that may start now: the first that is left, once all before it have ended."""
        left = (own for own in self.launches.rounds() if not all(part.has_ended for part in own))
        return [own for own in itertools.islice(left, 1) if all(part.status == "waiting" for part in own)]

    def begin(self, parts: Sequence[Part]) -> list[Start]:
        """What the launches of a round are started with; a UserError fails them all."""
        return [Start(part.launch.job) for part in parts]

    def settle(self, part: Part, end: End) -> None:
        """What a launch is, now that its process has ended; "waiting" starts it again."""
        part.status, part.reason = end.status, end.reason
        part.more = {"refused": bool(end.said.get("refused"))}

    def heard(self, part: Part, event: dict[str, Any]) -> None:
        """Called with what a launch reports."""

    def look(self) -> None:
        """Called at least every `poll_s` seconds."""

    # what they use

    @property
    def running(self) -> list[Part]:
        """The launches whose processes have not ended."""
        return [part for each in self._rounds for name, part in each.parts.items() if name not in each.over]

    def ask_to_end(self, part: Part, status: str, reason: str) -> None:
        """Ask the round of a launch to end; `status` and `reason` are those of what then stops."""
        for each in self._rounds:
            if part.name in each.parts and each.ending is None:
                each.ending = status, reason
                for name in each.parts.keys() - each.over:
                    errors.certain(self._executor).end(name)

    def log_tail(self, part: Part) -> str:
        """The end of what a script printed."""
        with contextlib.suppress(OSError), (self.launches.folder / part.log).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read().decode(errors="replace").strip()
        return ""

    def run(self) -> None:
        """Run to the end of the list, or until `stop` is requested; afterwards no process of it is left.

        Raises:
            UserError: the disk is full.
        """
        with self.launches.locked(), self.launches.running():
            try:
                with contextlib.ExitStack() as self._stack:
                    self._await_template()
                    while self._go_on():
                        self._listen()
            except BaseException:
                for part in self.running:  # their processes are gone
                    self._finish(part, End("stopped", "the launcher was interrupted"))
                raise
            statuses = {part.status for part in self.launches.parts.values()}
            self.launches.head.status = "stopped" if self.stop else "done" if statuses <= {"done"} else "failed"

    def _await_template(self) -> None:
        """Have a template in a notebook, for its later runs, too."""
        waiting = [part.launch.job for part in self.launches.parts.values() if not part.has_ended]
        if tracking.in_notebook() and any(map(starts_warm, waiting)):
            with errors.refusals():
                process.current_template(IDLE_S).await_ready(lambda: bool(self.stop))

    def _go_on(self) -> bool:
        """Start what is due; whether there is something to wait for."""
        if self.stop:
            for part in self.running:
                self.ask_to_end(part, "stopped", f"stopped by {self.stop.reason}")
        else:
            while not self.stop and (due := self.due()):
                for parts in due:
                    self._start(parts)
        return bool(self.running) or (not self.stop and self.awaits())

    def awaits(self) -> bool:
        """Whether something may be due later although nothing runs."""
        return False

    def executor(self) -> "process.SupervisedJobs":
        """Where processes run; a new one where there is none yet, or the one before was killed."""
        if self._executor is None or not self._executor.alive:
            several = len(self.launches.parts) > 1  # a single one would only wait for the template
            how = {"shows_output": self.shows_output, "makes_template": several}
            self._executor = self._stack.enter_context(process.SupervisedJobs(self.grace_s, **how))
            self.launches.head.mark = self._executor.mark
            self.launches.save_head()
        return self._executor

    def _start(self, parts: list[Part]) -> None:
        for part in parts:
            part.wait_again()
            part.status, part.attempts = "running", part.attempts + 1
            part.log = "" if self.shows_output else f"logs/{part.name}{f'-{part.attempts}' * (part.attempts > 1)}.log"
        executor = self.executor()
        try:
            starts = self.begin(parts)
        except UserError as error:  # what was possible at a check is so no longer
            for part in parts:
                self._finish(part, End("failed", str(error), {"refused": True}))
            return
        except BaseException as error:
            for part in parts:
                part.status, part.attempts = "waiting", part.attempts - 1
            if isinstance(error, KeyboardInterrupt) and self.stop:  # while it waited for cores
                return
            raise
        for part, start in zip(parts, starts, strict=True):
            part.device = start.device
        self.launches.save(*parts)
        self._rounds.append(_Round({part.name: part for part in parts}))
        for part, start in zip(parts, starts, strict=True):
            command = replace(start.command, waits=bool(part.launch.together))
            log = str(self.launches.folder / part.log) if part.log else ""
            content, environment = json_data.to_json(command), dict(start.environment)
            executor.start(part.name, WORKER, content, log, environment, warm=starts_warm(command, environment))
            self.on_event(part, {"kind": "State"})

    def _listen(self) -> None:
        try:
            if not self.running:
                time.sleep(self.poll_s)
            elif executor := self._executor:
                event = executor.next_event(self.poll_s)
                while event is not None:
                    self._hear(event)
                    event = executor.next_event(0)
            self.look()
            for each in self._rounds:
                self._look_at(each)
        except process.SupervisorDied as error:
            for part in self.running:
                self._finish(part, End("failed", str(error)))

    def _look_at(self, each: _Round) -> None:
        """Lift the barrier of a round when all are built; end it when its time is over.

        Where one cannot be built none is let go: they were to run together.
        """
        part = next(iter(each.parts.values()))
        if each.ending is not None:
            return
        if part.launch.limit_s is not None and time.monotonic() - each.began_s > part.launch.limit_s:
            for name in each.parts.keys() - each.over:
                each.parts[name].out_of_time = True
            # first, for should the launcher be killed now, the runs end as well, and no reader could tell why
            self.launches.save(*each.parts.values())
            self.ask_to_end(part, "timed_out", f"not done {part.launch.limit_s:g} s after it was started")
        elif part.launch.together and each.went_s is None:
            if gone := each.over | each.said.keys():
                first = each.parts[min(gone)]
                status = each.said[first.name][0]["status"] if first.name in each.said else first.status
                said = each.said[first.name][0].get("result", {}).get("reason") if status == "done" else None
                why = f" without a step ({said})" if said else " without a step" * (status == "done")
                self.ask_to_end(
                    part, "stopped", f"not started, because {self.title(first)} ended before the start{why}"
                )
            elif len(each.built) == len(each.parts):
                errors.certain(self._executor).go(*each.parts)
                each.went_s = time.monotonic()
                for own in each.parts.values():
                    own.go_at = runs.timestamp()
                self.launches.save(*each.parts.values())
                self.on_event(part, {"kind": "Go"})

    def title(self, part: Part) -> str:
        """The name of a launch for people."""
        return part.name

    def _hear(self, event: dict[str, Any]) -> None:
        name = event.get("job")
        each = next((each for each in self._rounds if name in each.parts and name not in each.over), None)
        if each is None:
            return
        part = each.parts[event["job"]]
        if event["kind"] == "started":
            self.pids[part.name] = event["pid"]
        elif event["kind"] == "ended":
            self.pids.pop(part.name, None)
            self._finish(part, self._end_of(each, part, event))
        elif event["kind"] == "told":
            told = event["event"]
            if told["kind"] == "Started":
                part.run, each.folders[part.name] = told["run"], told["folder"]
                self.launches.save(part)
            elif told["kind"] == "Ready":
                each.built.add(part.name)
            elif told["kind"] in ("Ended", "Failed"):
                each.said[part.name] = told, time.monotonic()
            self.heard(part, told)
            self.on_event(part, told)

    def _end_of(self, each: _Round, part: Part, event: dict[str, Any]) -> End:
        """How a process ended, by what it reported, or by what its status says."""
        said, at_s = each.said.get(part.name, ({}, time.monotonic()))
        status = said.get("status") or ("stopped" if event["asked"] else "failed")
        reason = said.get("reason", "")
        end = End(status, reason, said, event["status"], event["asked"])
        if end.answer:
            part.run = part.run or end.answer["run"]
            reason = reason or end.answer["result"].get("reason", "")
        elif not event["asked"] and (event["status"] or 0) < 0 and part.name in each.folders:
            # it crashed, or the system had no memory: its own record cannot say so
            reason = reason or process.how_ended(event)
            with contextlib.suppress(UserError, OSError):
                runs.fail_killed(each.folders[part.name], reason)
        reason = reason or process.how_ended(event)
        if said.get("exit_code") is not None:  # of a script that had no run: its last line says more
            last = self.log_tail(part).rpartition("\n")[2]
            reason = f"{reason}: {last}" if last and last not in reason else reason
        if status == "stopped" and each.ending is not None:
            status, reason = each.ending
        part.seconds = time.monotonic() - each.began_s
        part.wall_s = end.answer.get("result", {}).get("wall_s")
        if part.wall_s is None and each.went_s is not None:
            part.wall_s = at_s - each.went_s
        return replace(end, status=status, reason="; ".join(filter(None, [reason, *event["still"]])))

    def _finish(self, part: Part, end: End) -> None:
        for each in self._rounds:
            if part.name in each.parts:
                each.over.add(part.name)
        self._rounds = [each for each in self._rounds if each.over < each.parts.keys()]
        self.settle(part, end)
        self.launches.save(part)
        self.on_event(part, {"kind": "State"})


def end_left_over(launches: Launches) -> None:
    """Wait for the processes of a launcher that was killed, which thereby asked them to end; kill those that do not."""
    if mark := launches.head.mark:
        process.wait_until_gone(lambda: process.marked(mark), LEFT_S)
        process.kill_until_gone(lambda: process.marked(mark))


def resume(launches: Launches) -> None:
    """Make what is not done wait again; a round of which something is left starts again as a whole."""
    end_left_over(launches)
    found = unheard_records(launches)
    for parts in launches.rounds():
        for part in parts:
            if (record := found.get(part.name)) is not None and record.status == "done":
                part.status, part.run, part.reason = "done", record.id, (record.result or {}).get("reason") or ""
                part.wall_s = (record.result or {}).get("wall_s")
        if any(part.status != "done" for part in parts):
            for part in parts:
                part.wait_again()


def unheard_records(launches: Launches) -> "dict[str, runs.RunRecord]":
    """The records, by name, of launches that were under way when their launcher was killed: an end may be missed."""
    logs = {part.log: name for name, part in launches.parts.items() if part.status == "running"}
    found = {}
    for _, record in runs.readable_runs(runs.run_folders(launches.runs_dir)) if logs else ():
        if (name := logs.get(record.config.get("collocation", {}).get("log", ""))) is not None:
            found[name] = record
    return found
