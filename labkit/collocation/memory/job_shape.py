"""What of a job's data decides how much memory it takes: sizes only, no values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.training.request import TrainRequest


@dataclass(frozen=True)
class ClickShape:
    """Of a click log."""

    dense_dim: int
    num_rows: tuple[int, ...]
    """Rows of each embedding table, as the preset bounds them"""
    pooling_factor: int
    train_samples: int
    validation_samples: int
    mapped_bytes: int
    """Of the prepared rows, which a run maps into its memory as it reads them"""


@dataclass(frozen=True)
class SpeechShape:
    """Of a speech set, as batches are cut from it."""

    vocabulary: int
    """Characters of the alphabet, blank included"""
    longest: tuple[int, int, int]
    """Of the training batch with most frames, padding included: utterances, frames, characters"""
    evaluated: tuple[int, int]
    """Of the evaluation's batch with most frames: utterances, frames"""
    train_samples: int
    mapped_bytes: int
    """Of the prepared features"""


def click_shape(request: TrainRequest) -> ClickShape:
    """Sizes of a request's click log; generated ones are known by name, others are prepared as a run would."""
    from labkit.data.clicks.synthetic import SYNTHETIC, config_bytes

    most = request.chosen_preset.max_num_rows
    if request.data_name in SYNTHETIC:
        made = SYNTHETIC[request.data_name]
        return ClickShape(
            dense_dim=made.dense_dim,
            num_rows=tuple(min(rows, most or rows) for rows in made.num_rows),
            pooling_factor=made.pooling_factor,
            train_samples=made.train_rows,
            validation_samples=made.validation_rows,
            mapped_bytes=config_bytes(made),
        )
    log = _load(request)
    samples = [len(log.split(name)) for name in ("train", "validation", "test")]
    row_bytes = 4 * len(log.dense_names) + 4 * len(log.table_rows) * log.pooling_factor + 1
    return ClickShape(
        dense_dim=len(log.dense_names),
        num_rows=log.table_rows,
        pooling_factor=log.pooling_factor,
        train_samples=samples[0],
        validation_samples=samples[1],
        mapped_bytes=sum(samples) * row_bytes,
    )


EPOCHS_SEEN = 12
"""Batches are drawn anew in each epoch, and after so many a longer one is rare, and little longer."""


def speech_shape(request: TrainRequest) -> SpeechShape:
    """Sizes of a request's speech set, which is prepared if it was not before, as a run would."""
    from labkit.data.speech.features import MEL_BINS
    from labkit.training.speech_job import EVALUATION_UTTERANCES

    speech = _load(request)
    split = speech.split("train")
    batch = longest_batch(split.lengths, request)
    by_length = np.sort(speech.split("validation").lengths)
    starts = range(0, len(by_length), EVALUATION_UTTERANCES)
    pieces = [by_length[start : start + EVALUATION_UTTERANCES] for start in starts]
    frames = sum(int(speech.split(name).lengths.sum()) for name in ("train", "validation", "test"))
    return SpeechShape(
        vocabulary=len(speech.alphabet),
        longest=(len(batch), int(split.lengths[batch].max()), max(len(split.texts[index]) for index in batch)),
        evaluated=max(((len(piece), int(piece[-1])) for piece in pieces), key=math.prod),
        train_samples=len(split),
        mapped_bytes=2 * MEL_BINS * frames,
    )


def longest_batch(lengths: np.ndarray, request: TrainRequest) -> np.ndarray:
    """Indices of the batch with most frames, padding included, of all epochs of a run: it makes the peak."""
    from labkit.data.speech.buckets import length_bucketed_batches

    config = request.train_config(len(lengths))
    batches = (
        batch
        for epoch in range(min(config.max_epochs, EPOCHS_SEEN))
        for batch in length_bucketed_batches(lengths, config.batch_size, config.seed, epoch)
    )
    return max(batches, key=lambda batch: len(batch) * int(lengths[batch].max()))


def _load(request: TrainRequest) -> Any:
    from labkit.training.assembly import load_data

    return load_data(request, lambda event: None)
