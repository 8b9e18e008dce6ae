"""The recogniser: decoding, and where each character was heard."""

import itertools
import json
import math

import numpy as np
import pytest
import soundfile
import torch
from made_recogniser import tiny_model, write_speech_run
from scipy.fft import dct

from labkit.data import BadRows
from labkit.data.speech import ENGLISH, Alphabet, Voice, decode, load_speech, log_mel, outputs_needed, read_source
from labkit.errors import UserError
from labkit.fast import ChannelsLastBlock
from labkit.models import speech as models
from labkit.transcription import Recogniser, Stream, align, newest_recogniser, read_recogniser
from labkit.transcription.decoding import END, WEIGHTS, CharacterModel, beam_search, chosen_weight


def waves(*seconds: float) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(0, 0.1, round(16_000 * each)).astype(np.float32) for each in seconds]


@pytest.mark.parametrize("block", [models.ConvBlock, ChannelsLastBlock])
@pytest.mark.parametrize(("kind", "maps"), [*((kind, ()) for kind in models.KINDS), ("conv", (2, 3))])
def test_the_weights_of_either_kernels_give_what_the_trained_model_gave(tmp_path, kind, maps, block):
    model = tiny_model(kind, maps=maps, block=block)
    recogniser = read_recogniser(write_speech_run(tmp_path, model))
    (features,) = recogniser.features(waves(0.7))
    given = torch.from_numpy(features).unsqueeze(0), torch.tensor([len(features)])
    with torch.inference_mode():
        expected = model(*given)[0][0].numpy()
    (heard,) = recogniser.hear(waves(0.7))
    np.testing.assert_allclose(heard.log_probabilities, expected, atol=1e-4)  # other orders of fp32 sums


def test_a_recogniser_writes_in_the_alphabet_of_its_training(tmp_path):
    run = write_speech_run(tmp_path, alphabet=" 'абв")
    assert read_recogniser(run).alphabet.characters == " 'абв"
    assert read_recogniser(write_speech_run(tmp_path)).alphabet.characters == ENGLISH


def test_batches_change_nothing_and_keep_the_order():
    recogniser, given = Recogniser(tiny_model(models.KINDS[-1])), waves(0.3, 9.0, 0.31, 25.0, 4.0)
    together = recogniser.hear(given)
    voice = Voice("log-mel")
    features = recogniser.features(given, voice)
    for each, own in zip(together, features, strict=True):
        with torch.inference_mode():
            alone = recogniser.model(torch.from_numpy(own).unsqueeze(0), torch.tensor([len(own)]))[0][0]
        np.testing.assert_allclose(each.log_probabilities, alone.numpy(), atol=1e-4)


def test_chunks_give_the_text_of_the_whole_piece_by_piece():
    recogniser = Recogniser(tiny_model("lstm", (2,)))
    (wave,) = waves(2.0)
    (heard,), pieces = recogniser.hear([wave]), []
    streamed = recogniser.hear_in_chunks(recogniser.features([wave])[0], pieces.append)
    assert "".join(pieces) == streamed.text == heard.text and len(pieces) > 3


def test_a_speakers_recordings_are_normalised_as_in_training(tmp_path):
    lines = []
    for number, wave in enumerate(waves(0.6, 0.9, 1.2, 0.7, 0.8, 1.1)):
        soundfile.write(tmp_path / f"{number}.wav", wave * (1 + number), 16_000)
        of = {"speaker": "anna", "split": "test"}
        if number >= 4:
            of = {"speaker": f"s{number}", "split": ("train", "validation")[number - 4]}
        lines.append(json.dumps({"audio": f"{number}.wav", "text": "one", **of}))
    (tmp_path / "manifest.jsonl").write_text("\n".join(lines))
    utterances = read_source(str(tmp_path), BadRows("error"), 0).utterances
    features = Recogniser(tiny_model()).features([decode(each)[0] for each in utterances[:4]])
    split = load_speech(str(tmp_path)).split("test")
    for index, each in enumerate(features):
        np.testing.assert_allclose(each, split.features(index), atol=0.02)  # prepared features are float16


