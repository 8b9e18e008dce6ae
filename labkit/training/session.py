"""One run from request to result: budget, data, model, loop, test split, run folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.hardware.budgets import Budget, offered_budgets, parse_budget
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.software import package_versions
from labkit.runs import Provenance, RunWriter, read_run
from labkit.telemetry import Sampler, peak_memory, run_energy
from labkit.training.request import TrainRequest
from labkit.training.stop import StopRequest


@dataclass(frozen=True)
class Notice:
    """Something an onlooker should know, in one line."""

    text: str


@dataclass(frozen=True)
class Preparing:
    """How far the data's preparation is."""

    fraction: float
    text: str


@dataclass(frozen=True)
class Started:
    """The run folder is there and training begins."""

    run: str
    folder: str
    config: dict[str, Any]


OnEvent = Callable[[Any], None]
"""Takes Notice, Preparing, Started, and the loop's Progress."""


def train(
    request: TrainRequest, *, runs_dir: Path, on_event: OnEvent, stop: StopRequest, resume: Path | None = None
) -> dict[str, Any]:
    """Train in this process, which the request's budget binds from here on.

    Args:
        request: what to train; with `resume`, that run's own request, limits possibly changed.
        runs_dir: the folder that run folders are made in.
        on_event: called with what happens.
        stop: ends the run politely when requested.
        resume: the folder of a run to go on with.

    Returns:
        `{"run", "folder", "status", "result"}`, as `labkit train --json` prints it.

    Raises:
        UserError: the request, the data or the machine does not allow the run, or it diverged; what the run folder
            holds by then stays.
    """
    devices = get_devices()
    budget, device = _settle(request, devices)
    for note in budget.enforce():
        on_event(Notice(note))
    with budget.memory_guard():
        return _Session(request, budget, device, devices[0], runs_dir, on_event, stop, resume).run()


