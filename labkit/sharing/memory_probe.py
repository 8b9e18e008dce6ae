"""How much memory a training script takes: measured over its first steps, in a process of its own."""

import contextlib
import hashlib
import json
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

from labkit import UserError, data, errors, hardware, launch, runs, telemetry, tracking

TRIAL_STEPS, TRIAL_S, EVALUATING_S = 3, 3.0, 20.0
"""A trial ends after the script's first evaluation, else after so many steps and seconds of them; a script with a
target will be evaluated, and has longer."""
LONGEST_TRIAL_S = 60.0
"""Seconds after the start, or the end of the data's preparation, at which a trial ends whatever came of it"""
GROWTH_BYTES = 150 << 20
"""By how much a process on a CPU grows after its first evaluation: oneDNN keeps a kernel for each shape of batch, and
the heap gets holes. Measured on two cores over three epochs: 141 MiB speech:tour, 13 dlrm:tour on synthetic-small."""
CUDA_CONTEXT_BYTES = 512 << 20
"""Assumed where the driver does not report a process' memory: what it holds on a GPU besides tensors, the context and
loaded kernels. pytorch/pytorch#86509 reports 287 MB with kernels loaded when they are needed and 667 MB without."""


def first_steps_bytes(command: "tracking.ScriptCommand", device_kind: str) -> int | None:
    """Take a script's first steps in a process of its own: how much memory of the device that held at its peak.

    What was measured is kept (`needs.json` next to the prepared data) by machine, text of the Python files in the
    script's folder and the folders in it, and arguments, in which {seed} still stands, so that many copies are tried
    once. The trial is ended before it takes more memory of the machine than is free.

    Args:
        command: of the script; budget, cores and the folder for runs do not matter.
        device_kind: "cpu" or "cuda".

    Returns:
        Bytes; None where it took no step, or its peak is not known.

    Raises:
        UserError: the script was refused, as a DLRM is whose tables are larger than what is free, or failed.
    """
    devices, torch_name = hardware.get_devices(), "cpu" if device_kind == "cpu" else "cuda:0"
    script = Path(errors.certain(command.script))
    device = next((each for each in devices if each.torch_name == torch_name), devices[0])
    what = [device.name, version("torch"), version("labkit"), script.name, command.module, command.arguments]
    hashed, folder = hashlib.blake2s(json.dumps(what).encode(), digest_size=8), script.parent
    for file in sorted({*folder.glob("*.py"), *folder.glob("*/*.py")}):
        with contextlib.suppress(OSError):  # somebody else's
            hashed.update(file.read_bytes())
    key = hashed.hexdigest()
    path = data.prepared_root() / "needs.json"
    if (peak := _kept(path).get(key)) is None:
        # it is killed at an eighth more than its budget (`hard_limit`)
        most_bytes = hardware.read_cpu().memory_available_bytes * 8 // 9
        budget = hardware.Budget("what is free now", None, most_bytes, torch_name)
        peak = _tried(replace(command, device=torch_name, budget=budget, sample_hz=10))
        if peak is not None:
            with FileLock(path.with_name(".needs.json.lock")):
                runs.replace_text(path, json.dumps(_kept(path) | {key: peak}, indent=1) + "\n")
    return peak


class _Trial(launch.ScriptRuns):
    """A run of a script's first steps, which is asked to end when they have shown enough, and killed if it does not."""

    shows_output, poll_s, grace_s = False, 0.1, 20.0

    def __init__(self, command: "tracking.ScriptCommand"):
        super().__init__("probe", [command], stop=tracking.StopRequest())
        self._ends_s, self._enough_s = time.monotonic() + LONGEST_TRIAL_S, TRIAL_S

    def heard(self, part: "launch.Part", event: dict[str, Any]) -> None:
        now_s, kind = time.monotonic(), event["kind"]
        if kind == "Preparing":
            self._ends_s = now_s + LONGEST_TRIAL_S
        elif kind == "Started" and event["config"]["train"]["target_metric"] is not None:
            self._enough_s = EVALUATING_S
        elif kind == "Progress":
            point = event["point"]
            if event["evaluated"] or (point["step"] >= TRIAL_STEPS and point["train_s"] >= self._enough_s):
                self._ends_s = min(self._ends_s, now_s)

    def look(self) -> None:
        if time.monotonic() >= self._ends_s:
            for part in self.running:
                self.ask_to_end(part, "done", "its first steps were taken, or its time was over")


def _tried(command: "tracking.ScriptCommand") -> int | None:
    data.prepared_root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trial-", dir=data.prepared_root()) as folder:
        trial = _Trial(replace(command.seeded(0), seed=None, runs_dir=folder))
        trial.run()
        answer, end = trial.end.answer, trial.end
        # one that was asked to end before it had a run has taken no step
        if end.status in ("failed", "out_of_memory") and (answer or not end.was_asked):
            what = end.reason
            if end.status == "out_of_memory" and command.device == "cpu":
                most = hardware.size_text(errors.certain(errors.certain(command.budget).memory_bytes))
                what = f"it takes more memory than is free ({most} were for it): make it smaller, or wait"
            name = Path(errors.certain(command.script)).name
            raise UserError(f"{name} was tried for its first steps, to know its memory, and failed: {what}")
        if not answer or not answer["result"]["steps"]:
            return None
        if command.device == "cpu":
            return answer["result"]["peak_memory_bytes"]
        reserved = answer["result"]["peak_gpu_memory_bytes"]
        samples = telemetry.Samples(answer["folder"]).of("process").get("memory_used", [])
        told = [int(sample.value) for sample in samples if sample.value]
        return reserved and max([reserved + (0 if told else CUDA_CONTEXT_BYTES), *told])


def _kept(path: Path) -> dict[str, int]:
    """All that was measured, by key."""
    return json.loads(path.read_text()) if path.is_file() else {}
