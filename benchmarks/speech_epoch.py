"""How many utterances a second are trained, beside a plain loop: `python benchmarks/speech_epoch.py`.

The same models on the training split of the shipped corpus; a turn is one pass over it. Between the plain loop and
ours stand, one after another: features computed once (cached), batches of utterances of like length (buckets, as the
job makes them), and the kind of step that is fastest here.
"""

from __future__ import annotations

import argparse
from itertools import count

import numpy as np
import torch
from measuring import Ratio, in_turn, report, speed_ups
from textbook_speech import TextbookUtterances, loader, textbook_model, textbook_step

from labkit.data.speech import load_speech
from labkit.models.speech import SpeechConfig
from labkit.training.config import TrainConfig
from labkit.training.presets import get_preset
from labkit.training.speech_job import SpeechJob
from labkit.training.step import StepKind, TrainStep
from labkit.training.step_choice import choose_step

CPU = torch.device("cpu")
BATCH, CLIP = 32, 5.0
MODELS = {
    "tour": get_preset("speech", "tour").model,
    "conv + 2 BiGRU": {"kind": "bigru", "channels": 128, "layers": 2, "hidden": 256, "strides": (2, 2), "kernel": 5},
}


def measure(name: str, turns: int, utterances: TextbookUtterances) -> list[Ratio]:
    speech = load_speech("shipped")
    config = SpeechConfig(vocabulary=len(speech.alphabet), **MODELS[name])
    train = TrainConfig(batch_size=BATCH, optimiser="adam", lr=1e-3, grad_clip_norm=CLIP, target_metric="cer")
    plain_model = textbook_model(config)
    optimiser = torch.optim.Adam(plain_model.parameters(), lr=1e-3)
    batches = loader(utterances, BATCH)

    def plain() -> None:
        for batch in batches:
            textbook_step(plain_model, optimiser, batch, CLIP)

    job = SpeechJob(speech, config, batch_size=BATCH, seed=0, device=CPU)
    fastest, _ = choose_step("auto", None, job, train, CPU)
    random = np.random.default_rng(0)

    def new_step(kind: StepKind) -> TrainStep:
        return TrainStep(SpeechJob(speech, config, batch_size=BATCH, seed=0, device=CPU), train, kind, CPU)

    def cached():
        step, split = new_step(StepKind("fp32")), speech.split("train")

        def run() -> None:
            order = random.permutation(len(split))
            for start in range(0, len(order), BATCH):
                step(split.batch(order[start : start + BATCH]), 0)

        return run

    def bucketed(kind: StepKind):
        step, epochs = new_step(kind), count()

        def run() -> None:
            for batch, _ in step.job.batches(next(epochs), 0):
                step(batch, 0)

        return run

    plain_kind = StepKind("fp32")
    ways = {"textbook": plain, "cached features": cached(), "cached, bucketed": bucketed(plain_kind)}
    if fastest != plain_kind:
        ways[f"cached, bucketed, {fastest}"] = bucketed(fastest)
    taken = in_turn(ways, turns=turns, warm_up=1)
    return speed_ups(f"an epoch of {name}, {len(utterances):,} utterances", taken, base="textbook", unit="s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="these only")
    args = parser.parse_args()
    torch.manual_seed(0)
    utterances = TextbookUtterances("train")
    report("speech_epoch", [ratio for name in args.models for ratio in measure(name, args.turns, utterances)])


if __name__ == "__main__":
    main()