def _settle(request: TrainRequest, devices: list[Device]) -> tuple[Budget, Device]:
    """The budget that binds and the device that computes."""
    by_torch_name = {device.torch_name: device for device in devices if device.torch_name}
    if request.budget is not None:
        budget = parse_budget(request.budget, devices)
    else:
        # offered_budgets ends with the GPUs; the whole CPU is the last entry before them
        whole = {b.torch_name: b for b in offered_budgets(devices) if not b.emulated}
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

    def __init__(self, request, budget, device, cpu, runs_dir, on_event, stop, resume):
        self.request, self.budget, self.device, self.cpu = request, budget, device, cpu
        self.runs_dir, self.on_event, self.stop, self.resume = runs_dir, on_event, stop, resume

    def run(self) -> dict[str, Any]:
        import torch

        from labkit.training.loop import Loop
        from labkit.training.precision import choose_precision

        if self.budget.cores is not None:
            torch.set_num_threads(self.budget.cores)
        torch_device = torch.device(self.budget.torch_name)
        if torch_device.type == "cuda" and not torch.cuda.is_available():
            raise UserError(
                f"the GPU {self.device.name} is there, but this torch ({torch.__version__}) cannot use it: install a "
                "CUDA build (https://pytorch.org/get-started/locally), or train with --device cpu."
            )
        data = self._load_data()
        train_samples = len(data.split("train"))
        config = self.request.train_config(train_samples)
        precision = choose_precision(config.precision, torch_device)
        torch.manual_seed(config.seed)
        job, model = self._build(data, config, torch_device)

        described = {
            "job": self.request.job,
            "request": self.request.to_dict(),
            "data": {
                "name": data.name,
                "fingerprint": data.fingerprint,
                "train_samples": train_samples,
                "info": data.info,
            },
            "model": asdict(model),
            "train": {**asdict(config), "precision": precision.name, "precision_note": precision.reason},
            "budget": self.budget.to_dict(),
        }
        run = self._open_run(described)
        self.on_event(Started(run.run_id, str(run.folder), described))
        skipped = data.info.get("skipped", {}).get("rows", 0)
        if skipped:
            self.on_event(
                Notice(f"{skipped:,} bad rows were skipped; `labkit runs show {run.run_id}` lists the first.")
            )
        status, result = "failed", {}
        try:
            with Sampler(run.folder):
                loop = Loop(
                    job,
                    config,
                    run,
                    device=torch_device,
                    precision=precision,
                    stop=self.stop,
                    on_progress=self.on_event,
                )
                if self.resume is not None and loop.latest.exists():
                    loop.resume()
                if self.resume is not None:
                    at = loop.position
                    self.on_event(Notice(f"going on from step {at.step:,}, {at.samples:,} samples"))
                outcome = loop.fit()
                status = outcome.status
                result = self._result(loop, outcome)
        except KeyboardInterrupt:
            status = "stopped"
            raise
        except UserError as error:
            # a full disk, say: the run itself is sound and can go on once that is mended
            status, result = "stopped", {"reason": str(error)}
            raise
        except BaseException as error:
            run.event("fault", what=f"{type(error).__name__}: {error}")
            raise
        finally:
            result = self._add_telemetry(run.folder, result)
            run.event("ended", status=status, reason=result.get("reason", ""))
            run.finish(status, result)
        if status == "failed":
            raise UserError(
                f"{run.folder}: {outcome.reason}. Lower the learning rate (--lr), or let gradients be clipped by "
                "another preset."
            )
        return {"run": run.run_id, "folder": str(run.folder), "status": status, "result": result}

    def _load_data(self):
        request = self.request
        on_progress = lambda fraction, text: self.on_event(Preparing(fraction, text))  # noqa: E731
        if request.job == "dlrm":
            from labkit.data.clicks import load_clicks

            options = {}
            if request.chosen_preset.max_num_rows is not None:
                options["max_rows_per_table"] = request.chosen_preset.max_num_rows
            return load_clicks(
                request.data_name,
                schema=request.schema,
                on_bad_row=request.on_bad_row,
                progress=on_progress,
                **options,
            )
        from labkit.data.speech import load_speech
        from labkit.models.speech import SpeechConfig

        return load_speech(
            request.data_name,
            on_bad_row=request.on_bad_row,
            progress=on_progress,
            # a transcript that needs more outputs than its utterance has frames for is bad input for this model
            frames_an_output=SpeechConfig(vocabulary=1, **request.chosen_preset.model).frames_an_output,
        )

    def _build(self, data, config, torch_device):
        shape = self.request.chosen_preset.model
        common = {"batch_size": config.batch_size, "seed": config.seed, "device": torch_device}
        if self.request.job == "dlrm":
            from labkit.models.dlrm import DlrmConfig
            from labkit.training.clicks_job import ClicksJob

            model = DlrmConfig(dense_dim=len(data.dense_names), num_rows=tuple(data.table_rows), **shape)
            self._check_memory(model)
            return ClicksJob(data, model, **common), model
        from labkit.models.speech import SpeechConfig
        from labkit.training.speech_job import SpeechJob

        model = SpeechConfig(vocabulary=len(data.alphabet), **shape)
        return SpeechJob(data, model, **common), model

    def _check_memory(self, model) -> None:
        """Refuse tables that cannot fit, before they take the machine down."""
        limit = self.budget.memory_bytes or self.device.memory_bytes
        states = {"sgd": 0, "adagrad": 1, "adam": 2}[self.request.chosen_preset.train["optimiser"]]
        needed = model.parameter_bytes * (1 + states)
        if limit is not None and needed > limit:
            raise UserError(
                f"preset {self.request.preset!r} on this data needs {needed / 2**30:.1f} GiB for its embedding tables "
                f"and their optimiser state, and {self.device.name} has {limit / 2**30:.1f} GiB under this budget: "
                "choose a smaller preset (kaggle, tour), or data with smaller vocabularies."
            )

    def _open_run(self, described: dict[str, Any]) -> RunWriter:
        if self.resume is not None:
            return self._reopen(described)
        kind = "emulated" if self.budget.emulated else "measured"
        note = f"budget {self.budget.name!r} enforced on a larger machine" if self.budget.emulated else ""
        return RunWriter.create(
            self.runs_dir,
            f"{self.request.job}-{self.request.preset}",
            config=described,
            budget=self.budget.to_dict(),
            tier=self.budget.tier,
            devices=[self.cpu.to_dict()] + ([self.device.to_dict()] if self.device is not self.cpu else []),
            seed=self.request.seed,
            provenance=Provenance.now(kind, note=note),
            software=package_versions(),
        )

    def _reopen(self, described: dict[str, Any]) -> RunWriter:
        from labkit.training.checkpoint import load_checkpoint

        before = read_run(self.resume).config
        if before["data"]["fingerprint"] != described["data"]["fingerprint"]:
            raise UserError(
                f"{self.resume}: the data {described['data']['name']!r} has changed since this run began, so going on "
                "would mix two datasets: start a new run."
            )
        latest = self.resume / "checkpoint" / "latest.pt"
        step = load_checkpoint(latest)["position"]["step"] if latest.exists() else 0
        return RunWriter.reopen(self.resume, from_step=step, config=described, software=package_versions())

    def _result(self, loop, outcome) -> dict[str, Any]:
        first = outcome.first_crossing
        sustained = outcome.sustained_crossing
        return {
            "metrics": self._test(loop) if outcome.status == "done" else {},
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
            "peak_gpu_memory_bytes": _peak_gpu_memory(loop.device),
            "reason": outcome.reason,
        }

    def _test(self, loop) -> dict[str, float]:
        """The test split, touched this once, with the weights that were best on the validation split."""
        import torch

        from labkit.training.checkpoint import load_checkpoint

        if loop.best.exists():
            loop.job.model.load_state_dict(load_checkpoint(loop.best)["model"])
        loop.job.model.eval()
        began = time.perf_counter()
        with torch.inference_mode(), loop.precision.autocast(loop.device):
            metrics = loop.job.evaluate(loop.job.model, "test")
        loop.run.event("tested", metrics=metrics, took_s=time.perf_counter() - began)
        return metrics

    def _add_telemetry(self, folder: Path, result: dict[str, Any]) -> dict[str, Any]:
        energy = run_energy(folder)
        return result | {
            "peak_memory_bytes": peak_memory(folder),
            "energy_j": energy.value_j,
            "energy_note": energy.note,
        }


def _peak_gpu_memory(device) -> int | None:
    """Most bytes torch held on the GPU at once; None on a CPU."""
    import torch

    return torch.cuda.max_memory_reserved(device) if device.type == "cuda" else None
