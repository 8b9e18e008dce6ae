"""A beam search fitted to a recogniser: the character model of its training transcripts, and that model's weight."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from random import Random

import numpy as np

from labkit.data import BadRows
from labkit.data.speech import Alphabet, Utterance, in_lower_case, read_lines, read_source, usable_utterances, wave_of
from labkit.errors import UserError
from labkit.runs import RunRecord
from labkit.transcription.decoding import MOST_CHARACTERS, CharacterModel, beam_search, chosen_weight
from labkit.transcription.recogniser import Recogniser
from labkit.transcription.transcripts import Decoder

NO_MODEL = "none"
"""Asks for a beam search without a character model"""
TRIED = 100
"""Utterances of the validation split by which the weight is chosen"""


def fitted_beam(
    recogniser: Recogniser, beam: int, texts: str | None = None, *, by_file: bool = False
) -> tuple[Decoder, str]:
    """A beam search, and in words how it was chosen: its model's weight by the error rate on the validation split.

    Args:
        recogniser: that of a run.
        beam: texts kept at a time.
        texts: a file with a text a line for the character model, or `NO_MODEL`; None: the training transcripts.
        by_file: normalise each recording alone, whoever speaks.

    Raises:
        UserError: the run's data, or the file, cannot be read.
    """
    if texts == NO_MODEL:
        return partial(beam_search, beam=beam), f"beam search, {beam} wide, without a character model"
    utterances = _utterances(recogniser.record)
    if texts is None:
        lines, of = [each.text for each in utterances if each.split == "train"], "the training transcripts"
        Random(0).shuffle(lines)  # for a listing goes speaker by speaker, and the model may not count all
    else:
        lines, of = read_texts(Path(texts)), texts
    model = CharacterModel(lines)
    if model.counted > MOST_CHARACTERS:
        of = f"{MOST_CHARACTERS:,} characters of {of}"
    if not model.counted:
        raise UserError(f"--lm {texts}: there is no text in its letters a to z: name a text file, one sentence a line.")
    heard, said = _heard(recogniser, [each for each in utterances if each.split == "validation"], by_file)
    weight, cer = chosen_weight(heard, said, beam, model)
    note = (
        f"beam search, {beam} wide, with an n-gram model (order {model.order}) of {of}; its weight, {weight:g}, has "
        f"the lowest CER on {len(said)} utterances of the validation split: {cer:.4f}"
    )
    return partial(beam_search, beam=beam, model=model, weight=weight), note


def read_texts(path: Path) -> Iterator[str]:
    """The lines of a file in the alphabet's characters: in lower case, whatever else is in them a space.

    Raises:
        UserError: there is no such file, or it is UTF-16.
    """
    characters = set(Alphabet().characters)
    try:
        for _, line in read_lines(path):
            line = "".join(c if c in characters else " " for c in in_lower_case(line))
            if words := line.split():
                yield " ".join(words)
    except OSError as error:
        raise UserError(f"--lm {path}: this file cannot be read ({error.strerror}): name a text file.") from None


def _utterances(record: RunRecord) -> list[Utterance]:
    """The utterances of the data that a run was trained on, in the splits of its training."""
    data = record.config["data"].get("source", record.config["data"]["name"])
    bad = BadRows("skip")
    try:
        return usable_utterances(read_source(data, bad, seed=0), bad)
    except (UserError, OSError) as error:
        raise UserError(
            f"--beam chooses the weight of its character model on the validation split of the run's data, {data!r}, "
            f"which cannot be read here: {error} Bring it back, or search without a model: --lm {NO_MODEL}."
        ) from error


def _heard(recogniser: Recogniser, utterances: list[Utterance], by_file: bool) -> tuple[list[np.ndarray], list[str]]:
    """Log-probabilities and texts of `TRIED` of these, drawn with a fixed seed."""
    order = np.random.default_rng(0).permutation(len(utterances))[:TRIED]
    # whose speaker nobody knows stands alone, as in training
    voices = ["" if by_file else utterances[index].speaker for index in order]
    chosen = sorted((voice or f"\0{index}", index) for voice, index in zip(voices, order, strict=True))
    heard, said = [], []
    for _, own in groupby(chosen, key=lambda each: each[0]):
        own = [utterances[index] for _, index in own]
        waves = []
        for each in own:
            with contextlib.suppress(UserError):  # which training left out
                waves.append(wave_of(each))
                said.append(each.text)
        heard += [each.log_probabilities for each in recogniser.hear(waves)]
    return heard, said
