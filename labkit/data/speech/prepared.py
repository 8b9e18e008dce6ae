"""A prepared speech set: features in one memory-mapped array, texts beside it.

    features.f16        float16 (frames of all utterances, 80), utterance after utterance
    utterances.parquet  text, speaker and frames of each utterance, the training split first
    meta.json           name, alphabet, the range of each split, what was found while preparing

B utterances of a batch, T frames, S characters.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from labkit.data.speech.alphabet import Alphabet
from labkit.data.speech.features import MEL_BINS
from labkit.data.speech.utterance import SPLITS
from labkit.data.store import read_json

FORMAT_VERSION = 2
FRAMES_PER_S = 100


@dataclass(frozen=True)
class Batch:
    """Utterances side by side, padded to the longest."""

    features: Tensor  # float32 (B, T, 80), zero padded
    feature_lengths: Tensor  # int64 (B,) frames
    tokens: Tensor  # int64 (B, S), padded with blanks
    token_lengths: Tensor  # int64 (B,)
    texts: list[str]


class SpeechSplit:
    """The utterances of one split."""

    def __init__(
        self, frames: np.ndarray, lengths: np.ndarray, texts: list[str], speakers: list[str], alphabet: Alphabet
    ):
        self._frames = frames  # float16 (frames of this split, 80), memory-mapped
        self.lengths = lengths
        """Frames of each utterance: int32 (N,)."""
        self.texts = texts
        self.speakers = speakers
        self._alphabet = alphabet
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self.texts)

    def features(self, index: int) -> np.ndarray:
        """Log-mel features of one utterance: float32 (T, 80)."""
        return self._frames[self._starts[index] : self._starts[index + 1]].astype(np.float32)

    def tokens(self, index: int) -> np.ndarray:
        """Ids of its characters: int64 (S,)."""
        return self._alphabet.encode(self.texts[index])

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The utterances at these indices, in this order."""
        return padded([(self.features(index), self.tokens(index), self.texts[index]) for index in indices])


def padded(utterances: Iterable[tuple[np.ndarray, np.ndarray, str]]) -> Batch:
    """Utterances side by side, padded to the longest: features (T, 80), tokens (S,) and text of each."""
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
        self.name: str = meta["name"]
        self.alphabet = Alphabet(meta["alphabet"])
        self.fingerprint: str = meta["fingerprint"]
        self.info: dict = meta["info"]
        """Hours of each split, and utterances skipped."""
        self._ranges: dict[str, list[int]] = meta["splits"]

    @functools.cached_property
    def _columns(self) -> tuple[np.ndarray, list[str], list[str]]:
        with (self.folder / "utterances.parquet").open("rb") as file:
            table = pq.read_table(file)
        return table["frames"].to_numpy(), table["text"].to_pylist(), table["speaker"].to_pylist()

    @functools.cached_property
    def _frames(self) -> np.ndarray:
        return np.memmap(self.folder / "features.f16", np.float16, "r").reshape(-1, MEL_BINS)

    def split(self, name: str) -> SpeechSplit:
        """The split "train", "validation" or "test"."""
        first, last = self._ranges[name]
        lengths, texts, speakers = self._columns
        start, stop = lengths[:first].sum(dtype=np.int64), lengths[:last].sum(dtype=np.int64)
        return SpeechSplit(
            self._frames[start:stop], lengths[first:last], texts[first:last], speakers[first:last], self.alphabet
        )

    def __repr__(self) -> str:
        parts = (
            f"{name} {last - first:,} utterances, {self.info['hours'][name]:.2f} h"
            for name in SPLITS
            for first, last in [self._ranges[name]]
        )
        return f"SpeechSet({self.name!r}: {'; '.join(parts)}; {len(self.alphabet)} characters with the blank)"
