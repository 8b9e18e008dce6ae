"""Writes the log of one run: its folder, record, events, metrics and samples; refuses a resume that would mix runs.

Its checkpoints are written as a whole or not at all, and read without running any code in them.
"""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from labkit import UserError, errors, hardware, json_data, runs, telemetry
from labkit.tracking.energy import Windows
from labkit.tracking.events import Notice, Point, Ready, Started, watched_by
from labkit.tracking.forward import Forward
from labkit.tracking.goal import Goal
from labkit.tracking.harness import Harness, current_harness, whole_device
from labkit.tracking.ranks import Ranks

FORMAT = 5
"""Format of checkpoints"""
LIMITS = {"train.target", "train.target_metric", "train.higher_is_better", "train.max_seconds"}
"""Settings that may change when a run is resumed, as may max_epochs, which is set later."""
IGNORED = {"threads_wait", "arguments", "script", "step_note", "confirm_evaluations", "resume", "runs_dir", "budget"}
IGNORED |= {"script_sha256", "keeps", "max_epochs", "trial", "sweep", "settings", "sharding", "plan", "ranks"}
"""Settings that decide nothing, or are set later; a resumed run keeps the name of its budget."""


class RunLog:
    """Writes one run for its harness; of several ranks, only rank 0 writes."""

    def __init__(
        self, harness: Harness, name: str, config: dict[str, Any], goal: Goal, seed: int | None, ranks: Ranks | None
    ):
        """Make the run's folder, or open the folder of a resumed run; dictionaries in `config` are sections."""
        sections = {key: value for key, value in config.items() if isinstance(value, dict)}
        train = {key: value for key, value in config.items() if key not in sections} | sections.pop("train", {})
        train |= goal.described()
        if harness.command.power_limit_w is not None:
            train["power_limit_w"] = harness.command.power_limit_w
        self._harness, self.ranks = harness, ranks
        self.config: Any = {"job": name, **sections, "train": train} | harness.described()
        if ranks is not None:
            self.config["ranks"] = ranks.count
            ranks.meet(_settings(self.config))
        resumed = harness.command.resume
        self.before = None if resumed is None else runs.read_run(resumed)
        """Record that an earlier process of this run left; None for a new run."""
        self._until_end = contextlib.ExitStack()
        """Listening to signals, energy windows, sampler, observer: they end in the opposite order."""
        self._look: telemetry.Look | None = None
        self._forward: Forward | None = None
        self._peak_gpu_before = 0
        self.stages: dict[str, float] = {}
        """Seconds of each stage that is finished"""
        self._run: runs.RunWriter | None = None
        self.folder = Path(resumed or harness.command.runs_dir)

        def make() -> str:
            self._run = self._create(name, seed) if resumed is None else self._reopen(Path(resumed))
            self.folder = self._run.folder
            return str(self.folder.absolute())

        self._shared: str | None = None
        """The run's folder, as far as this rank knows it"""
        if ranks is not None:
            self._shared = ranks.first_makes(make)
        elif own_rank() == 0:
            self._shared = make()
        if own_rank() != 0 and self._shared is not None:
            self.folder = Path(self._shared)
        self._windows = Windows(self.event)
        if harness is not current_harness():  # one that wraps the script listens already
            self._until_end.enter_context(harness.stop)
        self._until_end.callback(self._windows.close)

    def _create(self, name: str, seed: int | None) -> runs.RunWriter:
        harness, budget = self._harness, self._harness.budget
        kind = "emulated" if budget.emulated else "measured"
        note = f"budget {budget.name!r} enforced on a larger machine" if budget.emulated else ""
        return runs.RunWriter.create(
            Path(harness.command.runs_dir),
            "".join(char if char.isalnum() or char in "-_." else "-" for char in name)[:60],
            config=self.config,
            budget=json_data.to_json(budget),
            tier=budget.tier,
            devices=[asdict(device) for device in self._devices()],
            seed=seed,
            provenance=runs.Provenance.now(kind, note=note),
            software=hardware.package_versions(),
        )

    def _reopen(self, folder: Path) -> runs.RunWriter:
        before, command = errors.certain(self.before), self._harness.command
        lock = runs.lock_run(folder)  # from here on no other process saves a checkpoint
        try:
            refuse_another_run(before, self.config, folder)
            # without a budget, the device is not known before the script's models are
            now = command.shared or command.budget or whole_device(before.budget["torch_name"])
            refuse_another_machine(before, now, folder)
            self._peak_gpu_before = (before.result or {}).get("peak_gpu_memory_bytes") or 0
            # the record keeps its old configuration until `started`; only then is the new one known to be the same run
            return runs.RunWriter.reopen(
                folder,
                lock,
                from_step=step_of(folder / "checkpoint" / "latest.pt") or 0,
                config=before.config,
                software=hardware.package_versions(),
                devices=[asdict(device) for device in self._devices()],
            )
        except BaseException:
            lock.release()
            raise

    def _devices(self) -> list[hardware.Device]:
        devices = hardware.get_devices()
        torch_name = self._harness.torch_name
        computing = [device for device in devices[1:] if device.torch_name == torch_name]
        return [devices[0], *(computing or amd_gpus(torch_name))]

    # while it goes on

    def refuse_other_ranks(self) -> None:
        """Refuse a resume on another number of ranks."""
        was, count = (self.before or self).config.get("ranks", 1), self.ranks.count if self.ranks is not None else 1
        if was != count:
            how = f"--nproc {was}" if was > 1 else "one process, without --nproc"
            raise UserError(
                f"{self.folder}: this run had {was} process{'es' * (was > 1)}, but here it has {count}, and what it "
                f"keeps is one for all of them: resume it with {how}, or start a new run."
            )

    def started(self, position: Any) -> None:
        """Report that the run has started, with its final configuration; from here on each rank writes where it is."""
        self.describe_training()
        if self._run is not None:
            self.tell(Started(self._run.run_id, str(self.folder), self.config))
        if self.ranks is not None:
            self.ranks.begin(self._shared, position)

    def describe_training(self, **settings: Any) -> None:
        """Add settings to the record that the script sets after the start."""
        self.config["train"] |= settings
        if self._run is not None:
            self._run.record.config = self.config
            self._run.record.save(self.folder)

    def begin(self, torch_name: str) -> None:
        """Start the sampler once everything is built, and report that the run is ready."""
        self._windows.torch_name = torch_name
        if self.ranks is not None and self._harness.observer is None:
            self._until_end.enter_context(watched_by(self.ranks.timed))
        telemetry.forget_peak_memory()
        if torch_name.startswith("cuda"):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(torch_name)
        if self._run is not None:
            if self._run.record.budget.get("torch_name") != torch_name:
                used: list[Any] = [asdict(device) for device in self._devices()]
                self._run.record.devices = used
                self._run.record.budget = json_data.to_json(self._harness.budget)
                self._run.record.save(self.folder)
            if self._harness.observer is None:
                self._forward = Forward.wanted(self.folder, self.notice)
            self._until_end.enter_context(self._sampled(self._run))
            if self._harness.observer is not None:
                self._harness.observer.start(self.folder, torch.device(torch_name))
                self._until_end.callback(self._harness.observer.finish)
            gpu = self._devices()[-1]
            count = self._harness.budget.cores or hardware.get_devices()[0].cores
            self._look = telemetry.Look(count, self._harness.family, gpu if gpu.kind != "cpu" else None)
        self.tell(Ready())

    @contextlib.contextmanager
    def _sampled(self, run: runs.RunWriter):
        """Sample this process. A sampler that dies is recorded and reported, and stops nothing."""
        faults: list[str] = []

        def on_fault(kind: str, what: str) -> None:
            run.event("fault", kind=kind, what=what)
            faults.append(f"{telemetry.FAULTS[kind]} ({what})")

        sampler = telemetry.Sampler(
            run.folder,
            hz=self._harness.command.sample_hz or telemetry.DEFAULT_HZ,
            on_fault=on_fault,
            apart=[self._forward.pid] if self._forward is not None else (),
            ranks=self.ranks.here if self.ranks is not None else None,
        )
        try:
            with sampler:
                yield
        finally:
            for fault in faults:
                self.notice(fault)
            if sampler.failure:
                run.event("fault", kind="sampler", what=sampler.failure)
                self.notice(f"the sampler failed ({sampler.failure}): memory and energy of this run are not measured")

    @property
    def stopped_by(self) -> str:
        """Who asked this run to stop, by a signal or through its folder; empty if it was not asked."""
        if self._harness.stop:
            return f"stopped by {self._harness.stop.reason}"
        return "stopped on request" if self._run is not None and self._run.stop_requested else ""

    def metric(self, name: str, value: float, at: Point) -> None:
        if self._run is not None:
            self._run.metric(name=name, value=value, **asdict(at))

    def event(self, event: str, /, **values: Any) -> None:
        if self._run is not None:
            self._run.event(event, **values)

    def tests(self) -> list[dict[str, Any]]:
        """Events with this run's scores on the test split."""
        return [event for event in runs.read_events(self.folder) if event["event"] == "tested"]

    def notice(self, text: str) -> None:
        self.tell(Notice(text))

    @property
    def saves(self) -> bool:
        """Whether this process saves checkpoints: it writes the run, and no observer watches it."""
        return self._run is not None and self._harness.observer is None

    def tell(self, event: Any) -> None:
        """Report an event to those who watch the run."""
        if self._run is not None:
            self._harness.tell(event)

    def flush(self) -> None:
        self._windows.write()
        if self._run is not None:
            self._run.flush()

    # the end

    def why(self, error: BaseException) -> str:
        """A sentence on an error that ends the run."""
        if hardware.is_out_of_memory(error):
            return str(hardware.memory_error(self._harness.budget, hardware.get_devices()[0], error))
        return f"{type(error).__name__}: {error}"

    def finish(self, status: runs.Status, result: dict[str, Any], *, is_fault: bool) -> None:
        """Write the final record, with memory and energy from the samples; `is_fault` also records a fault."""
        try:
            with self._until_end:
                before = (self.before.result or {}).get("others") if self.before else None
                result["others"] = runs.worse(before, self._look.others() if self._look else None)
        finally:
            if self._run is not None:
                try:
                    samples = telemetry.Samples(self.folder, telemetry.OF_A_RESULT)  # read once for both
                    energy, peak = telemetry.run_energy(samples), telemetry.peak_memory(samples)
                    result |= {"peak_memory_bytes": peak, "peak_gpu_memory_bytes": None}
                    if (name := self._windows.torch_name).startswith("cuda"):  # all that torch held, in any process
                        held = max(int(self._peak_gpu_before), torch.cuda.max_memory_reserved(name))
                        result["peak_gpu_memory_bytes"] = held
                    result |= {"energy_j": energy.value_j, "energy_note": energy.note}
                    if self.ranks is not None and (table := self.ranks.table(waits=status != "failed")):
                        result["ranks"] = table
                        result["peak_memory_bytes"] = sum(row["peak_memory_bytes"] for row in table)
                    if is_fault:
                        self.event("fault", kind="error", what=result["reason"])
                    self._run.event("ended", status=status, reason=result["reason"], ended_by=result["ended_by"])
                finally:
                    self._run.finish(status, result)
                    if self._forward is not None:
                        self._forward.finish()
                    self._harness.ended(self._run.run_id, str(self.folder), status, result)

    def leave_as_it_was(self, reason: str) -> None:
        """Close a run that this script cannot resume, with the record that it had before."""
        self._until_end.close()
        if self._run is not None:
            before = errors.certain(self.before)
            self._run.record.config, status = before.config, before.status
            self._run.event("ended", status=status, reason=reason, ended_by="refused")
            self._run.finish(status, before.result)
            self._harness.ended(self._run.run_id, str(self.folder), status, before.result or {})


