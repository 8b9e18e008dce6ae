"""Runs a mix round by round, and goes on with one that was cut short; the notebooks' way to do that in one call."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from labkit import UserError, hardware, json_data, launch, process, runs, tracking
from labkit.launch.launches import FILE, OLD, Head
from labkit.sharing.check import check_mix, job_memory
from labkit.sharing.modes import mode_shares
from labkit.sharing.shares import Place, Share, leased_cpu

FREE_AGAIN_S = 10.0
"""Time for which a driver may list the processes of a round after it has ended"""


def mix_of(
    jobs: str,
    modes: Sequence[str],
    *,
    repeats: int = 1,
    seconds: float | None = None,
    baseline: str = "each",
    device: str | None = None,
) -> launch.Mix:
    """The mix that `labkit collocate --jobs JOBS --mode MODES` runs.

    Args:
        jobs: such as "dlrm:tour x3, speech:tour".
        modes: some of `labkit.launch.MODES`.
        repeats: number of times that each round runs.
        seconds: as in `with_seconds`.
        baseline: as in `with_baseline`.
        device: cpu, a GPU's number or UUID; None takes the first GPU, or the CPU.
    """
    parsed = tuple(launch.parse_jobs(jobs))
    workloads = tuple(launch.Workload(mode, mode, parsed) for mode in modes)
    mix = launch.Mix("jobs", workloads, device=device, repeats=repeats)
    return launch.with_baseline(launch.with_seconds(mix, seconds), baseline)


def collocate(mix: launch.Mix, runs_dir: Path | str) -> Path:
    """Run a mix to its end; interrupting the kernel ends it politely, and what it did stays in its folder.

    That folder is made in `runs_dir`. Warnings are printed, and a line for each round.

    Returns:
        The folder of the mix, for `labkit.sharing.verdict`.

    Raises:
        UserError: the mix cannot run here, with every reason; nothing was started then. Or a job failed.
    """
    with leased_cpu(hardware.find_device(mix.device, hardware.get_devices()), say=print):
        found = check_mix(mix, job_memory)
        if found.refusals:
            raise UserError("\n".join(["nothing was started:", *found.refusals]))
        for warning in found.warnings:
            print(warning)

        def hear(part: launch.Part, event: dict[str, Any]) -> None:
            if event["kind"] == "Round" and event["over"]:
                print(event["text"])

        with tracking.StopRequest() as stop:
            launches = new_mix(mix, runs_dir, needs=found.needs, quiet=found.quiet)
            run_mix(launches, hear, stop)
    if stop:
        raise KeyboardInterrupt
    if broken := [part for part in launches.parts.values() if part.status != "done"]:
        lines = (f"{part.launch.about['job']} {part.status}: {part.reason}" for part in broken)
        raise UserError("\n".join([f"{launches.folder}:", *lines]))
    return launches.folder


def new_mix(mix: launch.Mix, runs_dir: Path | str, *, needs: Mapping[str, int], quiet: bool | None) -> launch.Launches:
    """A mix, which has been checked, as a list of launches, in a folder of its own.

    `needs` are the bytes that each job is estimated to take, by WORKLOAD/JOB. `quiet` says whether other programs leave
    the CPU alone; None looks before each round.
    """
    content = {"mix": json_data.to_json(mix), "needs": dict(needs), "quiet": quiet}
    return launch.Launches.new(runs_dir, "mix", mix.name, launch.mix_launches(mix), **content)


def read_mix(folder: Path | str) -> launch.Launches:
    """A mix that was run, by this version of labkit or an earlier one."""
    folder = Path(folder)
    return launch.Launches.read(folder, "mix") if (folder / FILE).exists() else _old_mix(folder)


def mix_in(launches: launch.Launches) -> launch.Mix:
    """What a list of launches was made of; a UserError where it is damaged."""
    try:
        return json_data.from_json(launch.Mix, launches.head.content.get("mix"))
    except (TypeError, ValueError) as error:
        raise UserError(f"{launches.file}: its mix is damaged ({error}): run it again.") from error


def run_mix(launches: launch.Launches, on_event: launch.OnEvent, stop: tracking.StopRequest) -> None:
    """Run what waits of a mix; `stop` ends it politely."""
    MixRun(launches, stop=stop, on_event=on_event).run()


def resume_mix(launches: launch.Launches, on_event: launch.OnEvent, stop: tracking.StopRequest) -> None:
    """Go on with a mix that was cut short: rounds that are done stay, the others run again as a whole.

    Raises:
        UserError: it is still running, ran on another machine, or its file does not have all that its jobs need.
    """
    if not launches.file.exists():
        raise UserError(f"{launches.folder}: an earlier version of labkit ran this: run it again.")
    if runs.HIDDEN in json.dumps([asdict(part.launch) for part in launches.parts.values()]):
        raise UserError(
            f"{launches.folder}: arguments of its jobs look like secrets, and {FILE} has {runs.HIDDEN} in their place: "
            "run it again. LABKIT_VERBATIM=1 makes new ones keep such values."
        )
    if launches.head.host != platform.node():
        raise UserError(
            f"{launches.folder}: this ran on {launches.head.host}, and times of two machines cannot be compared: run "
            "it again here."
        )
    with launches.locked():
        launch.resume(launches)
        run_mix(launches, on_event, stop)


class MixRun(launch.Engine):
    """Round after round, each job with its share of the device."""

    grace_s = process.JOB_GRACE_S

    def __init__(self, launches: launch.Launches, **how: Any):
        super().__init__(launches, **how)
        self._mix, content = mix_in(launches), launches.head.content
        self._needs, self._quiet, self._rounds_of_mix = content["needs"], content["quiet"], launches.rounds()

    def begin(self, parts: Sequence[launch.Part]) -> list[launch.Start]:
        self._report_round(list(parts), over=False)
        mode, workload = parts[0].launch.mode, parts[0].launch.about["workload"]
        (jobs,) = [own.jobs for own in self._mix.workloads if (own.name, own.mode) == (workload, mode)]
        named = {job.name: job for job in jobs}
        own = [named[part.launch.about["job"]] for part in parts]
        shares = self._shares(mode, workload, own)
        shared_by, clients, starts = launch.shared_with(mode, own), {}, []
        if mode == "mps":
            gpus = sorted({share.environment["CUDA_VISIBLE_DEVICES"] for share in shares.values()})
            clients = self.executor().start_mps(gpus)
        for part, job in zip(parts, own, strict=True):
            share = shares[job.name]
            shared = {"group": self.launches.folder.name, "job": job.name, "log": part.log, **shared_by}
            command = with_share(part.launch.job, share, self.launches.folder, shared)
            starts.append(launch.Start(command, clients | share.environment, share.device))
        return starts

    def settle(self, part: launch.Part, end: launch.End) -> None:
        super().settle(part, end)
        (own,) = [own for own in self._rounds_of_mix if part in own]
        if all(each.has_ended for each in own):
            if self._executor is not None and self._executor.alive:
                self._executor.sweep()
            self._report_round(own, over=True)

    def title(self, part: launch.Part) -> str:
        return part.launch.about["job"]

    def _report_round(self, own: list[launch.Part], *, over: bool) -> None:
        rounds = self._rounds_of_mix
        text = f"round {rounds.index(own) + 1} of {len(rounds)}, {own[0].launch.mode}"
        if over:
            ends = [f"{self.title(job)} {job.status.replace('_', ' ')} after {job.wall_s or 0:.1f} s" for job in own]
            text = f"{text}: {', '.join(ends)}"
        self.on_event(own[0], {"kind": "Round", "over": over, "text": text})

    def _shares(self, mode: str, workload: str, jobs: list[launch.PlannedJob]) -> dict[str, Share]:
        """What each job gets; a driver may list a process of the round before for a moment after it has ended."""
        needs = {job.name: self._needs[key] for job in jobs if (key := f"{workload}/{job.name}") in self._needs}
        until = time.monotonic() + FREE_AGAIN_S
        while True:
            devices = hardware.get_devices()
            device = hardware.find_device(self._mix.device, devices)
            try:
                with hardware.Nvml() as nvml:
                    return mode_shares(mode, jobs, Place(device, devices, nvml, needs, self._mix.spin, self._quiet))
            except UserError:
                if device.kind == "cpu" or time.monotonic() > until:
                    raise
                time.sleep(0.5)


def with_share(
    command: tracking.ScriptCommand, share: Share, folder: Path, shared: dict[str, Any]
) -> tracking.ScriptCommand:
    """The command of a job with what it gets of a device; `shared` is for its record, of those that share it."""
    budget = None
    if share.memory_bytes is not None:
        cores = None if share.cores is None else len(share.cores)
        given = "" if cores is None else f"cores={cores},"
        name = f"{given}memory={share.memory_bytes // 2**20}MiB"
        budget = hardware.Budget(name, cores, share.memory_bytes, emulated=True, not_emulated=hardware.OF_A_CPU)
    own = {"runs_dir": str(folder), "budget": budget, "device": share.torch_name, "cores": share.cores}
    return replace(command, **own, collocation=shared)


def _old_mix(folder: Path) -> launch.Launches:
    """A mix that an earlier version of labkit ran, by its group.json."""
    path = folder / OLD["mix"]
    try:
        content = runs.restored(
            json_data.read_json(path, dict[str, Any], fix="Restore it from a copy, or delete the folder.")
        )
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder}: labkit ran no mix here, because it has no {FILE}.") from None
    try:
        jobs = {
            (own["name"], own["mode"], job["name"]): job for own in content["plan"]["workloads"] for job in own["jobs"]
        }
        made = {name: content[name] for name in ("id", "host", "status", "started_at", "ended_at")}
        provenance, needs = runs.Provenance(**content["provenance"]), content.get("needs", {})
        head = Head(kind="mix", content={"mix": content["plan"], "needs": needs}, provenance=provenance, **made)
        head.status = "interrupted" if head.status == "running" else head.status
        launches = launch.Launches(folder, head)
        for number, each in enumerate(content["rounds"]):
            for of in each["jobs"]:
                job = jobs[each["workload"], each["mode"], of["job"]]
                key = repr((job["script"], job["arguments"]))
                about = {"workload": each["workload"], "repeat": each["repeat"], "job": of["job"], "job_key": key}
                command = tracking.ScriptCommand(job["script"], tuple(job["arguments"]))
                name, together = f"{number}-{of['job']}", str(number)
                planned = launch.Launch(name, command, of["label"], each["mode"], together=together, about=about)
                state = {name: of[name] for name in ("status", "run", "reason", "wall_s", "device", "log")}
                part = launch.Part(launch=planned, attempts=of.get("attempt", 1), go_at=each["go_at"], **state)
                launches.parts[planned.name] = part
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: this record is damaged, or of another version of labkit ({error}).") from error
    return launches
