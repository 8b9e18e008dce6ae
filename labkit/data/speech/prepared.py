"""A prepared speech set: features in one memory-mapped array, texts beside it.

    features.f16        float16 (frames of all utterances, F), utterance after utterance, the training split first
    meta.json           name, what was found while preparing, and of each split the utterances' frames, texts, speakers

B utterances of a batch, T frames of F features (80 log-mel bins), S characters.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from labkit.data.speech.alphabet import Alphabet
from labkit.data.speech.utterance import SPLITS
from labkit.data.store import read_json

FORMAT_VERSION = 10
FRAMES_PER_S = 100


@dataclass(frozen=True)
class Batch:
    """Utterances side by side, padded to the longest."""

    features: Tensor  # float32 (B, T, F), zero padded
    feature_lengths: Tensor  # int64 (B,) frames
    tokens: Tensor  # int64 (B, S), padded with blanks
    token_lengths: Tensor  # int64 (B,)
    texts: list[str]


@dataclass(frozen=True)
class SpeechSplit:
    """The utterances of one split."""

    lengths: np.ndarray
    """Frames of each utterance: int32 (N,)."""
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
    """Utterances side by side, padded to the longest: features (T, F), tokens (S,) and text of each."""
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
        self.alphabet = Alphabet()
        self.fingerprint: str = meta["fingerprint"]
        self.bins: int = meta["bins"]
        """Numbers a frame"""
        self.info: dict = meta["info"]
        """Hours of each split, utterances skipped, and whether splits were divided because the source lacks some."""
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
