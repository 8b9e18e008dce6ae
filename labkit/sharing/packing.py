"""Packs a queue: checks it, runs each job when and where the scheduler says, and goes on where it was cut short."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from labkit import UserError, hardware, json_data, launch, process, telemetry, tracking
from labkit.jobs import ScriptJob
from labkit.launch.engine import end_left_over, unheard_records
from labkit.sharing.check import job_memory
from labkit.sharing.modes import mode_shares
from labkit.sharing.policies import (
    Admission,
    Chooser,
    PackingDevice,
    Schedule,
    Scheduler,
    cpu_admission,
    get_policy,
    schedule_of,
)
from labkit.sharing.queue import (
    Attempt,
    JobProfile,
    QueuedJob,
    RecordedProfiles,
    TrackedJob,
    read_recorded,
    shared_slowdown,
)
from labkit.sharing.rounds import with_share
from labkit.sharing.shares import Place, Share, free_bytes
from labkit.sharing.simulation import simulate

EVERY_S = 1.0
"""Seconds between two looks at the devices"""
UNKNOWN = "memory and utilisation of {} are unknown: give both, for example 2GiB and 0.5"


@dataclass(frozen=True)
class LiveDevice:
    """A GPU, a MIG slice, or the CPU, on which a queue really runs."""

    packing: PackingDevice
    """Its memory is what was free when the queue was checked: other programs keep what they hold"""
    share: Share
    """What every job on it gets"""
    device: hardware.Device
    """As found"""

    @property
    def on_cpu(self) -> bool:
        """Whether it is the CPU; the devices of a queue are of one kind."""
        return self.device.kind == "cpu"


def live_devices(
    wanted: Sequence[str] = (),
    *,
    shared: bool = True,
    memory_bytes: int | None = None,
    nvml: Callable[[], hardware.Nvml] = hardware.Nvml,
) -> list[LiveDevice]:
    """The devices of a queue: each GPU or MIG slice that CUDA reaches, or else the CPU.

    Args:
        wanted: names as `find_device` takes them; none takes all GPUs, or the CPU.
        shared: whether jobs are to share a device at all.
        memory_bytes: memory of each device that counts; None takes all that is free.
        nvml: makes a session that is not yet open.

    Raises:
        UserError: a device that is not there, or cannot be used so; with every reason.
    """
    devices = hardware.get_devices(nvml())
    found = [hardware.find_device(name, devices) for name in dict.fromkeys(wanted)]
    found = found or [each for each in devices[1:] if _is_reached(each)] or [devices[0]]
    if len({each.kind == "cpu" for each in found}) > 1:
        raise UserError("a queue runs on the CPU or on GPUs: name devices of one kind.")
    live, faults, jobs = (
        [],
        [],
        [launch.PlannedJob("one", ScriptJob("")), launch.PlannedJob("another", ScriptJob(""))][: 1 + shared],
    )
    for device in dict.fromkeys(found):
        mode = "cpu-shared" if device.kind == "cpu" else "naive" if shared else "alone"
        try:
            with nvml() as session:
                share = mode_shares(mode, jobs, Place(device, devices, session))["one"]
                name, free = device.uuid or device.torch_name or device.kind, _free_bytes(device, session)
                live.append(LiveDevice(PackingDevice(name, min(free, memory_bytes or free)), share, device))
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(dict.fromkeys(faults)))
    return live


def _is_reached(gpu: hardware.Device) -> bool:
    """Whether a process that names a GPU or slice sees it; one that does not sees a slice only, and hides the rest."""
    return gpu.torch_name is not None or gpu.kind == "mig" or (gpu.uuid is not None and gpu.mig_mode != "on")


def _free_bytes(device: hardware.Device, nvml: hardware.Nvml) -> int:
    free = free_bytes("cpu" if device.kind == "cpu" else device.uuid, nvml)
    free = device.memory_bytes if free is None else free
    if free is None:
        why = device.missing.get("memory_bytes", "its driver does not report it")
        raise UserError(f"{device.name}: its memory is unknown ({why}), so no job can be fitted to it: leave it out.")
    return free


@dataclass(frozen=True)
class CheckedQueueJob:
    """One row of the table before the start."""

    queued: QueuedJob
    """With its profile, where there can be one"""
    source: str
    """Sources of its memory and its utilisation, for people"""
    fits: tuple[str, ...] = ()
    """Names of the devices that have its memory"""
    why_not: tuple[str, ...] = ()
    """Nothing may start while there is a reason against any row"""


def check_queue(
    queue: Sequence[QueuedJob],
    devices: Sequence[PackingDevice],
    estimate: Callable[[launch.PlannedJob], int | None],
    recorded: RecordedProfiles | None = None,
) -> list[CheckedQueueJob]:
    """Find what each job asks for, and which devices have it; nothing is started.

    What a row says itself counts first. Otherwise its memory is estimated, in bytes, once for jobs that are alike, and
    how busy it keeps a device is what was recorded of such a job on a device of that kind, or all of it.
    """
    estimated: dict[Any, int | str] = {}  # bytes, or why there are none
    largest = max(devices, key=lambda device: device.memory_bytes)
    rows = []
    for queued in queue:
        job, own, why_not = queued.job, queued.profile, []
        like = recorded.of(job) if recorded else None
        if any(each is not None for each in (job.device, job.cores, job.gpu_percent, job.mig_profile)):
            why_not.append("the packer chooses devices: remove device, cores, gpu_percent and mig_profile")
        needs, source = own.memory_estimate_bytes if own else job.memory_bytes, "needs by the queue"
        if needs is None:
            if job.job not in estimated:
                try:
                    estimated[job.job] = estimate(job) or UNKNOWN.format(job.label)
                except UserError as error:
                    estimated[job.job] = str(error).rstrip(".")
            needs, source = estimated[job.job], "needs by its first steps"
        if isinstance(needs, str):
            rows.append(CheckedQueueJob(queued, source, why_not=(*why_not, needs)))
            continue
        if own is not None:
            profile, busy = replace(own, like=like and like.like), "by the queue"
        elif like is None:
            profile, busy = JobProfile(needs, 1.0), "unknown: taken as all"
        else:  # its times are the recorded machine's
            profile, busy = JobProfile(needs, like.utilisation, like=like.like), f"recorded on {recorded.device}"
        fits = tuple(device.name for device in devices if device.memory_bytes >= needs)
        if not fits:
            why_not.append(
                f"{queued.name} needs {hardware.size_text(needs)} of memory, and {largest.name}, which has most, has "
                f"{hardware.size_text(largest.memory_bytes)} free: make its batch smaller, or write the memory that it "
                "was measured to need"
            )
        rows.append(CheckedQueueJob(replace(queued, profile=profile), f"{source}, busy {busy}", fits, tuple(why_not)))
    return rows


def refuse_if_any(rows: Sequence[CheckedQueueJob], nothing: str = "nothing was started:") -> list[QueuedJob]:
    """The jobs with their profiles; a UserError with one line for each row that something is against."""
    lines = [f"  {row.queued.place}: {'; '.join(row.why_not)}" for row in rows if row.why_not]
    if lines:
        raise UserError("\n".join([nothing, *lines]))
    return [row.queued for row in rows]


def check_here(queue: Sequence[QueuedJob], live: Sequence[LiveDevice]) -> list[CheckedQueueJob]:
    """Check a queue against these devices, with the memory of their first steps and the recorded profiles that ship."""
    kind = "cpu" if live[0].on_cpu else "cuda"
    recorded = read_recorded() if live[0].on_cpu else None
    return check_queue(queue, [each.packing for each in live], partial(job_memory, kind=kind), recorded)


def new_queue(
    queue: Sequence[QueuedJob], live: Sequence[LiveDevice], policy: str, runs_dir: Path | str, name: str = "queue"
) -> launch.Launches:
    """A queue, which has been checked, as a list of launches in a folder of its own; `name` is a part of its name."""
    mode, launches = "cpu-shared" if live[0].on_cpu else "naive", []
    for each in queue:
        job = each.job
        launches.append(launch.Launch(each.name, job.command(), job.label, mode))
    content = {"policy": policy, "devices": [json_data.to_json(each.packing) for each in live]}
    content |= {"jobs": [json_data.to_json(each) for each in queue], "energy_j": None, "energy_note": ""}
    return launch.Launches.new(runs_dir, "queue", name, launches, **content)


def read_pack(folder: Path | str) -> launch.Launches:
    """A queue that was run."""
    return launch.Launches.read(folder, "queue")


def tracked_jobs(launches: launch.Launches) -> list[TrackedJob]:
    """The jobs of a queue that was run, with their histories; a UserError where that is damaged."""
    try:
        jobs = launches.head.content["jobs"]
        json_data.check_shape(jobs, list[QueuedJob])
        found = [TrackedJob(each) for each in json_data.build(jobs, list[QueuedJob])]
        for job in found:
            if history := launches.parts[job.name].more:
                json_data.check_shape(history["attempts"], list[Attempt])
                attempts = json_data.build(history["attempts"], list[Attempt])
                job.__dict__.update(history | {"attempts": attempts})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{launches.file}: its queue is damaged ({error}): run it again.") from error
    return found


def schedule_in(launches: launch.Launches) -> Schedule:
    """The schedule of a queue that was run, as measured."""
    content = launches.head.content
    devices = json_data.build(content["devices"], list[PackingDevice])
    note, energy_j = content["energy_note"], content["energy_j"]
    return schedule_of(content["policy"], "measured", tracked_jobs(launches), devices, note, energy_j)


def run_queue(
    launches: launch.Launches,
    live: Sequence[LiveDevice],
    *,
    on_event: launch.OnEvent,
    stop: tracking.StopRequest,
    policy: Chooser | None = None,
    admission: Admission | None = None,
) -> None:
    """Run what waits of a queue; afterwards no process of it is left, however it ended.

    Args:
        launches: the queue, of `new_queue`.
        live: where it runs.
        on_event: called as by any engine, and with Placed (device, attempt, alone).
        stop: ends all politely.
        policy: who goes where; None takes the policy that is named there.
        admission: who may join whom; on a CPU None takes the recorded pairs, else the utilisations.
    """
    if admission is None:
        admission = cpu_admission(shared_slowdown(read_recorded())) if live[0].on_cpu else Admission()
    chosen = policy or get_policy(launches.head.content["policy"])
    with _Meter(live) as meter:
        engine = _Pack(launches, live, chosen, admission, meter, on_event=on_event, stop=stop)
        try:
            engine.run()
        finally:
            content = launches.head.content
            content["energy_j"], content["energy_note"] = meter.energy_j()
            launches.save_head()


def resume_queue(
    launches: launch.Launches, live: Sequence[LiveDevice], *, on_event: launch.OnEvent, stop: tracking.StopRequest
) -> None:
    """Go on with a queue that was cut short: jobs that have ended stay, the others get in line again."""
    with launches.locked():
        end_left_over(launches)
        found = unheard_records(launches)
        for job in tracked_jobs(launches):
            part, last = launches.parts[job.name], job.attempts[-1] if job.attempts else None
            record = found.get(job.name)
            if last is not None and record is not None and record.status == "done":
                last.run, last.ending, job.status = record.id, "done", "done"
                last.ends_s = last.starts_s + ((record.result or {}).get("wall_s") or 0.0)
            elif last is not None and job.status in ("running", "stopped"):
                last.ending, last.reason = "stopped", last.reason or "the packer was killed"
                job.status = "queued"
            part.more = _history(job)
            part.status = job.status
            if job.status not in ("done", "failed"):
                part.wait_again()
        run_queue(launches, live, on_event=on_event, stop=stop)


def pack(
    queue: Sequence[QueuedJob],
    policy: str,
    *,
    runs_dir: Path | str,
    memory_bytes: int | None = None,
    tell: Callable[[str], None] = print,
) -> Schedule:
    """Really run a queue on the CPU; interrupting the kernel ends it politely.

    Args:
        queue: the jobs.
        policy: its name.
        runs_dir: the folder in which the queue's folder is made.
        memory_bytes: memory of the machine that counts; None takes all that is free.
        tell: called with a line for each start and end.

    Raises:
        UserError: a job cannot run here; nothing was started then. Or a job failed.
        KeyboardInterrupt: after all jobs have ended.
    """
    get_policy(policy)
    live = live_devices(["cpu"], memory_bytes=memory_bytes)
    launches = new_queue(refuse_if_any(check_here(queue, live)), live, policy, runs_dir, policy)
    with tracking.StopRequest() as stop:
        run_queue(launches, live, on_event=telling(tell), stop=stop)
    if stop:
        raise KeyboardInterrupt
    if broken := [part for part in launches.parts.values() if part.status != "done"]:
        reasons = (f"{part.name}: {part.reason or part.status}" for part in broken)
        raise UserError("\n".join([f"{launches.folder}:", *reasons]))
    return schedule_in(launches)


def predict(queue: Sequence[QueuedJob], policy: str, *, memory_bytes: int) -> Schedule:
    """What `pack` would come to on the machine of the recorded profiles.

    No job runs out of memory in it: nothing holds a job to its estimate where cores are shared. A job that was never
    recorded is a UserError.
    """
    recorded = read_recorded()
    known = [
        replace(job, profile=job.profile and replace(job.profile, memory_bytes=job.profile.memory_estimate_bytes))
        for job in recorded.fill(queue)
    ]
    slowdown = shared_slowdown(recorded)
    device = PackingDevice("cpu", memory_bytes)
    return simulate(known, [device], get_policy(policy), slowdown=slowdown, admission=cpu_admission(slowdown))


def telling(tell: Callable[[str], None]) -> launch.OnEvent:
    """A listener that reports starts and ends of a queue's jobs, and notices, each text once."""
    told: set[str] = set()

    def on_event(part: launch.Part, event: dict[str, Any]) -> None:
        text = None
        if event["kind"] == "Placed":
            again = f", attempt {event['attempt']}" if event["attempt"] > 1 else ""
            text = f"{part.name} starts on {event['device']}{', alone' if event['alone'] else ''}{again}"
        elif event["kind"] == "Over":
            text = f"{part.name} ends, {event['status']}{'' if event['status'] == 'done' else ': ' + event['reason']}"
        elif event["kind"] == "Notice":
            text = event["text"]
        if text is not None and text not in told:
            told.add(text)
            tell(text)

    return on_event


