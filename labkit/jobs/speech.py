"""Trains a CTC recogniser to a target error rate: `python speech.py`, `labkit train speech`, or a copy of yours."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import labkit
from labkit.data.speech import (
    KINDS,
    SPLITS,
    Alphabet,
    Batch,
    BucketedBatches,
    ByLength,
    Resolution,
    SpeechSet,
    fitting_resolution,
    load_speech,
    speech_metrics,
    textbook_loader,
)
from labkit.errors import UserError
from labkit.fast import ChannelsLastBlock, UnpackedBothWays, autocast, chosen_precision, quick_optimiser
from labkit.jobs.flags import ENDLESS, job_flags, read_arguments, run_settings, settle_batch_size
from labkit.jobs.presets import Preset
from labkit.models import SpeechConfig, SpeechModel
from labkit.tracking import tell_preparing

EVALUATIONS_AN_EPOCH = 3
EVALUATION_UTTERANCES = 64
OPTIMISERS = {
    "sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam, "adadelta": torch.optim.Adadelta
}  # fmt: skip


def build_model(config: SpeechConfig, kernels: str) -> SpeechModel:
    """Either kernels give it the same weights from the same seed."""
    if kernels == "plain":
        return SpeechModel(config)
    model = SpeechModel(config, block=ChannelsLastBlock, both_ways=UnpackedBothWays)
    model.images.to(memory_format=torch.channels_last)
    return model


def build_optimizer(model: nn.Module, name: str, lr: float, kernels: str) -> torch.optim.Optimizer:
    if kernels == "plain":
        return OPTIMISERS[name](model.parameters(), lr=lr)
    return quick_optimiser(OPTIMISERS[name], model.parameters(), lr)


def load_data(args: argparse.Namespace, preset: Preset) -> tuple[SpeechSet, SpeechConfig, Resolution]:
    """The data, the model's shape for it, and which of it can be learnt from at that shape's outputs a second."""
    model = {name: vars(args)[name] for name in ("layers", "hidden") if name in args}
    shape = SpeechConfig(vocabulary=len(Alphabet()), **preset.model | model)
    if shape.kind == "conv" and "hidden" in model:
        raise UserError(f"--hidden is of recurrent layers, and {preset.name} has none.", field="hidden")
    speech = load_speech(args.data, on_bad_row=args.on_bad_row, progress=tell_preparing, features=args.features)
    resolution = fitting_resolution(speech.split("train"), shape.strides)
    shape = replace(shape, strides=resolution.strides, mel_bins=speech.bins)
    if not KINDS[args.features].neighbours:
        shape = replace(shape, mask_bins=0, tract=0.0, maps=())
    return speech, shape, resolution


def learning_rate(args: argparse.Namespace, done: Callable[[int], float]):
    """The factor of the learning rate at a step: linear warm-up, then constant or half a cosine down to zero.

    `done` says of a step which share of the training it ends.
    """

    def factor(step: int) -> float:
        factor = min(1.0, (step + 1) / args.warmup_steps) if args.warmup_steps else 1.0
        if args.schedule == "cosine":
            factor *= 0.5 * (1 + math.cos(math.pi * min(1.0, done(step))))
        return factor

    return factor


def loss_of(model: nn.Module, batch: Batch, device: str) -> Tensor:
    """The mean CTC loss of a batch: features (B, T, 80), tokens (B, S)."""
    log_probabilities, lengths = model(batch.features.to(device), batch.feature_lengths.to(device))  # (B, T', V)
    tokens, token_lengths = batch.tokens.to(device), batch.token_lengths.to(device)
    # what a changed speed leaves too few outputs for counts as zero this time
    return F.ctc_loss(log_probabilities.transpose(0, 1), tokens, lengths, token_lengths, zero_infinity=True)


@torch.inference_mode()
def evaluate(model: nn.Module, batches: Iterable[Batch], alphabet: Alphabet, precision: str, device: str) -> dict:
    """Character and word error rate of what the model hears in all utterances."""
    model.eval()
    references, hypotheses = [], []
    with autocast(precision, device):
        for batch in batches:
            log_probabilities, lengths = model(batch.features.to(device), batch.feature_lengths.to(device))
            references += batch.texts
            hypotheses += alphabet.decode(log_probabilities.argmax(2).cpu(), lengths.cpu())
    model.train()
    return speech_metrics(references, hypotheses)


def main() -> None:
    # arguments
    args, preset = read_arguments(job_flags("speech"))
    for name, value in {"warmup_steps": 0, "schedule": "constant", "clip_norm": None}.items():
        setattr(args, name, getattr(args, name, value))
    device = labkit.device(args.device)
    precision, why = chosen_precision(args.precision, device)

    # data: features made once and batches of like length, or anew for each utterance that comes up at random
    speech, shape, resolution = load_data(args, preset)
    if speech.info["divided"]:
        sizes = ", ".join(f"{split} {len(speech.split(split)):,}" for split in SPLITS)
        print(f"The data does not say all of its splits, so they were divided: {sizes} utterances.")
    if resolution.words:
        print(resolution.words)
    train_samples = len(resolution.kept)
    settle_batch_size(args, train_samples)
    torch.manual_seed(args.seed)
    if args.kernels == "fast":
        batches = BucketedBatches(speech.split("train"), args.batch_size, args.seed, resolution.kept)
        held_out = {split: ByLength(speech.split(split), EVALUATION_UTTERANCES) for split in ("validation", "test")}
    else:
        textbook = partial(textbook_loader, args.data, kind=args.features)
        batches = textbook("train", args.batch_size, shuffle=True, kept=resolution.kept)
        held_out = {split: textbook(split, EVALUATION_UTTERANCES, shuffle=False) for split in ("validation", "test")}

    # model and optimiser
    model = build_model(shape, args.kernels).to(device)
    optimizer = build_optimizer(model, args.optimiser, args.lr, args.kernels)
    limits = [] if args.max_epochs == ENDLESS else [f"{args.max_epochs} epochs"]
    if args.max_seconds:
        limits.append(f"{args.max_seconds:g} s")
    length = " or ".join(limits)
    settings = run_settings(
        args,
        speech,
        train_samples,
        EVALUATIONS_AN_EPOCH,
        model=asdict(shape),
        precision=precision,
        step_note=why,
        schedule=f"cosine over {length}" if args.schedule == "cosine" else args.schedule,
    )
    with labkit.Run("speech", **settings) as run:
        total_steps = len(batches) * args.max_epochs

        def done(step: int) -> float:
            return max(step / total_steps, run.position.wall_s / (args.max_seconds or math.inf))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate(args, done))
        run.keep(model=model, optimizer=optimizer, schedule=schedule)
        for _ in run.epochs(args.max_epochs):
            for batch in run.batches(batches):
                with run.phase("forward"), autocast(precision, device):
                    loss = loss_of(model, batch, device)
                with run.phase("backward"):
                    loss.backward()
                with run.phase("optimiser"):
                    if args.clip_norm is not None:
                        nn.utils.clip_grad_norm_(model.parameters(), args.clip_norm)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                run.step(loss, samples=len(batch.texts))
                if run.due:
                    run.evaluate(**evaluate(model, held_out["validation"], speech.alphabet, precision, device))

        # the test split is touched once, with the weights that were best on the validation split
        if run.load_best():
            run.test(**evaluate(model, held_out["test"], speech.alphabet, precision, device))


if __name__ == "__main__":
    main()