def amd_gpus(torch_name: str) -> list[hardware.Device]:
    """The AMD GPU that torch computes on, with the name that Zeus' samples have; empty under CUDA or on a CPU."""
    if torch.version.hip is None or not torch_name.startswith("cuda"):
        return []
    about, number = torch.cuda.get_device_properties(torch_name), int(torch_name.partition(":")[2])
    return [hardware.Device("gpu", number, about.name, torch_name, f"{telemetry.HIP}{number}", about.total_memory)]


def own_rank() -> int:
    """Rank of this process; 0 if it is the only one."""
    is_one_of_several = dist.is_available() and dist.is_initialized()
    return dist.get_rank() if is_one_of_several else int(os.environ.get("RANK") or "0")


def refuse_another_run(before: runs.RunRecord, described: dict[str, Any], folder: Path) -> None:
    """Refuse a resume whose settings, `described`, would mix two experiments in one run."""
    if before.profiled:
        raise UserError(f"{folder}: this run was profiled, so it has no checkpoint: start a new run.")
    if "collocation" in before.config:
        raise UserError(
            f"{folder}: this run is one of the jobs of {folder.parent.name}, and would be faster alone: resume the "
            "whole group with `labkit collocate --resume`, or start a new run."
        )
    old, new = (_settings(runs.shielded(config)) for config in (before.config, json.loads(json.dumps(described))))
    changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    others = sorted(changed - LIMITS)
    if "data.fingerprint" in others:
        raise UserError(
            f"{folder}: the data {new.get('data.name')!r} has changed since this run started, so a resume would mix "
            "two datasets: restore the data, or start a new run."
        )
    if others:
        changes = "; ".join(f"{name} was {old.get(name)!r} and is {new.get(name)!r}" for name in others[:4])
        raise UserError(
            f"{folder}: a resumed run must keep its settings, but {changes}. Restore these, in the script or on the "
            "command line (only target, max_seconds and max_epochs may change), or start a new run."
        )
    if (before.result or {}).get("ended_by") == "diverged":
        raise UserError(f"{folder}: this run diverged, and would again: start a new run with a lower learning rate.")
    if before.status == "done" and not changed and "max_epochs" not in before.config.get("train", {}):
        raise nothing_to_do(folder, (before.result or {}).get("reason") or "")


