"""What a run costs beside its bare steps, and what page faults cost it: `python benchmarks/loop_overhead.py`.

The same batches of the tour's DLRM are trained on by bare steps and by the loop of the job inside `labkit.Run`, its
sampler on, in turn in one process on one core. Evaluations and checkpoints are left out: time_to_target.py has them.
Then an epoch of the job runs in a process as `labkit run` makes it, with `keep_memory` and without, in pairs.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from itertools import islice

from measuring import Ratio, bind_to, cores, in_own_process, paired, report

STEPS = 300
"""Of a turn: less than an epoch, and about a second."""
ALLOCATORS = ("given back", "kept")
COSTS = {"wall_s": ("time", "s"), "system_s": ("system time", "s"), "minor_faults": ("minor faults", "faults")}


def loop_beside_steps(turns: int) -> list[Ratio]:
    """How many times as long the bare steps take as the loop: 0.95 is an overhead of 5 %."""
    import torch
    from dlrm_shapes import CPU, precisions

    import labkit
    from labkit.data.clicks import ClickBatches, load_clicks
    from labkit.fast import autocast
    from labkit.hardware import keep_memory
    from labkit.jobs import build_optimizers, get_preset
    from labkit.jobs.dlrm import build_model, loss_of
    from labkit.models import DlrmConfig

    bind_to(cores()[:1])  # the sampler's process, too
    torch.set_num_threads(1)
    keep_memory()
    log, preset, precision = load_clicks("synthetic"), get_preset("dlrm", "tour"), precisions()[-1]
    batches = ClickBatches(log.split("train"), preset.train["batch_size"], seed=0)
    model = build_model(DlrmConfig(len(log.dense_names), log.table_rows, **preset.model), "fast")
    optimizers = build_optimizers(model, preset.train["optimiser"], preset.train["lr"], "fast")

    class First:
        """The first batches, which note when they were asked for."""

        def at(self, epoch: int, start: int):
            self.began = time.perf_counter()
            yield from islice(batches.at(0, 0), STEPS)

    def bare() -> float:
        first = First()
        for batch in first.at(0, 0):
            with autocast(precision, CPU):
                loss = loss_of(model, batch)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        return time.perf_counter() - first.began

    def loop() -> float:
        first = First()
        with (
            tempfile.TemporaryDirectory() as folder,
            labkit.Run("loop", target="max auc", evaluate_every=2**40, runs_dir=folder) as run,
        ):
            for _ in run.epochs(1):
                for batch in run.batches(first):
                    with run.phase("host-to-device"):
                        batch = [tensor.to(CPU, non_blocking=True) for tensor in batch]
                    with run.phase("forward"), autocast(precision, CPU):
                        loss = loss_of(model, batch)
                    with run.phase("backward"):
                        loss.backward()
                    with run.phase("optimiser"):
                        for optimizer in optimizers:
                            optimizer.step()
                            optimizer.zero_grad()
                    run.step(loss, samples=len(batch[0]))
                    if run.due:
                        raise AssertionError("no evaluation is due")
                return time.perf_counter() - first.began

    taken: list[tuple[float, float]] = []
    for turn in range(-1, turns):
        pair = (loop(), bare()) if turn % 2 else (bare(), loop())[::-1]
        taken += [pair] if turn >= 0 else []
    loops, bares = map(list, zip(*taken, strict=True))
    ratio = paired(f"{STEPS} steps of the DLRM, {precision}", "in labkit.Run", "bare steps", loops, bares, unit="s")
    print(
        f"the loop costs {100 / ratio.ratio - 100:.1f} % ({100 / ratio.high - 100:.1f} to {100 / ratio.low - 100:.1f})"
    )
    return [ratio]


def one_epoch(allocator: str) -> dict[str, float]:
    """What an epoch of the job, evaluations included, costs this process from its first step on."""
    import resource

    from labkit import hardware
    from labkit.jobs import job_command
    from labkit.tracking import Ready, StopRequest, script

    if allocator == "given back":
        hardware.keep_memory = lambda: False
    marks = []

    def hear(event) -> None:
        if isinstance(event, Ready):
            marks.append(resource.getrusage(resource.RUSAGE_SELF))

    with tempfile.TemporaryDirectory() as folder:
        command = job_command("dlrm", budget="one-core", runs_dir=folder, max_epochs=1, target="none")
        result = script.run_command(command, StopRequest(), hear)["result"]
    now, first = resource.getrusage(resource.RUSAGE_SELF), marks[0]
    return {
        "wall_s": result["wall_s"],
        "system_s": now.ru_stime - first.ru_stime,
        "minor_faults": now.ru_minflt - first.ru_minflt,
        "steps": result["steps"],
    }


def memory_kept_beside_given_back(pairs: int) -> tuple[list[Ratio], list[dict]]:
    from labkit.hardware import parse_budget

    environment = parse_budget("one-core").environment()
    turns = []
    for _ in range(pairs):
        turns.append({})
        for allocator in ALLOCATORS[:: 1 if len(turns) % 2 else -1]:
            found, peak_gb = in_own_process([__file__, "--epoch", allocator], environment=environment)
            turns[-1][allocator] = found | {"peak_gb": peak_gb}
            faults, steps = found["minor_faults"], found["steps"]
            print(f"memory {allocator}: {faults / steps:,.0f} faults a step, {found['wall_s']:.2f} s, {peak_gb:.2f} GB")
    return [
        paired(f"{what} of an epoch of the DLRM", "memory kept", "memory given back",
               *([turn[allocator][cost] for turn in turns] for allocator in ALLOCATORS[::-1]), unit=unit)
        for cost, (what, unit) in COSTS.items()
    ], turns  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20, help=f"of {STEPS} steps in the loop and bare, at least 2 (20)")
    parser.add_argument(
        "--pairs", type=int, default=8, help="of epochs with memory kept and given back, at least 2 (8)"
    )
    parser.add_argument("--epoch", choices=ALLOCATORS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.epoch:
        print(json.dumps(one_epoch(args.epoch)))
        return
    if min(args.turns, args.pairs) < 2:
        parser.error("--turns, --pairs: an interval takes at least 2")
    os.environ["LABKIT_QUIET"] = "1"
    # glibc's malloc is what keeps memory; it comes first, because the loop binds this process to a core
    of_memory, epochs = memory_kept_beside_given_back(args.pairs) if sys.platform == "linux" else ([], [])
    report("loop_overhead", loop_beside_steps(args.turns) + of_memory, epochs=epochs)


if __name__ == "__main__":
    main()