def test_a_voice_learns_from_what_it_hears():
    first, second = waves(1.0, 0.5)
    recogniser, voice = Recogniser(tiny_model()), Voice("log-mel")
    recogniser.features([first], voice)
    (later,) = recogniser.features([second], voice)
    np.testing.assert_allclose(later, recogniser.features([first, second])[1], atol=1e-5)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({"job": "dlrm"}, "trains dlrm, not a recogniser"),
        ({"saves": False}, "no checkpoint of its best weights"),
        ({"status": None}, "still training"),
        ({"status": "interrupted"}, "--resume"),
    ],
)
def test_a_run_without_a_recogniser_says_why(tmp_path, run, words):
    folder = write_speech_run(tmp_path, **run)
    with pytest.raises(UserError, match=words):
        read_recogniser(folder)
    with pytest.raises(UserError, match="has no finished speech run"):
        newest_recogniser(tmp_path)
    with pytest.raises(UserError, match="not a run folder"):
        read_recogniser(tmp_path)
    good = write_speech_run(tmp_path)
    write_speech_run(tmp_path, status="failed")
    assert newest_recogniser(tmp_path) == good


@pytest.mark.parametrize(("kind", "bins"), [("log-mel", 80), ("mel", 80), ("mfcc", 40)])
def test_a_recogniser_hears_the_features_that_it_was_trained_on(tmp_path, kind, bins):
    run = write_speech_run(tmp_path, tiny_model(mel_bins=bins), features=kind)
    wave = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
    energies = np.exp(log_mel([wave])[0])
    logarithms = np.log(energies + 0.01 * energies.mean(0))
    expected = {"log-mel": logarithms, "mel": np.exp(logarithms), "mfcc": dct(logarithms, norm="ortho")[:, :40]}[kind]
    (features,) = read_recogniser(run).features([wave])
    np.testing.assert_allclose(features, (expected - expected.mean(0)) / expected.std(0), atol=1e-3)
    assert read_recogniser(run).hear([wave])[0].log_probabilities.shape[1] == 29


TOLERANCE = 1e-4
"""In log-probabilities: the same products, summed in another order in fp32"""


def streamed(model, features: torch.Tensor, chunk: int) -> torch.Tensor:
    stream = Stream(model)
    parts = [stream.push(part) for part in features.split(chunk)]
    return torch.cat([*parts, stream.push(features[:0], is_last=True)])


@torch.inference_mode()
def whole(model, features: torch.Tensor) -> torch.Tensor:
    return model(features.unsqueeze(0), torch.tensor([len(features)]))[0][0]


@pytest.mark.parametrize("chunk", [1, 7, 50])
@pytest.mark.parametrize(
    ("kind", "strides", "shape"),
    [
        ("lstm", (2,), {"kernel": 11}),
        ("lstm", (2, 2), {"kernel": 5}),
        ("conv", (2, 2), {"kernel": 7}),
        ("conv", (2, 1, 1), {"kernel": 7, "maps": (2, 3, 4)}),
        ("lstm", (2, 2), {"maps": (2, 3), "block": ChannelsLastBlock}),
    ],
)
def test_any_chunks_give_what_the_whole_gives(kind, strides, shape, chunk):
    model = tiny_model(kind, strides, **shape)
    for frames in (1, 2, 3, 8, 49, 50, 51, 130):
        features = torch.randn(frames, 80, generator=torch.Generator().manual_seed(frames))
        torch.testing.assert_close(streamed(model, features, chunk), whole(model, features), atol=TOLERANCE, rtol=0)


def test_outputs_come_before_the_end_and_a_model_that_hears_backwards_has_none():
    stream = Stream(tiny_model("lstm", (2,), kernel=11))
    heard = stream.push(torch.randn(50, 80))
    assert len(heard) == 23, "all but those that see beyond: (50 + 5 - 11) // 2 + 1"
    with pytest.raises(UserError, match="whole"):
        Stream(tiny_model(models.KINDS[-1]))


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
    assert align(spoken("---"), "", 25).empty and align(np.empty((0, 29)), "", 25).empty
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


def test_a_text_longer_than_its_outputs_is_refused():
    assert outputs_needed("aab") == 4
    with pytest.raises(UserError, match="needs 4 outputs, and the audio has 3"):
        align(spoken("aab"), "aab", 25)
    assert "".join(align(spoken("a-ab"), "aab", 25)["character"]) == "aab"
