"""Text to ids, CTC's ids back to text, and how texts are scored."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from labkit.data.speech.utterance import BLANK, ENGLISH, Alphabet, outputs_needed, speech_metrics
from labkit.errors import UserError


def collapse(ids: list[int], alphabet: Alphabet) -> str:
    """CTC's rule, read literally from Graves et al. (2006): merge repeats, then drop blanks."""
    return "".join(alphabet.characters[i - 1] for i, _ in itertools.groupby(ids) if i != BLANK)


def test_the_alphabet_has_the_blank_first_and_28_characters_and_names_others():
    assert len(Alphabet()) == 29
    assert sorted(Alphabet().encode(ENGLISH).tolist()) == list(range(1, 29))
    with pytest.raises(UserError, match="'é'"):
        Alphabet().encode("café")


@given(st.lists(st.tuples(st.lists(st.integers(0, 28), min_size=9, max_size=9), st.integers(0, 9)), min_size=1))
def test_decoding_a_batch_is_ctcs_rule_applied_to_each_row(rows):
    alphabet = Alphabet()
    ids, lengths = np.array([row for row, _ in rows]), np.array([length for _, length in rows])
    texts = [collapse(row[:length], alphabet) for row, length in rows]
    assert alphabet.decode(ids, lengths) == texts
    assert all(outputs_needed(text) <= length for text, length in zip(texts, lengths, strict=True))


def test_error_rates_count_over_all_utterances_together():
    # one wrong character of 17 and one wrong word of 4: each utterance counts by its length
    scores = speech_metrics(["one", "two three four"], ["onx", "two three four"])
    assert scores == {"cer": pytest.approx(1 / 17), "wer": pytest.approx(1 / 4)}
