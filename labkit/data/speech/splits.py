"""Which utterances train, validate and test where the source does not say."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from labkit.data.speech.utterance import SPLITS, Utterance
from labkit.errors import DataError

HELD_OUT = 0.1
"""The share of speakers (or of utterances, where speakers are few) that a missing split gets."""


def fill_splits(utterances: list[Utterance], seed: int) -> tuple[list[Utterance], str | None]:
    """Give every utterance a split, and every split its utterances.

    Utterances without a split are divided among the splits the source lacks, and so is a split that has to be
    shared out because one is missing: the training split, or else the validation or test split. Speakers
    stay whole if there are enough of them.

    Returns:
        The utterances, and a note on what was decided; None where the source decided everything.
    """
    present = {each.split for each in utterances}
    if present >= set(SPLITS) and None not in present:
        return utterances, None
    shared = next(split for split in (None, *SPLITS) if split in present)
    wanted = [split for split in SPLITS if split not in present or split == shared]
    if shared is None and "train" not in wanted:
        wanted.insert(0, "train")
    pool = [index for index, each in enumerate(utterances) if each.split == shared]
    speakers = {utterances[index].speaker for index in pool}
    # With as many speakers as splits each would get one; fewer cannot be kept whole.
    whole = len(speakers) >= len(wanted)
    unit = "speaker" if whole else "utterance"
    chosen = _divide([utterances[index].speaker if whole else index for index in pool], wanted, seed)
    filled = list(utterances)
    for index in pool:
        key = utterances[index].speaker if whole else index
        filled[index] = replace(utterances[index], split=chosen[key])
    missing = [split for split in SPLITS if not any(each.split == split for each in filled)]
    if missing:
        raise DataError(
            f"There are {len(utterances)} utterances, too few for a {' and a '.join(missing)} split.",
            fix="Give at least three, better several hundred.",
            file=utterances[0].listed_in,
        )
    source = "utterances without a split" if shared is None else f"the {shared} split"
    return filled, f"{source} divided by {unit} (seed {seed}) into {', '.join(wanted)}"


def _divide(keys: list[Hashable], wanted: list[str], seed: int) -> dict[Hashable, str]:
    """Give each of the distinct keys one of the splits, in random order: a tenth for each held-out split,
    the rest for the first."""
    distinct = list(dict.fromkeys(keys))
    order = np.random.default_rng(seed).permutation(len(distinct))
    held_out = max(1, round(HELD_OUT * len(distinct)))
    chosen = {}
    for rank, index in enumerate(order):
        place = 1 + rank // held_out
        chosen[distinct[index]] = wanted[place] if place < len(wanted) else wanted[0]
    return chosen