def _history(job: TrackedJob) -> dict[str, Any]:
    attempts = [asdict(each) for each in job.attempts]
    return {"status": job.status, "queued_s": job.queued_s, "overtaken": job.overtaken, "attempts": attempts}


class _Pack(launch.Engine):
    """Each job when the scheduler says so, without a barrier."""

    grace_s = process.JOB_GRACE_S

    def __init__(
        self,
        launches: launch.Launches,
        live: Sequence[LiveDevice],
        policy: Chooser,
        admission: Admission,
        meter: _Meter,
        **how: Any,
    ):
        super().__init__(launches, **how)
        jobs = tracked_jobs(launches)
        self._live, self._meter = live, meter
        self._scheduler = Scheduler(jobs, [each.packing for each in live], policy, admission)
        mode, label = next(iter(launches.parts.values())).launch.mode, f"{policy.name} queue of {len(jobs)} jobs"
        self._shared = launch.shared_with(mode, [job.queued.job for job in jobs], label)
        moments = [moment for job in jobs for each in job.attempts for moment in (each.starts_s, each.ends_s) if moment]
        # time goes on where it stopped: a queue that was cut short has no time while nothing ran
        self._opened_s, self._looked_s = time.monotonic() - max(moments, default=0.0), -EVERY_S

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._opened_s

    def due(self) -> list[list[launch.Part]]:
        self._scheduler.let_arrive(self.now_s)
        self.look()
        return [[self.launches.parts[job.name]] for job in self._scheduler.starts(self.now_s)]

    def awaits(self) -> bool:
        return not self._scheduler.finished

    def look(self) -> None:
        if self.now_s - self._looked_s >= EVERY_S:
            self._looked_s = self.now_s
            for position, free in enumerate(self._meter.free_bytes()):
                if free is not None:
                    self._scheduler.observed(position, monitored_free_bytes=free)

    def begin(self, parts: Sequence[launch.Part]) -> list[launch.Start]:
        (part,) = parts
        job = self._scheduler.jobs[part.name]
        attempt = job.attempts[-1]
        live, part.more = self._live[attempt.device], _history(job)
        shared = {"group": self.launches.folder.name, "job": part.name, "log": part.log, **self._shared}
        placed = {"kind": "Placed", "device": live.packing.name, "attempt": attempt.number, "alone": attempt.alone}
        self.on_event(part, placed)
        command = with_share(part.launch.job, live.share, self.launches.folder, shared)
        return [launch.Start(command, live.share.environment, live.share.device)]

    def heard(self, part: launch.Part, event: dict[str, Any]) -> None:
        if event["kind"] == "Started":
            job = self._scheduler.jobs[part.name]
            job.attempts[-1].run, part.more = part.run, _history(job)

    def settle(self, part: launch.Part, end: launch.End) -> None:
        ending = {"done": "done", "stopped": "stopped", "out_of_memory": "out of memory"}.get(end.status, "failed")
        # SIGKILL is how a system ends a process that fills its memory
        ending = "out of memory" if end.exit_status == -signal.SIGKILL and not end.said and not self.stop else ending
        job = self._scheduler.jobs[part.name]
        job.attempts[-1].run = part.run
        self._scheduler.ended(part.name, self.now_s, ending, end.reason)
        part.status, part.reason = job.status if job.status != "recovering" else "waiting", end.reason
        part.more = _history(job)
        self.on_event(part, {"kind": "Over", "status": ending, "reason": end.reason})


