"""How well slowdowns of pairs of jobs are predicted from each job alone: `python benchmarks/interference.py`.

Every job is started once, warm, and stands still but when it is measured. In each turn all jobs run alone (on all
cores; with one thread on one core; with all threads on half of the cores), then every pair, sharing the cores and
pinned to a half each, so that what is predicted and what it is predicted from are minutes apart at most. Both of a pair
train until both are timed. What other programs took of the cores meanwhile is measured, too: a window in which that
was much is repeated, and of all windows the median of the quiet ones counts, or the quietest.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd
import psutil
from measuring import write_result

from labkit.collocation.interference.alone import cpu_ways, solo_profile
from labkit.collocation.interference.held_job import HeldJob, Stretch
from labkit.collocation.interference.machine import measure_machine
from labkit.collocation.interference.prediction import Prediction, predict_slowdowns
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.plan.short_form import parse_jobs
from labkit.telemetry.others import own_affinity

BURNER = """
import torch
{setup}
weight = torch.nn.Parameter(torch.zeros(1))
optimiser = torch.optim.SGD([weight], lr=0.0)  # whose steps are those that are counted
while True:
    for _ in range(10):
        {work}
    weight.grad = torch.zeros(1)
    optimiser.step()
"""
BURNERS = {
    # fits into the first two levels of cache: arithmetic alone
    "matmul": {"setup": "a, b, c = (torch.randn(256, 256) for _ in range(3))", "work": "torch.mm(a, b, out=c)"},
    # 2 × 64 MiB: no cache holds them
    "copy": {"setup": "a, b = torch.ones(2**24), torch.empty(2**24)", "work": "b.copy_(a)"},
}
JOBS = {
    "dlrm:tour": "dlrm:tour",
    "dlrm:tour, batch 4096": "dlrm:tour[batch_size=4096]",
    "dlrm:kaggle": "dlrm:kaggle[data=synthetic-small]",
    "speech:tour": "speech:tour",
}
MODES = ("cpu-shared", "cpu-pinned")
QUIET, TRIES = 0.05, 8
"""A window in which other programs took more of the cores is repeated, so often in a turn."""
MODEL = "model"
WAYS = {MODEL: "predicted", "as many times as there are jobs": "jobs", "no slowdown": "alone"}
"""Ways to predict, and the columns with what they say."""
Pair = tuple[str, str]


def planned_jobs(names: list[str], folder: Path) -> dict[str, PlannedJob]:
    """The jobs of these names; burners are written down as scripts."""
    planned = {}
    for name in names:
        if name in BURNERS:
            script = folder / f"{name}.py"
            script.write_text(BURNER.format(**BURNERS[name]), encoding="utf-8")
            planned[name] = PlannedJob(name, str(script), device="cpu")
        else:
            planned[name] = replace(parse_jobs(JOBS[name])[0], device="cpu")
    return planned


class Watched:
    """What the machine's cores did, and of it what this process and all it started did, during a block."""

    def __init__(self):
        own = psutil.Process()
        self._processes = [own, *own.children(recursive=True)]

    def __enter__(self) -> Watched:
        self._before = self._read()
        return self

    def __exit__(self, *exception) -> None:
        all_s, busy_s, own_s = (late - early for late, early in zip(self._read(), self._before, strict=True))
        self.others = max(0.0, busy_s - own_s) / all_s
        """Share of all cores' time that other programs took, other tenants of the machine included"""

    def _read(self) -> tuple[float, float, float]:
        times = psutil.cpu_times()
        every_s = (
            sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        )  # which user counts, too
        own_s = sum(sum(process.cpu_times()[:2]) for process in self._processes)
        return every_s, every_s - times.idle - getattr(times, "iowait", 0.0), own_s


@dataclass(frozen=True)
class Window:
    """One measurement of a job, or of both of a pair."""

    stretches: tuple[Stretch, ...]
    others: float
    """Share of all cores' time that other programs took"""


def quiet_window(run: Callable[[], list[Stretch]]) -> Window:
    """Measure, again where other programs took too much; the quietest window."""
    tried: list[Window] = []
    while not tried or (tried[-1].others > QUIET and len(tried) < TRIES):
        with Watched() as watched:
            stretches = run()
        tried.append(Window(tuple(stretches), watched.others))
    return min(tried, key=lambda window: window.others)


def together(pair: list[HeldJob], seconds: float, halves: tuple[list[int], list[int]] | None) -> list[Stretch]:
    """Both jobs at once, each timed while the other trains; on all cores, or on a half each."""
    for held, cores in zip(pair, halves or (None, None), strict=True):
        held.begin(seconds, cores=cores, linger=True)
    stretches = [held.end() for held in pair]
    for held in pair:
        held.hold()
    return stretches


