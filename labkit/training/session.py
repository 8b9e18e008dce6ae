"""One run from request to result: budget, data, model, loop, test split, run folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import UserError
from labkit.hardware.budgets.budget import Budget, is_out_of_memory, memory_error
from labkit.hardware.budgets.names import offered_budgets, parse_budget
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.software import package_versions
from labkit.runs import Provenance, RunWriter, lock_run, read_events, read_run
from labkit.telemetry import DEFAULT_HZ, FAULTS, Sampler, forget_peak_memory, peak_memory, run_energy
from labkit.training.announcements import Notice, OnEvent, Ready, Started
from labkit.training.request import TrainRequest
from labkit.training.resume import refuse_another_run
from labkit.training.stop import StopRequest

if TYPE_CHECKING:
    from labkit.training.config import TrainConfig
    from labkit.training.observer import StepObserver


class RunFailed(UserError):
    """A run diverged, or was cut short by what its user can mend; what it was until then is in its folder."""

    def __init__(self, text: str, answer: dict[str, Any]):
        super().__init__(text)
        self.answer = answer
        """What `train` would have returned, its status "failed" or "stopped"."""


def train(
    request: TrainRequest,
    *,
    runs_dir: Path,
    on_event: OnEvent,
    stop: StopRequest,
    resume: Path | None = None,
    observer: StepObserver | None = None,
) -> dict[str, Any]:
    """Train in this process, which the request's budget binds from here on.

    Args:
        request: what to train; with `resume`, that run's own request, limits possibly changed.
        runs_dir: the folder that run folders are made in.
        on_event: called with what happens.
        stop: ends the run politely when requested.
        resume: the folder of a run to go on with.
        observer: looks at the steps, and ends the run when it has seen enough.

    Returns:
        `{"run", "folder", "status", "result"}`, as `labkit train --json` prints it.

    Raises:
        UserError: the request, the data or the machine does not allow the run.
        RunFailed: it diverged, or was cut short, by a full disk for one; what the run folder holds by then stays.
    """
    devices = get_devices()
    budget, device = _settle(request, devices)
    for note in budget.enforce():
        on_event(Notice(note))
    budget.share_gpu()
    with budget.memory_guard(device, request.chosen_batch_size):
        return _Session(request, budget, device, devices[0], runs_dir, on_event, stop, resume, observer).run()


def _settle(request: TrainRequest, devices: list[Device]) -> tuple[Budget, Device]:
    """The budget that binds and the device that computes."""
    by_torch_name = {device.torch_name: device for device in devices if device.torch_name}
    if request.budget is not None:
        budget = parse_budget(request.budget, devices)
    else:
        # offered_budgets ends with the GPUs; all of the CPU is the last entry before them
        whole = {budget.torch_name: budget for budget in offered_budgets(devices)}
        gpus = [name for name in whole if name != "cpu"]
        wanted = {"auto": gpus[0] if gpus else "cpu", "cuda": "cuda:0"}.get(request.device, request.device)
        if wanted not in whole:
            raise UserError(
                f"device {request.device!r} is not here: this machine offers {', '.join(whole)}. "
                "`labkit doctor` says what was found."
            )
        budget = whole[wanted]
    asked = {"auto": budget.torch_name, "cuda": "cuda:0"}.get(request.device, request.device)
    if asked not in by_torch_name:
        raise UserError(
            f"device {request.device!r} is not here: this machine offers {', '.join(by_torch_name)}. "
            "`labkit doctor` says what was found."
        )
    if asked != budget.torch_name:
        raise UserError(
            f"device {request.device!r} contradicts the budget {budget.name!r}, which computes on "
            f"{budget.torch_name}: leave one of the two away."
        )
    return budget, by_torch_name[asked]


class _Session:
    """The steps of `train`, which share these values."""

    def __init__(self, request, budget, device, cpu, runs_dir, on_event, stop, resume, observer):
        self.request, self.budget, self.device, self.cpu = request, budget, device, cpu
        self.runs_dir, self.on_event, self.stop, self.resume = runs_dir, on_event, stop, resume
        self.observer = observer
        self.peak_gpu_before = 0

    def run(self) -> dict[str, Any]:
        import torch

        from labkit.training.assembly import build_job, load_data
        from labkit.training.loop import Loop
        from labkit.training.step_choice import choose_step

        if self.budget.cores is not None:
            torch.set_num_threads(self.budget.cores)
        torch_device = torch.device(self.budget.torch_name)
        if torch_device.type == "cuda" and not torch.cuda.is_available():
            raise UserError(
                f"the GPU {self.device.name} is there, but this torch ({torch.__version__}) cannot use it: install a "
                "CUDA build (https://pytorch.org/get-started/locally), or train with --device cpu."
            )
        self.budget.cap_gpu_memory()  # also to undo what an earlier run of this process had
        data = load_data(self.request, self.on_event)
        config = self.request.train_config(len(data.split("train")))
        if self.observer is not None:
            config = _without_a_target(config)
        torch.manual_seed(config.seed)
        job, model = build_job(self.request, data, config, budget=self.budget, device=self.device)
        compiled = self.request.compiled_tables
        kind, why = choose_step(config.precision, compiled, job, config, torch_device, lambda: bool(self.stop))
        described = {
            "job": self.request.job,
            "request": self.request.to_dict(),
            "data": {
                "name": data.name,
                "fingerprint": data.fingerprint,
                "train_samples": job.train_samples,
                "info": data.info,
            },
            "model": asdict(model),
            "train": {**asdict(config), **asdict(kind)},
            "step_note": why,
            "budget": self.budget.to_dict(),
        }
        if self.observer is not None:
            described["profile"] = self.observer.describe()
            for limit in ("evaluate_every_samples", "max_epochs"):  # of which there are none
                described["train"][limit] = None
        run = self._open_run(described)
        self.on_event(Started(run.run_id, str(run.folder), described))
        self._tell_skipped(data.info, run.run_id)
        if config.batch_size > job.train_samples:
            self.on_event(
                Notice(f"batch_size {config.batch_size:,} is more than the {job.train_samples:,} samples there are")
            )
        loop = Loop(
            job,
            config,
            run,
            device=torch_device,
            kind=kind,
            stop=self.stop,
            on_progress=self.on_event,
            observer=self.observer,
        )
        answer = {"run": run.run_id, "folder": str(run.folder), "status": "failed", "result": {}}
        try:
            self._record(run, loop, answer)
        except UserError as error:
            raise RunFailed(str(error), answer) from error
        if answer["status"] == "failed":
            raise RunFailed(
                f"{run.folder}: {answer['result']['reason']}. Lower the learning rate (--lr), or let gradients be "
                "clipped by another preset.",
                answer,
            )
        return answer

    def _record(self, run: RunWriter, loop, ending: dict[str, Any]) -> None:
        """Train, and leave a finished record whatever happens; `ending` gets status and result."""
        try:
            self._train(run, loop, ending)
        except KeyboardInterrupt:
            ending["status"] = "stopped"
            raise
        except UserError as error:
            # a full disk, say: the run itself is sound and can go on once that is mended
            ending["status"] = "stopped"
            ending["result"]["reason"] = str(error)
            raise
        except BaseException as error:
            self.budget.forgive(error)
            ending["status"] = "failed"
            ending["result"]["reason"] = self._why(error)
            run.event("fault", kind="error", what=ending["result"]["reason"])
            raise
        finally:
            try:
                ending["result"] |= _telemetry(run.folder)
                run.event("ended", status=ending["status"], reason=ending["result"].get("reason", ""))
            finally:
                run.finish(ending["status"], ending["result"])

    def _why(self, error: BaseException) -> str:
        if is_out_of_memory(error):
            return str(memory_error(self.budget, self.device, self.request.chosen_batch_size, error))
        return f"{type(error).__name__}: {error}"

    def _train(self, run: RunWriter, loop, ending: dict[str, Any]) -> None:
        """Train, then score the test split; `ending` holds what is known so far."""
        forget_peak_memory()
        _forget_peak_gpu_memory(loop.device)
        with self._sampled(run):
            if self.resume is not None:
                if loop.checkpoints.latest.exists():
                    loop.resume()
                at = loop.position
                self.on_event(Notice(f"going on from step {at.step:,}, {at.samples:,} samples"))
            self.on_event(Ready())
            with self._observed(run, loop):
                outcome = loop.fit()
            ending["status"], ending["result"] = outcome.status, _result(loop, outcome, self.peak_gpu_before)
            if outcome.status == "done" and self.observer is None:
                ending["result"]["metrics"] = self._test(run, loop)

    @contextlib.contextmanager
    def _sampled(self, run: RunWriter) -> Iterator[None]:
        """Sample this process during the block; a sampler that dies is recorded and told, and stops nothing."""
        faults: list[str] = []

        def on_fault(kind: str, what: str) -> None:
            run.event("fault", kind=kind, what=what)
            faults.append(f"{FAULTS[kind]} ({what})")

        sampler = Sampler(run.folder, hz=self.request.sample_hz or DEFAULT_HZ, on_fault=on_fault)
        try:
            with sampler:
                yield
        finally:
            for fault in [*faults, *(f"not recorded: {each}" for each in sampler.untold)]:
                self.on_event(Notice(fault))
            if sampler.failure:
                run.event("fault", kind="sampler", what=sampler.failure)
                self.on_event(
                    Notice(f"the sampler failed ({sampler.failure}): memory and energy of this run are not measured")
                )

    @contextlib.contextmanager
    def _observed(self, run: RunWriter, loop) -> Iterator[None]:
        if self.observer is None:
            yield
            return
        self.observer.start(run.folder, loop.device)
        try:
            yield
        finally:
            self.observer.finish()

    def _test(self, run: RunWriter, loop) -> dict[str, float]:
        """The metrics of the test split, with the weights that were best on the validation split.

        A run touches it once; one that was done, went on and found better weights touches it again, and says so.
        """
        import torch

        from labkit.training.checkpoint import load_checkpoint

        looks = [event for event in read_events(run.folder) if event["event"] == "tested"]
        best_step = loop.position.best_step
        if looks and looks[-1].get("best_step") == best_step:
            return looks[-1]["metrics"]  # these very weights were scored before
        if loop.checkpoints.best.exists():
            loop.job.model.load_state_dict(load_checkpoint(loop.checkpoints.best)["model"])
        loop.job.model.eval()
        began = time.perf_counter()
        with torch.inference_mode(), loop.kind.autocast(loop.device):
            metrics = loop.job.evaluate(loop.job.model, "test")
        look = len(looks) + 1
        run.event("tested", metrics=metrics, look=look, best_step=best_step, took_s=time.perf_counter() - began)
        if look > 1:
            self.on_event(Notice(f"this run has now been scored on the test split {look} times"))
        return metrics

    def _open_run(self, described: dict[str, Any]) -> RunWriter:
        devices = [self.cpu.to_dict()] + ([self.device.to_dict()] if self.device is not self.cpu else [])
        if self.resume is not None:
            return self._reopen(described, devices)
        kind = "emulated" if self.budget.emulated else "measured"
        note = f"budget {self.budget.name!r} enforced on a larger machine" if self.budget.emulated else ""
        return RunWriter.create(
            self.runs_dir,
            f"{self.request.job}-{self.request.preset}",
            config=described,
            budget=self.budget.to_dict(),
            tier=self.budget.tier,
            devices=devices,
            seed=self.request.seed,
            provenance=Provenance.now(kind, note=note),
            software=package_versions(),
        )

    def _reopen(self, described: dict[str, Any], devices: list[dict[str, Any]]) -> RunWriter:
        from labkit.training.checkpoint import step_of

        lock = lock_run(self.resume)  # from here on nobody saves another checkpoint
        try:
            refuse_another_run(self.resume, described, self.device)
            before = read_run(self.resume)
            # the request asks for the kind of step that was settled then, so that its reason is the one of then
            described["step_note"] = before.config.get("step_note", described["step_note"])
            self.peak_gpu_before = (before.result or {}).get("peak_gpu_memory_bytes") or 0
            return RunWriter.reopen(
                self.resume,
                lock,
                from_step=step_of(self.resume / "checkpoint" / "latest.pt") or 0,
                config=described,
                software=package_versions(),
                devices=devices,
            )
        except BaseException:
            lock.release()
            raise

    def _tell_skipped(self, info: dict[str, Any], run_id: str) -> None:
        skipped = info.get("skipped", {}).get("rows", 0)
        if skipped:
            self.on_event(Notice(f"bad rows skipped: {skipped:,}; `labkit runs show {run_id}` lists the first."))


def _without_a_target(config: TrainConfig) -> TrainConfig:
    """Settings with which a run goes on for as long as it is observed, and is evaluated never."""
    never = 2**31
    return replace(
        config,
        target=None,
        patience_evaluations=None,
        max_seconds=None,
        evaluate_every_samples=never,
        max_epochs=never,
    )


def _result(loop, outcome, peak_gpu_before: int) -> dict[str, Any]:
    first = outcome.first_crossing
    sustained = outcome.sustained_crossing
    return {
        "metrics": {},
        "target_reached": None if loop.config.target is None else first is not None,
        "time_to_target_s": first and first.wall_s,
        "samples_to_target": first and first.samples,
        "sustained_time_to_target_s": sustained and sustained.wall_s,
        "samples_per_s": outcome.samples_per_s,
        "best_validation": outcome.best_value,
        "samples": outcome.point.samples,
        "steps": outcome.point.step,
        "wall_s": outcome.point.wall_s,
        "train_s": outcome.point.train_s,
        "peak_gpu_memory_bytes": _peak_gpu_memory(loop.device, peak_gpu_before),
        "reason": outcome.reason,
    }


def _forget_peak_gpu_memory(device) -> None:
    """Start torch's high-water mark of the GPU anew, without what trying steps took."""
    import torch

    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak_gpu_memory(device, before: int) -> int | None:
    """Most bytes torch held on the GPU at once, in this process or `before`; None on a CPU."""
    import torch

    return max(before, torch.cuda.max_memory_reserved(device)) if device.type == "cuda" else None


def _telemetry(folder: Path) -> dict[str, Any]:
    energy = run_energy(folder)
    return {"peak_memory_bytes": peak_memory(folder), "energy_j": energy.value_j, "energy_note": energy.note}
