"""How wrong transcripts are: character and word error rates in total, by speaker and by accent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from labkit.data.speech import Alphabet, Utterance, refuse_mismatch, transcript


class ErrorRates:
    """Counts of errors that do not grow with the recordings."""

    def __init__(self):
        self._counts: dict[tuple[str, str], list[int]] = {}
        """(what, which): recordings, wrong characters, characters, wrong words, words"""

    def add(self, utterance: Utterance, heard: str, wave: np.ndarray, is_cut_off: bool = False) -> None:
        """Compare what was heard in a wave float32 (n,) with its transcript, in the alphabet's characters.

        Raises:
            DataError: no recogniser could be scored on it: the alphabet cannot write the transcript, or the wave cannot
                have such words.
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
        """The total, then accents and speakers where there are several, most errors first; "" is whose nobody gave.

        >>> rates = ErrorRates()
        >>> rates.add(Utterance((), "One, two.", "anna"), "one too", np.ones(16_000))
        >>> rates.rows()
        [{'of': 'total', 'name': '', 'recordings': 1, 'cer': 0.14285714285714285, 'wer': 0.5}]
        """
        rows = [
            {
                "of": of,
                "name": name,
                "recordings": counts[0],
                "cer": counts[1] / counts[2],
                "wer": counts[3] / counts[4],
            }
            for (of, name), counts in self._counts.items()
        ]
        many = {of for of in ("accent", "speaker") if sum(row["of"] == of and row["name"] != "" for row in rows) > 1}
        order = ("total", "accent", "speaker")
        kept = [row for row in rows if row["of"] == "total" or row["of"] in many]
        return sorted(kept, key=lambda row: (order.index(row["of"]), -row["cer"]))
