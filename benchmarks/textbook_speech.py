"""A speech training loop as a tutorial has it: what `SpeechJob` is measured against.

Features are computed for each utterance anew whenever it comes up, and a batch is padded to its longest, utterances
coming in random order. Audio is decoded beforehand, which a tutorial's loop often repeats, too.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from labkit.data.bad_rows import BadRows
from labkit.data.speech.alphabet import Alphabet
from labkit.data.speech.audio import decode
from labkit.data.speech.features import FLOOR, mel_spectrogram
from labkit.data.speech.shipped import read_shipped
from labkit.data.speech.utterance import Utterance
from labkit.fast.activation import MaskedRelu
from labkit.fast.dropout import ByteDropout
from labkit.models.speech import SpeechConfig, SpeechModel


class TextbookUtterances(Dataset):
    """The first utterances of a split of the shipped corpus, as waves and texts."""

    def __init__(self, split: str, count: int | None = None):
        utterances = [each for each in read_shipped(BadRows("error")).utterances if each.split == split]
        self.utterances: list[Utterance] = utterances[:count]
        self.waves: list[np.ndarray] = decode(self.utterances).waves
        self.alphabet = Alphabet()

    def __len__(self) -> int:
        return len(self.utterances)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        energies = mel_spectrogram()(torch.from_numpy(self.waves[index]))  # (80, T)
        features = torch.log(energies + FLOOR).T
        features = (features - features.mean(0)) / (features.std(0) + 0.1)
        return features, torch.from_numpy(self.alphabet.encode(self.utterances[index].text))


def collate(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """features (B, T, 80), lengths (B,), tokens (B, S), token lengths (B,)."""
    features, tokens = zip(*samples, strict=True)
    lengths, token_lengths = (torch.tensor([len(one) for one in each]) for each in (features, tokens))
    return pad_sequence(features, True), lengths, pad_sequence(tokens, True), token_lengths


class MaskedActivation(nn.Module):
    """What a block does after its norm, operation by operation."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return x rectified, dropped and masked."""
        return self.dropout(F.relu(x)) * mask


def textbook_model(config: SpeechConfig) -> SpeechModel:
    """The same model with torch's own activation and dropout."""
    model = SpeechModel(config)
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, ByteDropout):
                setattr(parent, name, nn.Dropout(child.p))
            if isinstance(child, MaskedRelu):
                setattr(parent, name, MaskedActivation(child.p))
    return model


def loader(utterances: TextbookUtterances, batch_size: int) -> DataLoader:
    return DataLoader(utterances, batch_size=batch_size, shuffle=True, collate_fn=collate)


def textbook_step(model: nn.Module, optimiser: torch.optim.Optimizer, batch: tuple, clip_norm: float) -> Tensor:
    """One step on a batch of `collate`."""
    features, lengths, tokens, token_lengths = batch
    optimiser.zero_grad()
    log_probabilities, output_lengths = model(features, lengths)
    loss = F.ctc_loss(log_probabilities.transpose(0, 1), tokens, output_lengths, token_lengths, zero_infinity=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimiser.step()
    return loss.detach()
