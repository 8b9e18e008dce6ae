"""How many outputs a second a recogniser needs for the speech that it is to learn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.data.speech.alphabet import outputs_needed
from labkit.data.speech.prepared import FRAMES_PER_S, SpeechSplit

MOST_LEFT_OUT = 0.01
"""Of the training utterances, that are spoken too fast for the outputs they get"""


@dataclass(frozen=True)
class Resolution:
    """Strides of a recogniser that suit a training split."""

    strides: tuple[int, ...]
    kept: np.ndarray
    """The utterances that can be learnt from: int64 (N,)"""
    words: str
    """What differs from what was wanted; empty where nothing does"""


def fitting_resolution(split: SpeechSplit, wanted: tuple[int, ...]) -> Resolution:
    """The wanted strides, or the next finer ones with which nearly all utterances can be learnt from.

    CTC writes at most one character an output, and needs a blank between equal ones (Graves et al., 2006, section 3).
    Evaluation leaves nothing out: what a model cannot write counts as its errors.
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
        words.append(f"Speech here is too fast for an output every {wanted_ms} ms: the model writes one every {ms} ms.")
    if not fits.all():
        words.append(
            f"{many - fits.sum():,} of {many:,} training utterances are too fast even so, and are left out of training."
        )
    return Resolution(tuple(strides), np.flatnonzero(fits), " ".join(words))
