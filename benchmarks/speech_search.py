"""Which recogniser reaches its target soonest: `python benchmarks/speech_search.py` (about a quarter of an hour).

Every candidate gets the same training time under the same budget: its learning rate falls along a cosine over as many
epochs as fit in it, by one measurement of all candidates before the search, and each is tried with the same learning
rates. The best of each family then runs with new seeds, and the family that reaches the target soonest, every time,
wins. Its preset is `tour`.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from statistics import median

import torch
from measuring import RESULTS, in_own_process, in_turn, write_result
from picture import save_picture

from labkit.data.speech import load_speech
from labkit.models.speech import SpeechConfig
from labkit.runs import read_run
from labkit.training.config import TrainConfig
from labkit.training.presets import SPEECH_PRESETS, Preset
from labkit.training.request import TrainRequest
from labkit.training.session import RunFailed, train
from labkit.training.speech_job import SpeechJob
from labkit.training.step import StepKind, TrainStep
from labkit.training.stop import StopRequest

SHARED = {"dropout": 0.1, "mask_bins": 8, "mask_frames": 6}
CANDIDATES = {
    "conv 64 x 4": {"kind": "conv", "channels": 64, "layers": 4, "kernel": 7},
    "conv 96 x 4": {"kind": "conv", "channels": 96, "layers": 4, "kernel": 7},
    "conv 128 x 4": {"kind": "conv", "channels": 128, "layers": 4, "kernel": 7},
    "LSTM 128 x 1": {"kind": "lstm", "channels": 64, "layers": 1, "hidden": 128, "kernel": 7},
    "LSTM 256 x 1": {"kind": "lstm", "channels": 128, "layers": 1, "hidden": 256, "kernel": 7},
    "LSTM 256 x 2": {"kind": "lstm", "channels": 128, "layers": 2, "hidden": 256, "kernel": 7},
    "BiGRU 64 x 1": {"kind": "bigru", "channels": 64, "layers": 1, "hidden": 64, "kernel": 7},
    "BiGRU 96 x 1": {"kind": "bigru", "channels": 96, "layers": 1, "hidden": 96, "kernel": 7},
    "BiGRU 128 x 1": {"kind": "bigru", "channels": 128, "layers": 1, "hidden": 128, "kernel": 7},
    "TDNN 96 x 4": {"kind": "tdnn", "channels": 96, "layers": 4, "kernel": 11},
    "TDNN 160 x 4": {"kind": "tdnn", "channels": 160, "layers": 4, "kernel": 11},
    "TDNN 192 x 6": {"kind": "tdnn", "channels": 192, "layers": 6, "kernel": 11},
}
LEARNING_RATES = (2e-3, 4e-3)
FINAL_SEEDS = (1, 2, 3)


def epochs_that_fit(names: list[str], seconds: float) -> dict[str, int]:
    """Epochs of each candidate in so many seconds, evaluations left out; each the median of three, taken in turn."""
    speech, cpu = load_speech("shipped"), torch.device("cpu")
    settings = TrainConfig(batch_size=32, grad_clip_norm=5.0, target_metric="cer")

    def epoch(name: str):
        config = SpeechConfig(vocabulary=len(speech.alphabet), **SHARED, **CANDIDATES[name])
        job = SpeechJob(speech, config, batch_size=32, seed=0, device=cpu)
        step = TrainStep(job, settings, StepKind("fp32"), cpu)

        def run() -> None:
            for batch, _ in job.batches(0, 0):
                step(batch, 0)

        return run

    taken = in_turn({name: epoch(name) for name in names}, turns=3, warm_up=1)
    return {name: max(1, round(seconds / median(times))) for name, times in taken.items()}


def run_candidate(task: dict) -> dict:
    """Train one candidate with one learning rate and seed; what came of it."""
    shape = SHARED | CANDIDATES[task["name"]]
    recipe = SPEECH_PRESETS["tour"].train | {"lr": task["lr"], "max_epochs": task["epochs"]}
    SPEECH_PRESETS["candidate"] = Preset("candidate", "the search", model=shape, train=recipe, data="shipped")
    request = TrainRequest("speech", preset="candidate", target=task["target"], seed=task["seed"])
    with tempfile.TemporaryDirectory() as folder:
        try:
            answer = train(request, runs_dir=Path(folder), on_event=lambda event: None, stop=StopRequest())
        except RunFailed as failure:
            answer = failure.answer
        record = read_run(Path(answer["folder"]))
    wanted = ("time_to_target_s", "best_validation", "wall_s", "samples_per_s", "metrics")
    return task | {"shape": shape, **{name: record.result.get(name) for name in wanted}}


def tried(**task) -> dict:
    answer, _ = in_own_process([__file__, "--task", json.dumps(task)])
    reached = answer["time_to_target_s"]
    print(
        f"{task['name']:<14} lr {task['lr']:g} seed {task['seed']}: {answer['epochs']} epochs, "
        f"{answer['samples_per_s']:.0f} utterances/s, best CER {answer['best_validation']:.3f}, "
        + (f"target after {reached:.1f} s" if reached else f"not reached in {answer['wall_s']:.1f} s"),
        flush=True,
    )
    return answer


def search(names: list[str], seconds: float, target: str) -> list[dict]:
    """All tries: each candidate and learning rate once, the best of each family with new seeds."""
    epochs = epochs_that_fit(names, seconds)
    tries = [
        tried(name=name, lr=lr, seed=0, epochs=epochs[name], target=target) for name in names for lr in LEARNING_RATES
    ]
    best: dict[str, dict] = {}
    for each in tries:
        family = each["shape"]["kind"]
        if family not in best or _rank(each) < _rank(best[family]):
            best[family] = each
    for each in best.values():
        task = {name: each[name] for name in ("name", "lr", "epochs", "target")}
        tries += [tried(**task, seed=seed) for seed in FINAL_SEEDS]
    return tries


def _rank(each: dict) -> tuple:
    """Sooner at the target is better; without it, closer to it."""
    reached = each["time_to_target_s"]
    return (reached is None, reached or each["best_validation"])


def summary(tries: list[dict]) -> list[dict]:
    """Candidates that ran with the final seeds, by those alone; the one that reaches the target soonest first."""
    rows = []
    for name, lr in dict.fromkeys((each["name"], each["lr"]) for each in tries):
        own = [each for each in tries if (each["name"], each["lr"]) == (name, lr) and each["seed"] in FINAL_SEEDS]
        times = [each["time_to_target_s"] for each in own]
        if own:
            middle = median(math.inf if took is None else took for took in times)
            reached = sum(took is not None for took in times)
            row = {"name": name, "lr": lr, "reached": reached, "of": len(own)}
            rows.append(row | {"median_s": None if math.isinf(middle) else middle})
    return sorted(rows, key=lambda row: (-row["reached"], row["median_s"] or math.inf))


def figure(tries: list[dict]):
    """Time to target of every try, by candidate; one that did not get there is drawn where it ended, hollow."""
    import plotly.graph_objects as go

    fig = go.Figure()
    for reached, symbol, label in (
        (True, "circle", "target reached"),
        (False, "circle-open", "not reached: run ended"),
    ):
        own = [each for each in tries if (each["time_to_target_s"] is not None) == reached]
        fig.add_scatter(
            x=[each["time_to_target_s"] or each["wall_s"] for each in own],
            y=[each["name"] for each in own],
            mode="markers",
            marker={"symbol": symbol, "size": 11, "color": "#0072B2" if reached else "#D55E00"},
            text=[f"learning rate {each['lr']:g}, seed {each['seed']}" for each in own],
            name=f"{label} (measured)",
        )
    fig.update_layout(
        xaxis={"title": "seconds of training and evaluation", "rangemode": "tozero"},
        yaxis={"title": "recogniser", "categoryorder": "array", "categoryarray": list(CANDIDATES)[::-1]},
        template="plotly_white",
        legend={"orientation": "h", "y": 1.08},
        width=900,
        height=480,
    )
    return fig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=16, help="of training for each try (16)")
    parser.add_argument("--target", default="cer=0.05")
    parser.add_argument(
        "--only", default="", help="candidates whose name begins like this, such as TDNN; nothing is written"
    )
    parser.add_argument("--task", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.task:
        print(json.dumps(run_candidate(args.task)))
        return
    tries = search([name for name in CANDIDATES if name.startswith(args.only)], args.seconds, args.target)
    ranking = summary(tries)
    for row in ranking:
        times = f"{row['reached']} of {row['of']}, median {row['median_s'] or math.nan:.1f} s"
        print(f"{row['name']:<14} lr {row['lr']:g}: target in {times}")
    if not args.only:
        write_result("speech_search", seconds=args.seconds, ranking=ranking, tries=tries)
        save_picture(figure(tries), RESULTS / "speech_search.png")


if __name__ == "__main__":
    main()
