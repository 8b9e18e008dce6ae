"""Features normalised for each speaker, in place: mean 0 and variance 1 a bin over all of a speaker's frames.

That removes loudness and the colour of voice, microphone and room, and keeps what tells one short word from another:
over a single word of 0.3 s the word itself is most of what a mean and variance see. Splits are normalised apart, so
nothing of the test split reaches training.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

MIN_DEVIATION = 0.1
"""A bin that hardly moves (above 4 kHz in resampled 8 kHz audio) stays quiet and is not blown up."""


def normalise_speakers(path: Path, keys: list[tuple[str, ...]], frames: list[int], bins: int) -> None:
    """Rewrite a file of features.

    Args:
        path: float16 (sum of frames, bins), utterance after utterance.
        keys: for each utterance what it is normalised with: split and speaker.
        frames: frames of each utterance.
        bins: bins of a frame.
    """
    features = np.memmap(path, np.float16, "r+", shape=(sum(frames), bins))
    ends = np.cumsum(frames)
    spans: dict[tuple[str, ...], list[slice]] = defaultdict(list)
    for key, count, end in zip(keys, frames, ends, strict=True):
        spans[key].append(slice(end - count, end))
    for own in spans.values():
        total, squares, count = np.zeros(bins), np.zeros(bins), 0
        for span in own:
            values = features[span].astype(np.float64)
            total += values.sum(0)
            squares += np.square(values).sum(0)
            count += len(values)
        mean = total / count
        deviation = np.sqrt(np.maximum(squares / count - mean**2, 0)).clip(MIN_DEVIATION)
        for span in own:
            features[span] = (features[span].astype(np.float32) - mean) / deviation
    features.flush()
