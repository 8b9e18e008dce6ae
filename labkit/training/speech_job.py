"""The speech job: utterances, CTC loss, character and word error rate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.data.speech.buckets import length_bucketed_batches
from labkit.data.speech.prepared import Batch, SpeechSet
from labkit.fast.models import fast_speech
from labkit.models.speech import SpeechConfig
from labkit.training.metrics import SPEECH_METRICS, speech_metrics
from labkit.training.phases import TO_DEVICE, phase

EVALUATION_UTTERANCES = 64


class SpeechJob:
    """Trains a CTC recogniser on a prepared speech set."""

    name = "speech"
    sparse_parameters = ()
    metrics = SPEECH_METRICS

    def __init__(self, speech: SpeechSet, model: SpeechConfig, *, batch_size: int, seed: int, device: torch.device):
        self.speech, self.batch_size, self.seed, self.device = speech, batch_size, seed, device
        self.model: nn.Module = fast_speech(model).to(device)
        self._train = speech.split("train")
        self.train_samples = len(self._train)
        self._order: tuple[int, list[np.ndarray]] = (-1, [])

    def describe(self) -> str:
        config = self.model.config
        hidden = f" of {config.hidden}" if config.hidden else ""
        return (
            f"{config.kind}, {config.channels} channels, {config.layers} layers{hidden}, "
            f"kernel {config.kernel}, strides {'-'.join(map(str, config.strides))}, {config.vocabulary} characters, "
            f"{int(np.median(self._train.lengths))} frames, batch {self.batch_size}"
        )

    def num_batches(self, epoch: int) -> int:
        return len(self._batches_of(epoch))

    def batches(self, epoch: int, start: int) -> Iterator[tuple[Batch, int]]:
        for utterances in self._batches_of(epoch)[start:]:
            yield self._train.batch(utterances), len(utterances)

    def loss(self, batch: Batch) -> Tensor:
        with phase(TO_DEVICE):
            features = batch.features.to(self.device, non_blocking=True)
            feature_lengths, tokens, token_lengths = (
                tensor.to(self.device) for tensor in (batch.feature_lengths, batch.tokens, batch.token_lengths)
            )
        log_probabilities, lengths = self.model(features, feature_lengths)  # (B, T', V)
        # a transcript longer than its frames was refused when the data was prepared, so no loss is infinite
        return F.ctc_loss(log_probabilities.transpose(0, 1), tokens, lengths, token_lengths, zero_infinity=True)

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        utterances = self.speech.split(split)
        by_length = np.argsort(np.asarray(utterances.lengths), kind="stable")
        references, hypotheses = [], []
        for start in range(0, len(by_length), EVALUATION_UTTERANCES):
            batch = utterances.batch(by_length[start : start + EVALUATION_UTTERANCES])
            log_probabilities, lengths = model(batch.features.to(self.device), batch.feature_lengths.to(self.device))
            references += batch.texts
            hypotheses += self.speech.alphabet.decode(log_probabilities.argmax(2).cpu(), lengths.cpu())
        return speech_metrics(references, hypotheses)

    def _batches_of(self, epoch: int) -> list[np.ndarray]:
        if self._order[0] != epoch:
            order = length_bucketed_batches(self._train.lengths, self.batch_size, self.seed, epoch)
            self._order = (epoch, order)
        return self._order[1]
