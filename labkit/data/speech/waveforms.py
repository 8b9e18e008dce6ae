"""Utterances as a tutorial trains on them: features computed anew whenever one comes up, batches padded at random.

Shapes: B batch, T frames, S characters.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from labkit.data.bad_rows import BadRows
from labkit.data.speech.alphabet import Alphabet
from labkit.data.speech.audio import decode
from labkit.data.speech.features import FLOOR, mel_spectrogram
from labkit.data.speech.load import read_source
from labkit.data.speech.prepare import readable
from labkit.data.speech.prepared import Batch
from labkit.data.speech.splits import fill_splits
from labkit.errors import DataError


class WaveformUtterances(Dataset):
    """A split of a speech set, its audio decoded and in memory; utterances that cannot be used are left out."""

    def __init__(self, data: str, split: str, *, seed: int = 0):
        """Read the audio of `data`, as `load_speech` takes it."""
        self.alphabet = Alphabet()
        bad = BadRows("skip")
        source = read_source(data, bad, seed)
        utterances, _ = fill_splits(readable(source, self.alphabet, source.punctuation, bad), seed)
        chosen = [each for each in utterances if each.split == split]
        waves = decode(chosen).waves
        usable = [(each, wave) for each, wave in zip(chosen, waves, strict=True) if not isinstance(wave, DataError)]
        self.texts = [each.text for each, _ in usable]
        self.waves: list[np.ndarray] = [wave for _, wave in usable]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, str]:
        """Log-mel features (T, 80), normalised over the utterance, its characters (S,), and its text."""
        energies = mel_spectrogram()(torch.from_numpy(self.waves[index]))  # (80, T)
        features = torch.log(energies + FLOOR).T
        features = (features - features.mean(0)) / (features.std(0) + 0.1)
        return features, torch.from_numpy(self.alphabet.encode(self.texts[index])), self.texts[index]


def padded(samples: list[tuple[Tensor, Tensor, str]]) -> Batch:
    """Utterances side by side, padded to the longest."""
    features, tokens, texts = zip(*samples, strict=True)
    lengths, token_lengths = (torch.tensor([len(one) for one in each]) for each in (features, tokens))
    return Batch(pad_sequence(features, True), lengths, pad_sequence(tokens, True), token_lengths, list(texts))


def textbook_loader(data: str, split: str, batch_size: int, *, shuffle: bool) -> DataLoader:
    """A data loader over `WaveformUtterances`."""
    return DataLoader(WaveformUtterances(data, split), batch_size=batch_size, shuffle=shuffle, collate_fn=padded)