class _Meter:
    """Free memory of the devices of a queue, and the energy that they took. A context manager."""

    def __init__(self, live: Sequence[LiveDevice]):
        self._live = live
        self._samples: dict[str, dict[str, list[telemetry.Sample]]] = defaultdict(lambda: defaultdict(list))
        """By device and counter, what energy adds up from"""

    def __enter__(self) -> _Meter:
        self._open = telemetry.open_ladder(
            None, [each.device for each in self._live], 1 / EVERY_S, lambda kind, what: None
        )
        self._ladder, self._began_ns = self._open.__enter__(), time.time_ns()
        self.free_bytes()
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.__exit__(*exception)

    def free_bytes(self) -> list[int | None]:
        """Free memory of each device, None where it is not known; what they took until now is sampled as well."""
        readings = list(self._ladder.read())
        for reading in readings:
            if "energy" in reading.counter or "power" in reading.counter:
                sample = telemetry.Sample(time.time_ns(), reading.value, reading.note)
                self._samples[reading.device][reading.counter].append(sample)
        used = {reading.device: reading.value for reading in readings if reading.counter == "memory_used"}
        if self._live[0].on_cpu:
            return [hardware.read_cpu().memory_available_bytes]
        taken = [(each.device.memory_bytes, used.get(each.device.uuid)) for each in self._live]
        return [None if None in (whole_bytes, own) else whole_bytes - own for whole_bytes, own in taken]

    def energy_j(self) -> tuple[float | None, str]:
        """Joules of all devices since the block began and their source, or None and why."""
        self.free_bytes()
        found = {}
        for live in self._live:
            source = "host" if live.on_cpu else live.device.mig_parent_uuid or live.device.uuid
            moments = {0: [self._began_ns, time.time_ns()]}
            samples = {name: telemetry.whole(series, moments) for name, series in self._samples[source].items()}
            found[source] = (
                telemetry.cpu_energy(samples)
                if live.on_cpu
                else telemetry.gpu_energy(samples, mig=live.device.kind == "mig")
            )
        if unknown := [energy.note for energy in found.values() if energy.value_j is None]:
            return None, unknown[0]
        sources = "; ".join(dict.fromkeys(f"{energy.source}, {energy.note}" for energy in found.values()))
        return sum(energy.value_j for energy in found.values()), f"measured by {sources}"