def of_the_quiet(windows: list[Window], place: int) -> Stretch:
    """The median window of the quiet ones, or the quietest, of the job at a place of the pair."""
    quiet = [window for window in windows if window.others <= QUIET]
    chosen = quiet or [min(windows, key=lambda window: window.others)]
    stretches = sorted((window.stretches[place] for window in chosen), key=lambda each: each.step_time_ms)
    return stretches[(len(stretches) - 1) // 2]


def measure(names: list[str], turns: int, seconds: float, folder: Path) -> Iterator[dict]:
    """Profiles of the jobs, then the pairs as they ran."""
    cores = list(own_affinity())
    halves = cores[: len(cores) // 2], cores[len(cores) // 2 :]
    pairs = list(itertools.combinations_with_replacement(names, 2))
    with ExitStack() as stack:
        planned = planned_jobs(names, folder)
        machine = measure_machine()
        held = {name: stack.enter_context(HeldJob(job, folder)) for name, job in planned.items()}
        twins = {name: stack.enter_context(HeldJob(job, folder)) for name, job in planned.items()}
        ways = {name: cpu_ways(cores, job.threads) for name, job in held.items()}
        alone: dict[str, dict[str, list[Window]]] = {name: {way: [] for way in ways[name]} for name in names}
        beside: dict[tuple[str, Pair], list[Window]] = {(mode, pair): [] for mode in MODES for pair in pairs}
        for turn in range(turns):
            print(f"turn {turn + 1} of {turns}", flush=True)
            for name in names:
                for way, (bound, threads) in ways[name].items():
                    run = partial(held[name].run, seconds, cores=bound, threads=threads)
                    alone[name][way].append(quiet_window(lambda run=run: [run()]))
            for pair in pairs:
                both = [held[pair[0]], (twins if pair[0] == pair[1] else held)[pair[1]]]
                for mode in MODES:
                    run = partial(together, both, seconds, halves if mode == "cpu-pinned" else None)
                    beside[mode, pair].append(quiet_window(run))
        work = {name: job.work() for name, job in held.items()}
    profiles = {
        name: solo_profile(
            planned[name],
            machine,
            {way: of_the_quiet(windows, 0) for way, windows in alone[name].items()},
            flop=work[name][0],
            moved=work[name][1],
            threads=held[name].threads,
            gpu={},
        )
        for name in names
    }
    for name in names:
        times = {way: round(of_the_quiet(windows, 0).step_time_ms, 2) for way, windows in alone[name].items()}
        print(f"{name:<24} ms a step: {times}")
        others = max(min(window.others for window in windows) for windows in alone[name].values())
        yield {"job": name, "profile": asdict(profiles[name]), "others": others}
    for mode in MODES:
        for pair in pairs:
            predicted = predict_slowdowns([profiles[name] for name in pair], mode, machine)
            for place, (name, each) in enumerate(zip(pair, predicted, strict=True)):
                windows = beside[mode, pair]
                yield {
                    "beside": pair[1 - place],
                    "prediction": asdict(replace(each, job=name)),
                    "measured": of_the_quiet(windows, place).step_time_ms / profiles[name].step_time_ms,
                    "others": min(window.others for window in windows),
                }


def score(predictions: Sequence[Prediction], measured: Sequence[float]) -> pd.DataFrame:
    """Predictions beside measurements, one row a job; error is that of the prediction, as a share of the measured."""
    frame = pd.DataFrame(
        {
            "mode": [each.mode for each in predictions],
            "job": [each.job for each in predictions],
            "jobs": [each.jobs for each in predictions],
            "alone": 1.0,
            "predicted": [each.slowdown for each in predictions],
            "measured": list(measured),
            "why": [each.why for each in predictions],
        }
    )
    frame.insert(6, "error", frame["predicted"] / frame["measured"] - 1)
    return frame


def mean_errors(scored: pd.DataFrame) -> pd.DataFrame:
    """Mean absolute percentage errors of the model and of two guesses, by mode and over all ("all", last)."""
    groups = [*scored.groupby("mode", sort=False), ("all", scored)]
    rows = [
        (mode, way, 100 * (group[column] / group["measured"] - 1).abs().mean(), len(group))
        for mode, group in groups
        for way, column in WAYS.items()
    ]
    return pd.DataFrame(rows, columns=["mode", "way", "mape", "predictions"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each job and pair in a turn")
    parser.add_argument("--jobs", nargs="+", choices=[*JOBS, *BURNERS], default=[*JOBS, *BURNERS], help="these only")
    parser.add_argument("--keep", action="store_true", help="leave the committed result as it is")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measure(args.jobs, args.turns, args.seconds, Path(folder)))
    pairs = [row for row in rows if "prediction" in row]
    scored = score([Prediction(**row["prediction"]) for row in pairs], [row["measured"] for row in pairs])
    scored.insert(2, "beside", [row["beside"] for row in pairs])
    scored["others"] = [row["others"] for row in pairs]
    print(scored.drop(columns=["jobs", "alone"]).round(2).to_string(index=False))
    errors = mean_errors(scored)
    print("\nMean absolute percentage errors\n" + errors.round(1).to_string(index=False))
    loud = [row["others"] for row in rows if row["others"] > QUIET]
    if loud:
        print(
            f"\n{len(loud)} of {len(rows)} rows had no quiet window: other programs took up to {max(loud):.0%} of the "
            "cores, so this is no score, and nothing is written. Run it again when the machine is quiet."
        )
    elif not args.keep:
        write_result(
            "interference",
            turns=args.turns,
            seconds=args.seconds,
            provenance={"profiles": "measured", "slowdowns": "measured", "predictions": "predicted"},
            errors=errors.to_dict("records"),
            rows=rows,
        )


if __name__ == "__main__":
    main()
