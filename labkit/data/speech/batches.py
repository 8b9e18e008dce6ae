"""Batches of utterances: prepared features grouped by length, or features computed for each batch, as in a tutorial.

The order of prepared batches is fixed by seed and epoch, and can start anywhere.

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
"""Batches whose utterances are sorted together: more means less padding, but less randomness in who meets whom"""


class BucketedBatches:
    """A loader that can start anywhere, for `run.batches`."""

    def __init__(self, split: SpeechSplit, batch_size: int, seed: int, kept: np.ndarray | None = None):
        """Batches of the utterances of a split, or only of those at the indices `kept`."""
        self.split, self.batch_size, self.seed = split, batch_size, seed
        self._kept = np.arange(len(split.lengths)) if kept is None else kept
        self._epoch = -1

    def __len__(self) -> int:
        return len(self.rows(0))

    def __iter__(self) -> Iterator[Batch]:
        """The next epoch."""
        return self.at(self._epoch + 1, 0)

    def at(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from number `start` on."""
        self._epoch = epoch
        return map(self.split.batch, self.rows(epoch)[start:])

    def rows(self, epoch: int) -> list[np.ndarray]:
        """The indices (B,) of the batches of an epoch; seed and epoch fix the order.

        A random order is cut into pools of 32 batches. Each pool is sorted by length and cut into batches. All batches
        are shuffled.
        """
        rng, lengths, size = np.random.default_rng((self.seed, epoch)), np.asarray(self.split.lengths), self.batch_size
        order, batches = rng.permutation(self._kept), []
        for start in range(0, len(order), size * POOL_BATCHES):
            pool = order[start : start + size * POOL_BATCHES]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            batches += [pool[first : first + size] for first in range(0, len(pool), size)]
        return [batches[index] for index in rng.permutation(len(batches))]


class ByLength:
    """The utterances of a split, shortest first, in every iteration."""

    def __init__(self, split: SpeechSplit, batch_size: int):
        self.split, self.batch_size = split, batch_size

    def __iter__(self) -> Iterator[Batch]:
        order = np.argsort(np.asarray(self.split.lengths), kind="stable")
        for start in range(0, len(order), self.batch_size):
            yield self.split.batch(order[start : start + self.batch_size])


class WaveformUtterances(Dataset):
    """A split of a speech set with its audio in memory; features are computed at each access.

    Utterances that cannot be used are skipped.
    """

    def __init__(self, data: str, split: str, *, kind: str = "log-mel"):
        """Read the audio of `data`, a name or path as for `load_speech`."""
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
        """Features (T, F), normalised over the utterance, the ids of its characters (S,), and its text."""
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
    """A data loader of `WaveformUtterances`, or only of those at the indices `kept` of the prepared split."""
    utterances = WaveformUtterances(data, split, kind=kind)
    chosen = utterances if kept is None else Subset(utterances, kept)
    return DataLoader(chosen, batch_size=batch_size, shuffle=shuffle, collate_fn=padded)
