"""A beam search fitted to a recogniser: the character model of its training transcripts, and that model's weight."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from labkit.data.bad_rows import BadRows
from labkit.data.speech.alphabet import Alphabet, in_lower_case
from labkit.data.speech.audio import decode
from labkit.data.speech.layouts import read_lines
from labkit.data.speech.load import read_source, readable, refuse_mismatch
from labkit.data.speech.utterance import Utterance, fill_splits
from labkit.errors import UserError
from labkit.runs import RunRecord
from labkit.transcription.decoding import CharacterModel, beam_search, chosen_weight
from labkit.transcription.recogniser import Recogniser
from labkit.transcription.transcribe import Decoder

NO_MODEL = "none"
"""Asks for a beam search without a character model"""
TRIED = 100
"""Utterances of the validation split by which the weight is chosen"""


def fitted_beam(recogniser: Recogniser, beam: int, texts: str | None = None) -> tuple[Decoder, str]:
    """A beam search, and in words how it was chosen: its model's weight by the error rate on the validation split.

    Args:
        recogniser: that of a run.
        beam: texts kept at a time.
        texts: a file with a text a line for the character model, or `NO_MODEL`; None: the training transcripts.

    Raises:
        UserError: the run's data, or the file, cannot be read.
    """
    if texts == NO_MODEL:
        return partial(beam_search, beam=beam), f"beam search, {beam} wide, without a character model"
    utterances = _utterances(recogniser.record)
    if texts is None:
        lines, of = (each.text for each in utterances if each.split == "train"), "the training transcripts"
    else:
        lines, of = read_texts(Path(texts)), texts
    model = CharacterModel(lines)
    heard, said = _heard(recogniser, [each for each in utterances if each.split == "validation"])
    weight, cer = chosen_weight(heard, said, beam, model)
    note = (
        f"beam search, {beam} wide, with a model of {model.order} characters of {of}; its weight, {weight:g}, has the "
        f"lowest CER on {len(said)} utterances of the validation split: {cer:.4f}"
    )
    return partial(beam_search, beam=beam, model=model, weight=weight), note


def read_texts(path: Path) -> list[str]:
    """The lines of a file in the alphabet's characters: in lower case, whatever else is in them a space.

    Raises:
        UserError: there is no such file, it is UTF-16, or it has no text.
    """
    try:
        lines = [in_lower_case(line) for _, line in read_lines(path)]
    except OSError as error:
        raise UserError(f"--lm {path}: this file cannot be read ({error.strerror}): name a text file.") from None
    alphabet = Alphabet()
    known = [" ".join("".join(c if c in alphabet.characters else " " for c in line).split()) for line in lines]
    if not any(known):
        raise UserError(f"--lm {path}: there is no text in its letters a to z: name a text file, one sentence a line.")
    return [line for line in known if line]


def _utterances(record: RunRecord) -> list[Utterance]:
    """The utterances of the data that a run was trained on, in the splits of its training."""
    data = record.config["data"].get("source", record.config["data"]["name"])
    bad = BadRows("skip")
    try:
        return fill_splits(readable(read_source(data, bad, seed=0), Alphabet(), bad), seed=0)
    except (UserError, OSError) as error:
        raise UserError(
            f"--beam chooses the weight of its character model on the validation split of the run's data, {data!r}, "
            f"which cannot be read here: {error} Bring it back, or search without a model: --lm {NO_MODEL}."
        ) from error


def _heard(recogniser: Recogniser, utterances: list[Utterance]) -> tuple[list[np.ndarray], list[str]]:
    """Log-probabilities and texts of `TRIED` of these, drawn with a fixed seed."""
    order = np.random.default_rng(0).permutation(len(utterances))[:TRIED]
    # whose speaker nobody knows stands alone, as in training
    chosen = sorted((utterances[index].speaker or f"\0{index}", index) for index in order)
    heard, said = [], []
    for _, own in groupby(chosen, key=lambda each: each[0]):
        own = [utterances[index] for _, index in own]
        waves = []
        for each in own:
            try:
                wave = decode(each)
                refuse_mismatch(each, wave)
            except UserError:  # which training left out
                continue
            waves.append(wave)
            said.append(each.text)
        heard += [each.log_probabilities for each in recogniser.hear(waves)]
    return heard, said
