"""When characters were said."""

import itertools

import numpy as np
import pytest

from labkit.data.speech import Alphabet, outputs_needed
from labkit.errors import UserError
from labkit.transcription import align


def spoken(path: str) -> np.ndarray:
    """Log-probabilities (T', V) of a model that is sure of this path, "-" being the blank."""
    given = np.full((len(path), 29), 0.001)
    for place, one in enumerate(path):
        given[place, 0 if one == "-" else Alphabet().encode(one)[0]] = 0.9
    return np.log(given)


def test_each_character_has_its_stretch():
    spans = align(spoken("--aab-b- c-"), "abb c", 25)
    assert spans["character"].tolist() == list("abb c")
    assert (spans["start_s"] * 25).round().tolist() == [2, 4, 6, 8, 9]
    assert (spans["end_s"] * 25).round().tolist() == [4, 5, 7, 9, 10]
    text = "abc " * 100
    assert (align(spoken(text), text, 1)["start_s"]).tolist() == list(range(400))


@pytest.mark.parametrize("text", ["a", "ab", "aa", "aab"])
def test_the_path_is_the_likeliest_of_all_that_write_the_text(text):
    rng = np.random.default_rng(1)
    ids, ab = Alphabet().encode(text), Alphabet().encode("ab")
    for _ in range(10):
        given = np.log(rng.dirichlet(np.ones(29), 6))
        paths = [
            path
            for path in itertools.product([0, *ab], repeat=6)
            if [one for one, _ in itertools.groupby(path) if one] == ids.tolist()
        ]
        best = max(paths, key=lambda path: sum(given[range(6), path]))
        at = [place for place in range(6) if best[place] and (place == 0 or best[place] != best[place - 1])]
        assert (align(given, text, 1)["start_s"]).tolist() == at


def test_nothing_heard_is_no_characters():
    assert align(spoken("---"), "", 25).empty
    assert align(np.empty((0, 29)), "", 25).empty


def test_a_text_longer_than_its_outputs_is_refused():
    assert outputs_needed("aab") == 4
    with pytest.raises(UserError, match="needs 4 outputs, and the audio has 3"):
        align(spoken("aab"), "aab", 25)
    assert "".join(align(spoken("a-ab"), "aab", 25)["character"]) == "aab"
