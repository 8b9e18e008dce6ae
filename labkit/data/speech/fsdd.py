"""The Free Spoken Digit Dataset as connected digits: recordings of one speaker put together.

Recordings are named `{digit}_{speaker}_{index}.wav`; indices 0 to 4 are the official test split. Here 5 to 7
validate and the rest train. Each split deals every speaker's recordings into utterances of 1 to 6 digits with
short silences, several times over, so that each recording is heard equally often in ever new company.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from labkit.data.speech.utterance import Segment, Source, Utterance
from labkit.errors import DataError

RECORDING = re.compile(r"(\d)_(\w+)_(\d+)\.wav")
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FIRST_INDEX = {"test": 0, "validation": 5, "train": 8}
"""The lowest index of each split; the next one starts the next split."""
DEALS = {"train": 12, "validation": 7, "test": 5}
"""How often each recording is used: with 4 speakers about 5,800 utterances to train, 260 to validate, 290 to
test."""
MAX_DIGITS = 6
SILENCE_S = (0.03, 0.15)
"""Between two digits, and after the last."""


def is_fsdd(folder: Path) -> bool:
    """Whether a folder holds recordings named as FSDD's."""
    return any(RECORDING.fullmatch(path.name) for path in folder.glob("[0-9]_*_*.wav"))


def read_fsdd(folder: Path, seed: int) -> Source:
    """Connected digits from a folder of recordings."""
    recordings: dict[tuple[str, str], list[tuple[Path, str]]] = {}
    for path in sorted(folder.glob("*.wav")):
        name = RECORDING.fullmatch(path.name)
        if name:
            digit, speaker, index = name.groups()
            split = max((s for s, low in FIRST_INDEX.items() if int(index) >= low), key=FIRST_INDEX.get)
            recordings.setdefault((split, speaker), []).append((path, DIGITS[int(digit)]))
    for split in FIRST_INDEX:
        if not any(key[0] == split for key in recordings):
            raise DataError(
                f"There is no recording of the {split} split (test: index 0 to 4, validation: 5 to 7, train: from 8).",
                fix="Copy the whole folder `recordings` of the dataset.",
                file=folder,
            )
    utterances = []
    for number, ((split, speaker), of_speaker) in enumerate(sorted(recordings.items())):
        rng = np.random.default_rng((seed, number))
        for _ in range(DEALS[split]):
            utterances += _deal(of_speaker, split, speaker, rng)
    note = f"connected digits: 1 to {MAX_DIGITS} recordings of one speaker, put together with seed {seed}"
    return Source("fsdd", utterances, folder, notes=(note,))


def _deal(recordings: list[tuple[Path, str]], split: str, speaker: str, rng: np.random.Generator) -> list[Utterance]:
    """Utterances that use every recording once."""
    order = rng.permutation(len(recordings))
    utterances, start = [], 0
    while start < len(order):
        chosen = [recordings[index] for index in order[start : start + rng.integers(1, MAX_DIGITS + 1)]]
        start += len(chosen)
        silences_s = rng.uniform(*SILENCE_S, len(chosen))
        segments = tuple(
            Segment(path, silence_s=float(silence_s)) for (path, _), silence_s in zip(chosen, silences_s, strict=True)
        )
        utterances.append(Utterance(segments, " ".join(word for _, word in chosen), speaker, split))
    return utterances
