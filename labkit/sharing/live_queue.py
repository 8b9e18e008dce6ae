"""Queues that really run: their devices, the check before the start, running, and going on after a cut."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labkit import UserError, errors, hardware, jobs, json_data, launch, process, telemetry, tracking
from labkit.launch.engine import end_left_over, unheard_records
from labkit.sharing.check import CheckedQueueJob, check_queue, job_memory, refuse_if_any
from labkit.sharing.modes import mode_shares
from labkit.sharing.packing import Admission, Scheduler, cpu_admission, get_policy, simulate
from labkit.sharing.queue import PackingDevice, QueuedJob, TrackedJob, read_recorded, shared_slowdown
from labkit.sharing.rounds import with_share
from labkit.sharing.schedule import Schedule, schedule_of
from labkit.sharing.shares import Place, Share, free_bytes, is_reached

EVERY_S = 1.0
"""Seconds between two looks at the devices"""
ENDINGS = {"done": "done", "stopped": "stopped", "out_of_memory": "out of memory"}
"""What the packer calls the end of a launch, by its status; any other has failed"""


@dataclass(frozen=True)
class LiveDevice:
    """A GPU, a MIG slice, or the CPU, on which a queue really runs."""

    packing: PackingDevice
    """Its memory is what was free when the queue was checked: other programs keep what they hold"""
    share: Share
    """What every job on it gets"""
    device: hardware.Device
    """The device as found"""

    @property
    def on_cpu(self) -> bool:
        """Whether it is the CPU; the devices of a queue are of one kind."""
        return self.device.kind == "cpu"


def live_devices(
    wanted: Sequence[str] = (), *, shared: bool = True, memory_bytes: int | None = None
) -> list[LiveDevice]:
    """The devices of a queue: each GPU or MIG slice that CUDA reaches, or else the CPU.

    Args:
        wanted: names as `find_device` takes them; none takes all GPUs, or the CPU.
        shared: whether jobs are to share a device at all.
        memory_bytes: memory of each device that counts; None takes all that is free.

    Raises:
        UserError: a device that is not there, or cannot be used so; with every reason.
    """
    devices = hardware.get_devices()
    found = [hardware.find_device(name, devices) for name in wanted]
    found = found or [each for each in devices[1:] if is_reached(each)] or [devices[0]]
    if len({each.kind == "cpu" for each in found}) > 1:
        raise UserError("a queue runs on the CPU or on GPUs: name devices of one kind.")
    users = [launch.PlannedJob(name, jobs.ScriptJob("")) for name in ("one", "another")[: 1 + shared]]
    live, faults = [], []
    for device in dict.fromkeys(found):
        mode = "cpu-shared" if device.kind == "cpu" else "naive" if shared else "alone"
        try:
            with hardware.Nvml() as nvml:
                share = mode_shares(mode, users, Place(device, devices, nvml))["one"]
                name, free = device.uuid or device.torch_name or device.kind, _free_bytes(device, nvml)
                live.append(LiveDevice(PackingDevice(name, min(free, memory_bytes or free)), share, device))
        except UserError as error:
            faults.append(str(error))
    if faults:
        raise UserError("\n".join(dict.fromkeys(faults)))
    return live


def _free_bytes(device: hardware.Device, nvml: hardware.Nvml) -> int:
    free = free_bytes("cpu" if device.kind == "cpu" else errors.certain(device.uuid), nvml)
    free = device.memory_bytes if free is None else free
    if free is None:
        why = device.missing.get("memory_bytes", "its driver does not report it")
        raise UserError(f"{device.name}: its memory is unknown ({why}), so no job can be fitted to it: omit it.")
    return free


def check_here(queue: Sequence[QueuedJob], live: Sequence[LiveDevice]) -> list[CheckedQueueJob]:
    """Check a queue against these devices, with the memory of their first steps and the recorded profiles that ship."""
    return check_queue(queue, [each.packing for each in live], job_memory, read_recorded() if live[0].on_cpu else None)


def new_queue(
    queue: Sequence[QueuedJob], live: Sequence[LiveDevice], policy: str, runs_dir: Path | str, name: str = "queue"
) -> launch.Launches:
    """A queue, which has been checked, as a list of launches in a folder of its own; `name` is a part of its name."""
    mode = "cpu-shared" if live[0].on_cpu else "naive"
    launches = [launch.Launch(each.name, each.job.command(), each.job.label, mode) for each in queue]
    content: dict[str, Any] = {"policy": policy, "devices": [json_data.to_json(each.packing) for each in live]}
    content |= {"jobs": [json_data.to_json(each) for each in queue], "energy_j": None, "energy_note": ""}
    return launch.Launches.new(runs_dir, "queue", name, launches, **content)


def tracked_jobs(launches: launch.Launches) -> list[TrackedJob]:
    """The jobs of a queue that was run, with their histories; a UserError where that is damaged."""
    try:
        rows = [{"queued": each} | launches.parts[each["job"]["name"]].more for each in launches.head.content["jobs"]]
        return json_data.from_json(list[TrackedJob], rows)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{launches.file}: its queue is damaged ({error}): run it again.") from error


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
    admission: Admission | None = None,
) -> None:
    """Run what waits of a queue; `stop` ends it politely. Afterwards no process of it is left, however it ended.

    `on_event` is called as by any engine, and with Placed (device, attempt, alone) and Over (status, reason).
    `admission` says who may join whom; on a CPU None takes the recorded pairs, else the utilisations.
    """
    if admission is None:
        admission = cpu_admission(shared_slowdown(read_recorded())) if live[0].on_cpu else Admission()
    devices, head = [each.device for each in live], launches.head
    with telemetry.open_ladder(None, devices, 1 / EVERY_S, lambda kind, what: None) as ladder:
        meter = _Meter(live, ladder)
        try:
            _Pack(launches, live, admission, meter, on_event=on_event, stop=stop).run()
        finally:
            head.content["energy_j"], head.content["energy_note"] = meter.energy_j()
            launches.save_head()


def resume_queue(
    launches: launch.Launches, live: Sequence[LiveDevice], *, on_event: launch.OnEvent, stop: tracking.StopRequest
) -> None:
    """Go on with a queue that was cut short: jobs that have ended stay, the others get in line again."""
    with launches.locked():
        end_left_over(launches)
        found = unheard_records(launches)
        for job in tracked_jobs(launches):
            part, record = launches.parts[job.name], found.get(job.name)
            last = job.attempts[-1] if job.attempts else None
            if last is not None and record is not None and record.status == "done":
                last.run, last.ending, job.status = record.id, "done", "done"
                last.ends_s = last.starts_s + ((record.result or {}).get("wall_s") or 0.0)
            elif job.status not in ("done", "failed", "recovering"):
                if last is not None:
                    last.ending, last.reason = last.ending or "stopped", last.reason or "the packer was killed"
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

    The queue's folder is made in `runs_dir`. `memory_bytes` of the machine count; None takes all that is free. `tell`
    is called with a line for each start and end.

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
    reported: set[str] = set()

    def on_event(part: launch.Part, event: dict[str, Any]) -> None:
        if event["kind"] == "Placed":
            again = f", attempt {event['attempt']}" if event["attempt"] > 1 else ""
            text = f"{part.name} starts on {event['device']}{', alone' if event['alone'] else ''}{again}"
        elif event["kind"] == "Over":
            text = f"{part.name} ends, {event['status']}{'' if event['status'] == 'done' else ': ' + event['reason']}"
        else:
            text = event["text"] if event["kind"] == "Notice" else ""
        if text and text not in reported:
            reported.add(text)
            tell(text)

    return on_event


def _history(job: TrackedJob) -> dict[str, Any]:
    return {name: value for name, value in json_data.to_json(job).items() if name != "queued"}


class _Pack(launch.Engine):
    """Each job when the scheduler says so, without a barrier."""

    grace_s = process.JOB_GRACE_S

    def __init__(
        self, launches: launch.Launches, live: Sequence[LiveDevice], admission: Admission, meter: _Meter, **how: Any
    ):
        super().__init__(launches, **how)
        jobs, policy = tracked_jobs(launches), get_policy(launches.head.content["policy"])
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
        self.look()
        return [[self.launches.parts[job.name]] for job in self._scheduler.starts(self.now_s)]

    def awaits(self) -> bool:
        return not self._scheduler.finished

    def look(self) -> None:
        if self.now_s - self._looked_s >= EVERY_S:
            self._looked_s = self.now_s
            self._scheduler.monitored_free_bytes |= self._meter.free_bytes()

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
        ending = ENDINGS.get(end.status, "failed")
        # SIGKILL is how a system ends a process that fills its memory
        if end.exit_status == -signal.SIGKILL and not end.said and not self.stop:
            ending = "out of memory"
        job = self._scheduler.jobs[part.name]
        job.attempts[-1].run = part.run
        self._scheduler.ended(part.name, self.now_s, ending, end.reason)
        part.status, part.reason = job.status if job.status != "recovering" else "waiting", end.reason
        part.more = _history(job)
        self.on_event(part, {"kind": "Over", "status": ending, "reason": end.reason})


class _Meter:
    """Free memory of the devices of a queue, and the energy that they took since it was made."""

    def __init__(self, live: Sequence[LiveDevice], ladder: telemetry.Ladder):
        self._live, self._ladder, self._began_ns = live, ladder, time.time_ns()
        self._samples: dict[str, dict[str, list[telemetry.Sample]]] = defaultdict(lambda: defaultdict(list))
        """Samples from which energy is computed, by device and counter"""
        self.free_bytes()

    def free_bytes(self) -> dict[int, float]:
        """Free memory of each device, by position, where it is known; samples power and energy as well."""
        readings = list(self._ladder.read())
        for reading in readings:
            if "energy" in reading.counter or "power" in reading.counter:
                sample = telemetry.Sample(time.time_ns(), reading.value, reading.note)
                self._samples[reading.device][reading.counter].append(sample)
        if self._live[0].on_cpu:
            return {0: hardware.read_cpu().memory_available_bytes}
        used = {reading.device: reading.value for reading in readings if reading.counter == "memory_used"}
        taken = ((n, each.device.memory_bytes, used.get(each.device.uuid)) for n, each in enumerate(self._live))
        return {n: whole - own for n, whole, own in taken if whole is not None and own is not None}

    def energy_j(self) -> tuple[float | None, str]:
        """Joules of all devices and their source, or None and why."""
        self.free_bytes()
        found, moments, whole = {}, {0: [self._began_ns, time.time_ns()]}, defaultdict(dict)
        for source, counters in self._samples.items():
            whole[source] = {name: telemetry.whole(series, moments) for name, series in counters.items()}
        for live in self._live:
            if live.on_cpu:
                found["host"] = telemetry.cpu_energy(whole["host"])
            else:
                gpu, is_mig = errors.certain(live.device.gpu_uuid), live.device.kind == "mig"
                found[gpu] = telemetry.gpu_energy(whole[gpu], whole["host"], mig=is_mig)
        if unknown := [energy.note for energy in found.values() if energy.value_j is None]:
            return None, unknown[0]
        sources = "; ".join(dict.fromkeys(f"{energy.source}, {energy.note}" for energy in found.values()))
        return sum(errors.certain(energy.value_j) for energy in found.values()), f"measured by {sources}"
