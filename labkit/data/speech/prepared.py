"""A prepared speech set: features in one memory-mapped array and texts next to it; and its batches.

    features.f16        float16 (frames of all utterances, F), utterance after utterance, the training split first
    meta.json           name, findings of the preparation, and for each split the utterances' frames, texts, speakers

N utterances, B of a batch, T frames of F features (80 log-mel bins), S characters.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from labkit.data.speech.utterance import SPLITS, Alphabet, outputs_needed
from labkit.data.store import read_json

FORMAT_VERSION = 10
FRAMES_PER_S = 100


@dataclass(frozen=True)
class Batch:
    """Utterances of one batch, padded to the longest."""

    features: Tensor  # float32 (B, T, F), zero padded
    feature_lengths: Tensor  # int64 (B,) frames
    tokens: Tensor  # int64 (B, S), padded with blanks
    token_lengths: Tensor  # int64 (B,)
    texts: list[str]


@dataclass(frozen=True)
class SpeechSplit:
    """The utterances of one split."""

    lengths: np.ndarray
    """Frames of each utterance: int32 (N,)"""
    texts: list[str]
    speakers: list[str]
    frames: np.ndarray
    """float16 (frames of this split, F), memory-mapped"""

    def __len__(self) -> int:
        return len(self.texts)

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.lengths, dtype=np.int64)

    def features(self, index: int) -> np.ndarray:
        """Features of one utterance: float32 (T, F)."""
        return self.frames[self._ends[index] - self.lengths[index] : self._ends[index]].astype(np.float32)

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The utterances at these indices, in this order."""
        encode = Alphabet().encode
        return padded([(self.features(index), encode(self.texts[index]), self.texts[index]) for index in indices])


def padded(utterances: Iterable[tuple[np.ndarray, np.ndarray, str]]) -> Batch:
    """Make a batch of the features (T, F), tokens (S,) and text of each utterance, padded to the longest."""
    features, tokens, texts = zip(*utterances, strict=True)
    parts = []
    for arrays in (features, tokens):
        parts.append(pad_sequence([torch.from_numpy(array) for array in arrays], batch_first=True))
        parts.append(torch.tensor([len(array) for array in arrays]))
    return Batch(*parts, list(texts))


class SpeechSet:
    """A prepared speech set, opened without reading its features."""

    def __init__(self, folder: Path):
        self.folder = folder
        meta = read_json(folder / "meta.json")
        assert meta is not None  # `prepare_once` gives complete folders only
        self.name: str = meta["name"]
        self.alphabet = Alphabet()
        self.fingerprint: str = meta["fingerprint"]
        self.bins: int = meta["bins"]
        """Numbers per frame"""
        self.info: dict = meta["info"]
        """Hours of each split, skipped utterances, and whether splits were made because the source lacks some"""
        self._splits: dict[str, dict[str, list]] = meta["splits"]

    def split(self, name: str) -> SpeechSplit:
        """The split "train", "validation" or "test"."""
        first = sum(sum(self._splits[before]["frames"]) for before in SPLITS[: SPLITS.index(name)])
        lengths, texts, speakers = (self._splits[name][part] for part in ("frames", "texts", "speakers"))
        frames = np.memmap(self.folder / "features.f16", np.float16, "r").reshape(-1, self.bins)
        return SpeechSplit(np.array(lengths, np.int32), texts, speakers, frames[first : first + sum(lengths)])

    def __repr__(self) -> str:
        parts = (
            f"{name} {len(self._splits[name]['texts']):,} utterances, {self.info['hours'][name]:.2f} h"
            for name in SPLITS
        )
        return f"SpeechSet({self.name!r}: {'; '.join(parts)}; {len(self.alphabet)} characters with the blank)"


MOST_LEFT_OUT = 0.01
"""Largest share of the training utterances that may be too fast for the outputs they get"""


@dataclass(frozen=True)
class Resolution:
    """Strides of a recogniser that fit a training split."""

    strides: tuple[int, ...]
    kept: np.ndarray
    """Indices of the utterances that can be learnt from: int64 (N,)"""
    words: str
    """Differences from the wanted strides, as text; empty if there are none"""


def fitting_resolution(split: SpeechSplit, wanted: tuple[int, ...]) -> Resolution:
    """The wanted strides, or the next finer ones with which nearly all utterances can be learnt from.

    CTC writes at most one character per output, and needs a blank between equal ones (Graves et al., 2006, section 3).
    Evaluation uses all utterances: what a model cannot write counts as errors.
    """
    frames = np.asarray(split.lengths)
    needed = np.array([outputs_needed(text) for text in split.texts])
    strides = list(wanted)
    while (fits := -(-frames // int(np.prod(strides))) >= needed).mean() < 1 - MOST_LEFT_OUT and max(strides) > 1:
        last = max(place for place, stride in enumerate(strides) if stride > 1)
        strides[last] -= 1
    words, many = [], len(split)
    ms, wanted_ms = (1000 * int(np.prod(each)) // FRAMES_PER_S for each in (strides, wanted))
    if ms != wanted_ms:
        words.append(f"The speech is too fast for an output every {wanted_ms} ms: the model has one every {ms} ms.")
    if not fits.all():
        words.append(
            f"{many - fits.sum():,} of {many:,} training utterances are still too fast, and are not used for training."
        )
    return Resolution(tuple(strides), np.flatnonzero(fits), " ".join(words))


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
