"""Batches of utterances: of prepared features by like length, or as a tutorial makes them, anew and at random.

The order of prepared ones is fixed by seed and epoch, and can start anywhere.

Shapes: B batch, N utterances, T frames, S characters.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import DataLoader, Dataset, Subset

from labkit.data.bad_rows import BadRows
from labkit.data.speech.alphabet import Alphabet
from labkit.data.speech.features import Voice, features_of
from labkit.data.speech.load import read_source, usable_utterances, wave_of
from labkit.data.speech.prepared import Batch, SpeechSplit, padded
from labkit.errors import DataError

POOL_BATCHES = 32
"""Batches whose utterances are sorted together: more means less padding and less chance in who meets whom."""


class BucketedBatches:
    """A loader that can start anywhere: what `run.batches` takes."""

    def __init__(self, split: SpeechSplit, batch_size: int, seed: int, kept: np.ndarray | None = None):
        """Batches of a split's utterances, or of those `kept` (indices)."""
        self.split, self.batch_size, self.seed = split, batch_size, seed
        self._kept = np.arange(len(split.lengths)) if kept is None else kept
        self._epoch = -1

    def __len__(self) -> int:
        return len(self.rows(0))

    def __iter__(self) -> Iterator[Batch]:
        """The next epoch."""
        return self.at(self._epoch + 1, 0)

    def at(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch, from number `start` on."""
        self._epoch = epoch
        return map(self.split.batch, self.rows(epoch)[start:])

    def rows(self, epoch: int) -> list[np.ndarray]:
        """The indices (B,) of an epoch's batches; seed and epoch fix the order.

        A random order is cut into pools of 32 batches, each pool is sorted by length and cut into batches, and the
        batches are shuffled.
        """
        rng, lengths, size = np.random.default_rng((self.seed, epoch)), np.asarray(self.split.lengths), self.batch_size
        order, batches = rng.permutation(self._kept), []
        for start in range(0, len(order), size * POOL_BATCHES):
            pool = order[start : start + size * POOL_BATCHES]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            batches += [pool[first : first + size] for first in range(0, len(pool), size)]
        return [batches[index] for index in rng.permutation(len(batches))]


class ByLength:
    """The utterances of a split, shortest first, as often as they are asked for."""

    def __init__(self, split: SpeechSplit, batch_size: int):
        self.split, self.batch_size = split, batch_size

    def __iter__(self) -> Iterator[Batch]:
        order = np.argsort(np.asarray(self.split.lengths), kind="stable")
        for start in range(0, len(order), self.batch_size):
            yield self.split.batch(order[start : start + self.batch_size])


class WaveformUtterances(Dataset):
    """A split of a speech set, its audio in memory, features computed anew; what cannot be used is left out."""

    def __init__(self, data: str, split: str, *, kind: str = "log-mel"):
        """Read the audio of `data`, as `load_speech` takes it."""
        self.alphabet, self.kind = Alphabet(), kind
        bad = BadRows("skip")
        self.texts: list[str] = []
        self.waves: list[np.ndarray] = []
        for each in usable_utterances(read_source(data, bad, seed=0), bad):
            if each.split == split:
                with contextlib.suppress(DataError):
                    self.waves.append(wave_of(each))
                    self.texts.append(each.text)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, str]:
        """Features (T, F), normalised over the utterance, its characters (S,), and its text."""
        voice = Voice(self.kind)
        (features,) = features_of([self.waves[index]], self.kind)
        voice.listen(features)
        return voice.normalised(features), self.alphabet.encode(self.texts[index]), self.texts[index]


def textbook_loader(
    data: str,
    split: str,
    batch_size: int,
    *,
    shuffle: bool,
    kind: str = "log-mel",
    kept: Sequence[int] | None = None,
) -> DataLoader:
    """A data loader over `WaveformUtterances`; `kept` (K,) are indices of those it gives, as of the prepared split."""
    utterances = WaveformUtterances(data, split, kind=kind)
    chosen = utterances if kept is None else Subset(utterances, kept)
    return DataLoader(chosen, batch_size=batch_size, shuffle=shuffle, collate_fn=padded)
