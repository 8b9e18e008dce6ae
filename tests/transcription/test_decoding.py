"""Beam search against all texts and all their paths; the character model against its formula."""

import itertools
import math

import numpy as np
import pytest

from labkit.data.speech import ENGLISH, Alphabet
from labkit.transcription.decoding import END, WEIGHTS, CharacterModel, beam_search, chosen_weight

LETTERS = "ab"


def outputs(count: int, seed: int, sharpness: float = 1.0, characters: str = LETTERS) -> np.ndarray:
    """Random log-probabilities (count, V)."""
    scores = sharpness * np.random.default_rng(seed).normal(size=(count, len(characters) + 1))
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))


def best_of_all(log_probabilities: np.ndarray, model: CharacterModel | None, weight: float) -> str:
    """The text of the greatest score, by the sum over every path."""
    likely: dict[str, float] = {}
    for path in itertools.product(range(len(LETTERS) + 1), repeat=len(log_probabilities)):
        text = "".join(LETTERS[one - 1] for one, _ in itertools.groupby(path) if one)
        likely[text] = likely.get(text, 0.0) + math.exp(sum(log_probabilities[range(len(path)), path]))

    def score(text: str) -> float:
        told = 0.0
        if model is not None:
            told = sum(model.logs("<" + text[:at])[(LETTERS + END).index(one)] for at, one in enumerate(text + END))
        return math.log(likely[text]) + weight * told

    return max(likely, key=score)


@pytest.mark.parametrize("weight", [0.0, 0.6])
@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_a_wide_beam_finds_the_best_of_all_texts(count, weight):
    model = CharacterModel(["abba", "aab", "b"], LETTERS, order=3) if weight else None
    for seed in range(8):
        given = outputs(count, seed)
        found = beam_search(given, 1000, model, weight, characters=LETTERS, least=0.0)
        assert found == best_of_all(given, model, weight)


def test_a_beam_hears_more_than_the_likeliest_path():
    """The example of Graves et al.: no single path writes "a" as likely as all together."""
    given = np.log([[0.6, 0.4, 1e-9], [0.6, 0.4, 1e-9]])
    (greedy,) = Alphabet(LETTERS).decode(given.argmax(1)[None], np.array([2]))
    assert (greedy, beam_search(given, 4, characters=LETTERS)) == ("", "a")


def test_long_recordings_stay_within_the_numbers_there_are():
    text = beam_search(outputs(3000, seed=0, sharpness=4, characters=ENGLISH), 2)
    assert len(text) > 1000


def test_the_character_models_probabilities_add_up_and_follow_the_formula():
    model = CharacterModel(["ab", "ac"], "abc", order=2)
    for before in ("<", "<a", "ccb", "<ccc"):
        assert sum(map(math.exp, model.logs(before))) == pytest.approx(1)
    # after a: one b, one c, of two kinds; of the six counted characters two are ends, below which all four are alike
    single = (1 + 4 * 0.25) / (6 + 4)
    assert math.exp(model.logs("<a")[1]) == pytest.approx((1 + 2 * single) / (2 + 2))


def test_a_model_of_what_is_said_corrects_what_was_heard():
    model = CharacterModel(["stop all jobs"] * 3)
    ids = Alphabet().encode("stop alb jobs")
    given = np.full((2 * len(ids), 29), 0.001)
    given[::2, 0] = given[np.arange(len(ids)) * 2 + 1, ids] = 0.6
    given[13, Alphabet().encode("l")[0]] = 0.02
    given[15, Alphabet().encode("l")[0]] = 0.35
    given = np.log(given / given.sum(1, keepdims=True))
    assert beam_search(given, 8) == "stop alb jobs"
    assert beam_search(given, 8, model, 0.5) == "stop all jobs"
    weight, cer = chosen_weight([given], ["stop all jobs"], 8, model)
    assert weight in WEIGHTS[1:] and cer == 0
    assert chosen_weight([given], ["stop alb jobs"], 8, model)[0] == 0, "where the model harms, it is left out"
