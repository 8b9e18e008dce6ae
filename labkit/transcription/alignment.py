"""What was heard compared with a text: the time of each character, and error rates.

T' outputs, V alphabet with the blank, S characters.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from labkit import UserError
from labkit.data.speech import BLANK, Alphabet, Utterance, outputs_needed, refuse_mismatch, transcript


def align(log_probabilities: np.ndarray, text: str, outputs_per_s: float) -> pd.DataFrame:
    """Start and end of each character of a text on the likeliest path that writes it (Viterbi's algorithm).

    Args:
        log_probabilities: float (T', V).
        text: what was heard or said, in the alphabet's characters.
        outputs_per_s: `Recogniser.outputs_per_s`.

    Returns:
        Columns character, start_s, end_s. CTC's characters are short, where the model was sure of them.

    Raises:
        UserError: the text needs more outputs than there are.
    """
    outputs, needed = len(log_probabilities), outputs_needed(text)
    if needed > outputs:
        raise UserError(
            f"the text {text[:60]!r} needs {needed} outputs, and the audio has {outputs}: give the text that is said."
        )
    if not text:
        return pd.DataFrame({"character": [], "start_s": [], "end_s": []})
    ids = Alphabet().encode(text)
    labels = np.full(2 * len(ids) + 1, BLANK)  # a blank before, between and after the characters
    labels[1::2] = ids
    may_skip = np.zeros(len(labels), bool)  # paths may skip the blank between two different characters
    may_skip[3::2] = ids[1:] != ids[:-1]
    emitted = log_probabilities[:, labels]  # (T', 2 S + 1)
    score = np.full(len(labels), -np.inf)
    score[:2] = emitted[0, :2]
    steps = np.zeros(emitted.shape, np.int8)
    """Number of labels from each output's predecessor to it"""
    for output in range(1, outputs):
        ways = np.full((3, len(labels)), -np.inf)
        ways[0] = score
        ways[1, 1:] = score[:-1]
        ways[2, 2:] = np.where(may_skip[2:], score[:-2], -np.inf)
        steps[output] = ways.argmax(0)
        score = ways.max(0) + emitted[output]
    place = len(labels) - 1 - int(score[-2] > score[-1])
    path = np.empty(outputs, np.int64)
    for output in reversed(range(outputs)):
        path[output] = place
        place -= int(steps[output, place])
    spans = [np.flatnonzero(path == 2 * index + 1)[[0, -1]] for index in range(len(ids))]
    starts, ends = np.array(spans, np.float64).T
    ends += 1
    return pd.DataFrame({"character": list(text), "start_s": starts / outputs_per_s, "end_s": ends / outputs_per_s})


class ErrorRates:
    """Character and word error rates, in total, by speaker and by accent; its size does not grow with recordings."""

    def __init__(self):
        self._counts: dict[tuple[str, str], list[int]] = {}
        """By (group, name): recordings, wrong characters, characters, wrong words, words"""

    def add(self, utterance: Utterance, heard: str, wave: np.ndarray, is_cut_off: bool = False) -> None:
        """Compare the text heard in a wave float32 (n,) with its transcript, in the alphabet's characters.

        Raises:
            DataError: the alphabet cannot write the transcript, or it cannot be what is said in the wave.
        """
        import jiwer

        said = transcript(utterance, Alphabet(), without_punctuation=True)
        refuse_mismatch(replace(utterance, text=said), wave, is_cut_off)
        counts = [1]
        for compared in (jiwer.process_characters(said, heard), jiwer.process_words(said, heard)):
            wrong = compared.substitutions + compared.deletions
            counts += [wrong + compared.insertions, wrong + compared.hits]
        for key in (("total", ""), ("speaker", utterance.speaker), ("accent", utterance.accent)):
            old = self._counts.setdefault(key, [0] * 5)
            old[:] = (before + more for before, more in zip(old, counts, strict=True))

    def rows(self) -> list[dict[str, str | int | float]]:
        """The total, then accents and speakers if there are several, most errors first; "" stands for unnamed ones.

        >>> rates = ErrorRates()
        >>> rates.add(Utterance((), "One, two.", "anna"), "one too", np.ones(16_000))
        >>> rates.rows()
        [{'of': 'total', 'name': '', 'recordings': 1, 'cer': 0.14285714285714285, 'wer': 0.5}]
        """
        rows = [
            {"of": of, "name": name, "recordings": count, "cer": wrong_c / all_c, "wer": wrong_w / all_w}
            for (of, name), (count, wrong_c, all_c, wrong_w, all_w) in self._counts.items()
        ]
        many = {of for of in ("accent", "speaker") if sum(row["of"] == of and row["name"] != "" for row in rows) > 1}
        order = ("total", "accent", "speaker")
        kept = [row for row in rows if row["of"] == "total" or row["of"] in many]
        return sorted(kept, key=lambda row: (order.index(row["of"]), -row["cer"]))
