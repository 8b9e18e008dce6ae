"""LibriSpeech's layout: `SUBSET/SPEAKER/CHAPTER/*.flac` with a `*.trans.txt` beside them."""

from __future__ import annotations

from pathlib import Path

from labkit.data.bad_rows import BadRows
from labkit.data.speech.utterance import Segment, Source, Utterance, is_file, open_listing
from labkit.errors import DataError

PREFIXES = {"train": "train", "dev": "validation", "test": "test"}
"""How the names of subsets begin, and the split each is."""


def is_librispeech(folder: Path) -> bool:
    """Whether a folder holds subsets (`dev-clean`), or is one."""
    return any(folder.glob("*/*/*.trans.txt")) or any(folder.glob("*/*/*/*.trans.txt"))


def read_librispeech(folder: Path, bad: BadRows) -> Source:
    """The utterances of a LibriSpeech tree, of all its subsets or of one."""
    is_subset = any(folder.glob("*/*/*.trans.txt"))
    listings = sorted(folder.glob("*/*/*.trans.txt" if is_subset else "*/*/*/*.trans.txt"))
    utterances = []
    for listing in listings:
        speaker_folder = listing.parent.parent
        subset = speaker_folder.resolve().parent.name
        split = PREFIXES.get(subset.partition("-")[0])
        with open_listing(listing) as lines:
            for number, line in enumerate(lines, 1):
                name, _, text = line.strip().partition(" ")
                audio = listing.parent / f"{name}.flac"
                if not is_file(audio):
                    bad.add(
                        DataError(
                            f"The transcript is of {audio.name}, which is not beside it.",
                            fix="Unpack the archive again, or remove the line.",
                            file=listing,
                            line=number,
                        )
                    )
                    continue
                utterances.append(
                    Utterance((Segment(audio),), text, speaker_folder.name, split, listing, number, text_field="text")
                )
    return Source(folder.resolve().name, utterances, folder, listings=tuple(listings))
