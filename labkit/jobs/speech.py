"""Trains a CTC recogniser to a target error rate: `python speech.py`, `labkit train speech`, or a copy of yours."""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import labkit
from labkit.data.speech import (
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
from labkit.fast import ChannelsLastBlock, UnpackedBothWays, autocast, chosen_precision, quick_optimiser
from labkit.jobs.job import read_job
from labkit.jobs.ranks import Company
from labkit.jobs.settings import ENDLESS, SpeechJob
from labkit.models import SpeechConfig, SpeechModel
from labkit.tracking import tell_preparing

EVALUATIONS_PER_EPOCH = 3
EVALUATION_UTTERANCES = 64
OPTIMISERS = {
    "sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam, "adadelta": torch.optim.Adadelta
}  # fmt: skip


def build_model(config: SpeechConfig, kernels: str) -> SpeechModel:
    """The model; the same seed gives the same weights for either kernels."""
    if kernels == "plain":
        return SpeechModel(config)
    model = SpeechModel(config, block=ChannelsLastBlock, both_ways=UnpackedBothWays)
    model.images.to(memory_format=torch.channels_last)
    return model


def build_optimizer(model: nn.Module, name: str, lr: float, kernels: str) -> torch.optim.Optimizer:
    if kernels == "plain":
        return OPTIMISERS[name](model.parameters(), lr=lr)
    return quick_optimiser(OPTIMISERS[name], model.parameters(), lr)


def load_data(job: SpeechJob) -> tuple[SpeechSet, SpeechConfig, Resolution]:
    """The data, the model's shape for it, and the utterances that are long enough for the outputs of that shape."""
    given = {name: getattr(job, name) for name in ("layers", "hidden") if getattr(job, name) is not None}
    speech = load_speech(job.data, on_bad_row=job.on_bad_row, progress=tell_preparing, features=job.features)
    shape = SpeechConfig(vocabulary=len(speech.alphabet), **job.preset_values.model | given)
    resolution = fitting_resolution(speech.split("train"), shape.strides)
    shape = replace(shape, strides=resolution.strides, mel_bins=speech.bins)
    if job.features == "mfcc":  # whose adjacent numbers are not adjacent frequencies
        shape = replace(shape, mask_bins=0, tract=0.0, maps=())
    return speech, shape, resolution


def learning_rate(job: SpeechJob, done: Callable[[int], float]):
    """The factor of the learning rate at a step: linear warm-up, then constant or half a cosine down to zero.

    `done` gives the share of the training that is over after a step.
    """

    def factor(step: int) -> float:
        factor = min(1.0, (step + 1) / job.warmup_steps) if job.warmup_steps else 1.0
        if job.schedule == "cosine":
            factor *= 0.5 * (1 + math.cos(math.pi * min(1.0, done(step))))
        return factor

    return factor


def loss_of(model: nn.Module, batch: Batch, device: str) -> Tensor:
    """The mean CTC loss of a batch: features (B, T, 80), tokens (B, S)."""
    log_probabilities, lengths = model(batch.features.to(device), batch.feature_lengths.to(device))  # (B, T', V)
    tokens, token_lengths = batch.tokens.to(device), batch.token_lengths.to(device)
    # a faster utterance may have too few outputs for its text: its loss counts as zero this time
    return F.ctc_loss(log_probabilities.transpose(0, 1), tokens, lengths, token_lengths, zero_infinity=True)


@torch.inference_mode()
def evaluate(model: nn.Module, batches: Iterable[Batch], alphabet: Alphabet, precision: str, device: str) -> dict:
    """Character and word error rate over all utterances."""
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
    # settings
    job = read_job(SpeechJob)
    device = labkit.device(job.device)
    company = Company(device)
    precision, why = chosen_precision(job.precision, device)

    # data: features made once and batches of similar length, or made again for each utterance in random order
    speech, shape, resolution = load_data(job)
    if speech.info["divided"]:
        sizes = ", ".join(f"{split} {len(speech.split(split)):,}" for split in SPLITS)
        print(f"The data does not name all of its splits, so it was divided: {sizes} utterances.")
    if resolution.words:
        print(resolution.words)
    train_samples = len(resolution.kept)
    job = job.fitted(train_samples)
    torch.manual_seed(job.seed)
    if job.kernels == "fast":
        batches = BucketedBatches(speech.split("train"), job.batch_size, job.seed, resolution.kept)
        held_out = {split: ByLength(speech.split(split), EVALUATION_UTTERANCES) for split in ("validation", "test")}
    else:
        textbook = partial(textbook_loader, job.data, kind=job.features)
        batches = textbook("train", job.batch_size, shuffle=True, kept=resolution.kept)
        held_out = {split: textbook(split, EVALUATION_UTTERANCES, shuffle=False) for split in ("validation", "test")}

    # model and optimiser
    model = build_model(shape, job.kernels).to(device)
    forward, batches = company.parallel(model), company.share(batches)
    optimizer = build_optimizer(model, job.optimiser, job.lr, job.kernels)
    limits = [] if job.max_epochs == ENDLESS else [f"{job.max_epochs} epochs"]
    if job.max_seconds:
        limits.append(f"{job.max_seconds:g} s")
    length = " or ".join(limits)
    settings = job.run_settings(
        speech,
        train_samples,
        EVALUATIONS_PER_EPOCH,
        model=asdict(shape),
        alphabet=speech.alphabet.characters,
        precision=precision,
        step_note=why,
        schedule=f"cosine over {length}" if job.schedule == "cosine" else job.schedule,
    )
    with labkit.Run("speech", **settings) as run:
        total_steps = len(batches) * job.max_epochs

        def done(step: int) -> float:
            return max(step / total_steps, run.wall_s / (job.max_seconds or math.inf))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate(job, done))
        run.keep(model=model, optimizer=optimizer, schedule=schedule)
        for _ in run.epochs(job.max_epochs):
            for batch in run.batches(batches):
                with run.phase("forward"), autocast(precision, device):
                    loss = loss_of(forward, batch, device)
                with run.phase("backward"):
                    loss.backward(company.weight)
                with run.phase("optimiser"):
                    if job.clip_norm:
                        nn.utils.clip_grad_norm_(model.parameters(), job.clip_norm)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                run.step(loss, samples=company.counts * len(batch.texts))
                if run.due:
                    run.evaluate(**evaluate(model, held_out["validation"], speech.alphabet, precision, device))

        # the test split is touched once, with the weights that were best on the validation split
        if run.load_best():
            run.test(**evaluate(model, held_out["test"], speech.alphabet, precision, device))
    company.leave()


if __name__ == "__main__":
    main()
