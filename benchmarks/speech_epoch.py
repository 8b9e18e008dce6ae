"""How many utterances a second are trained, beside a plain loop: `python benchmarks/speech_epoch.py`.

A turn is one pass over the training split of the shipped corpus. From the job's plain kernels to its fast ones, one
after another: features computed once in batches of like length, the fast model, and bf16 where its products are not
slower.
"""

import argparse
from functools import partial

import torch
from dlrm_shapes import CPU, precisions
from measuring import Ratio, in_turn, report, speed_ups

from labkit.data.speech import BucketedBatches, load_speech, textbook_loader
from labkit.fast import autocast
from labkit.hardware import keep_memory
from labkit.jobs import build_optimizer, get_preset
from labkit.jobs.speech import build_model, loss_of
from labkit.models import SpeechConfig

BATCH, CLIP = 32, 5.0
MODELS = {
    "tour": get_preset("speech", "tour").model,
    "conv + 2 BiLSTM": {"kind": "bilstm", "channels": 128, "layers": 2, "hidden": 256, "strides": (2, 2), "kernel": 5},
}


def epochs(config: SpeechConfig, batches, kernels: str, precision: str):
    """A way to train: each call is a pass over the batches, as the job makes it."""
    model = build_model(config, kernels)
    optimizer = build_optimizer(model, "adam", 1e-3, kernels)

    def epoch() -> None:
        for batch in batches:
            with autocast(precision, CPU):
                loss = loss_of(model, batch, "cpu")
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()

    return epoch


def measure(name: str, turns: int) -> list[Ratio]:
    speech = load_speech("shipped")
    train = speech.split("train")
    way = partial(epochs, SpeechConfig(vocabulary=len(speech.alphabet), **MODELS[name]))
    plain, fast = textbook_loader("shipped", "train", BATCH, shuffle=True), BucketedBatches(train, BATCH, 0)
    ways = {"plain": way(plain, "plain", "fp32"), "plain, on fast batches": way(fast, "plain", "fp32")}
    ways |= {f"fast, {precision}": way(fast, "fast", precision) for precision in precisions()}
    taken = in_turn(ways, turns=turns, warm_up=1)
    return speed_ups(f"an epoch of {name}, {len(train):,} utterances", taken, base="plain", unit="s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="these only")
    args = parser.parse_args()
    keep_memory()  # as runs of labkit do
    torch.manual_seed(0)
    report("speech_epoch", [ratio for name in args.models for ratio in measure(name, args.turns)])


if __name__ == "__main__":
    main()