def refuse_another_machine(before: runs.RunRecord, budget: hardware.Budget, folder: Path) -> None:
    """Refuse a resume on other hardware, or on another number of cores."""
    cpu, *others = hardware.get_devices()
    devices = [cpu.name, *(device.name for device in others if device.torch_name == budget.torch_name)]
    was = *(device["name"] for device in before.devices), f"{before.budget['cores'] or 'all'} cores"
    here = *devices, f"{budget.cores or 'all'} cores"
    if was != here:
        raise UserError(
            f"{folder}: this run used {', '.join(was)}, but here it would use {', '.join(here)}, so its times would "
            "mix two machines: resume it where it started, or start a new run."
        )


def nothing_to_do(folder: Path, why: str) -> UserError:
    """The error for a resume that would have nothing to train; `why` the run is done."""
    return UserError(
        f"{folder}: this run is done ({why}): give a larger --max-epochs or another --target; limits count from the "
        "start of the run."
    )


def _settings(config: dict[str, Any], section: str = "") -> dict[str, Any]:
    """The settings that decide a run, by name; in sections as in "train.lr"."""
    settings = {}
    for name in config.keys() - IGNORED:
        value = config[name]
        settings |= _settings(value, f"{section}{name}.") if isinstance(value, dict) else {f"{section}{name}": value}
    return settings


def step_of(path: Path) -> int | None:
    """The step after which a checkpoint was saved; None if there is no such file."""
    return load_checkpoint(path)["position"]["step"] if path.exists() else None


def save_checkpoints(contents: dict[Path, dict[str, Any]]) -> None:
    """Write tensors and plain values to each path. All keep their old checkpoints until all new ones are whole."""
    written = {path: runs.temporary_of(path) for path in contents}
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with runs.disk_full_as_user_error(path.parent), written[path].open("wb") as file:
                torch.save({"format": FORMAT, **content}, file)
                file.flush()
                os.fsync(file.fileno())
        for path, temporary in written.items():
            temporary.replace(path)
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint, tensors on the CPU."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch.load does not verify its checksums
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"{damaged} has a wrong checksum")
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']} and this labkit reads {FORMAT}")
    except Exception as error:  # a damaged zip file or pickle can raise any error
        raise UserError(
            f"{path}: this checkpoint cannot be read ({type(error).__name__}: {error}), because it is damaged or from "
            "another version of labkit: resume with the version that wrote it, or start a new run."
        ) from error
    return content
