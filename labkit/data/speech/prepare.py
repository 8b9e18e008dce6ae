"""From a source's utterances to a prepared speech set: decode, check, features, write.

Two threads decode and compute ahead (libsndfile and torch work outside Python's lock) while this one writes; a
few minutes of audio are in memory at a time, whatever the size of the source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from labkit.data.bad_rows import BadRows
from labkit.data.speech.alphabet import Alphabet, outputs_needed, transcript
from labkit.data.speech.audio import Decoded, decode
from labkit.data.speech.features import MEL_BINS, frame_count, log_mel, normalise_speakers
from labkit.data.speech.prepared import FORMAT_VERSION, FRAMES_PER_S
from labkit.data.speech.splits import fill_splits
from labkit.data.speech.utterance import SPLITS, Source, Utterance
from labkit.data.store import Progress, write_json
from labkit.errors import DataError

GROUP = 64
"""Utterances that are decoded and computed together."""
WORKERS = 2
AHEAD = 3
"""Groups that are waiting or worked on while one is written."""


Group = tuple[list[Utterance], Decoded, list[np.ndarray | DataError]]
"""Neighbours in one split, how they were decoded, and of each its features float16 (T, 80), or why it has none."""


def prepare_speech(
    folder: Path,
    source: Source,
    *,
    alphabet: Alphabet,
    fingerprint: str,
    punctuation: str,
    frames_an_output: int,
    seed: int,
    bad: BadRows,
    progress: Progress,
) -> None:
    """Write a prepared speech set into an empty folder.

    Args:
        frames_an_output: frames for which a model writes one CTC output; a transcript that needs more outputs than
            its frames allow cannot be learnt and is a bad utterance.

    Raises:
        DataError: an utterance cannot be used and `bad` says to stop, or a split is empty.
    """
    utterances, split_note = fill_splits(readable(source, alphabet, punctuation, bad), seed)
    utterances.sort(key=lambda each: SPLITS.index(each.split))
    written: list[Utterance] = []
    frames: list[int] = []
    mixed_down, resampled = set(), set()
    with (folder / "features.f16").open("wb") as file:
        done = 0
        for group, decoded, found in _groups(utterances, frames_an_output):
            for utterance, features in zip(group, found, strict=True):
                if isinstance(features, DataError):
                    bad.add(features)
                    continue
                file.write(features.data)
                written.append(utterance)
                frames.append(len(features))
            mixed_down |= decoded.mixed_down
            resampled |= decoded.resampled
            done += len(group)
            progress(done / len(utterances), f"{source.name}: features of {done:,} utterances")
    # utterances of one speaker go together; one whose speaker nobody knows stands alone
    keys = [(each.split, each.speaker or str(index), bool(each.speaker)) for index, each in enumerate(written)]
    normalise_speakers(folder / "features.f16", keys, frames, MEL_BINS)
    texts, speakers = [each.text for each in written], [each.speaker for each in written]
    with (folder / "utterances.parquet").open("wb") as file:  # pyarrow opens no name that is not UTF-8
        pq.write_table(pa.table({"text": texts, "speaker": speakers, "frames": pa.array(frames, pa.int32())}), file)
    of_split = {split: [index for index, each in enumerate(written) if each.split == split] for split in SPLITS}
    for split, indices in of_split.items():
        if not indices:
            raise DataError(
                f"The {split} split has no usable utterance.",
                fix="Give it some, or mend those that were skipped.",
                file=source.listings[0] if source.listings else source.folder,
            )
    info = {
        "hours": {name: sum(frames[index] for index in own) / FRAMES_PER_S / 3600 for name, own in of_split.items()},
        "speakers": {name: len({speakers[index] for index in own}) for name, own in of_split.items()},
        "skipped": bad.info(),
        "files_mixed_down": len(mixed_down),
        "files_resampled": len(resampled),
        "notes": [*source.notes, *([split_note] if split_note else [])],
    }
    write_json(
        folder / "meta.json",
        {
            "format_version": FORMAT_VERSION,
            "name": source.name,
            "alphabet": alphabet.characters,
            # what a model cannot learn from is skipped for that model, and makes its data others
            "fingerprint": f"{fingerprint}-{frames_an_output}" if bad.count else fingerprint,
            "splits": {name: [own[0], own[-1] + 1] for name, own in of_split.items()},
            "info": info,
        },
    )


def readable(source: Source, alphabet: Alphabet, punctuation: str, bad: BadRows) -> list[Utterance]:
    """The utterances whose transcripts the alphabet can write, in its characters."""
    readable = []
    for utterance in source.utterances:
        text = transcript(utterance, alphabet, punctuation)
        if isinstance(text, DataError):
            bad.add(text)
        else:
            readable.append(replace(utterance, text=text))
    if not readable:
        raise DataError(
            "There is no usable utterance.",
            fix=f"The first one: {bad.first[0]['reason']} Mend them." if bad.first else "List some.",
            file=source.listings[0] if source.listings else source.folder,
        )
    return readable


def _groups(utterances: list[Utterance], frames_an_output: int) -> Iterator[Group]:
    """The utterances in order, group by group, worked on ahead."""
    groups = (
        same[start : start + GROUP]
        for same in (list(same) for _, same in groupby(utterances, key=lambda each: each.split))
        for start in range(0, len(same), GROUP)
    )
    with _one_torch_thread(), ThreadPoolExecutor(WORKERS) as pool:
        waiting: deque[Future[Group]] = deque()
        for group in groups:
            waiting.append(pool.submit(_work, group, frames_an_output))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Let each worker compute on its own thread: threads that wait for each other at every operation took five
    times as long on two busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _work(utterances: list[Utterance], frames_an_output: int) -> Group:
    """Decode a group, check it, compute the features of what is good."""
    decoded = decode(utterances)
    found = [
        wave if isinstance(wave, DataError) else _too_long(utterance, len(wave), frames_an_output)
        for utterance, wave in zip(utterances, decoded.waves, strict=True)
    ]
    computed = iter(log_mel([wave for wave, error in zip(decoded.waves, found, strict=True) if error is None]))
    features = [next(computed).astype(np.float16, order="C") if error is None else error for error in found]
    decoded.waves.clear()
    return utterances, decoded, features


def _too_long(utterance: Utterance, samples: int, frames_an_output: int) -> DataError | None:
    """The error of a transcript that CTC cannot write in its frames (Graves et al., 2006, section 3)."""
    frames, needed = frame_count(samples), outputs_needed(utterance.text)
    outputs = -(-frames // frames_an_output)
    if needed <= outputs:
        return None
    return utterance.error(
        f"The transcript {utterance.text[:60]!r} needs {needed} CTC outputs (its characters, and a blank between equal "
        f"neighbours), and {frames / FRAMES_PER_S:.2f} s of audio give {outputs}.",
        fix="Check that audio and transcript belong together, and offset and duration.",
        field=utterance.text_field,
    )
