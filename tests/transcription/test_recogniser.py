"""A recogniser from its run: which runs have one, its weights, batches, voices, and chunks, which change nothing."""

import json

import numpy as np
import pytest
import soundfile
import torch
from made_recogniser import tiny_model, write_speech_run
from scipy.fft import dct

from labkit.data import BadRows
from labkit.data.speech import Voice, decode, load_speech, log_mel, read_source
from labkit.errors import UserError
from labkit.fast import ChannelsLastBlock
from labkit.models import speech as models
from labkit.transcription import Recogniser, Stream, newest_recogniser, read_recogniser


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
    return torch.cat([*parts, stream.finish()])


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
    ],
)
def test_any_chunks_give_what_the_whole_gives(kind, strides, shape, chunk):
    model = tiny_model(kind, strides, **shape)
    for frames in (1, 2, 3, 8, 49, 50, 51, 130):
        features = torch.randn(frames, 80, generator=torch.Generator().manual_seed(frames))
        torch.testing.assert_close(streamed(model, features, chunk), whole(model, features), atol=TOLERANCE, rtol=0)


def test_a_hundred_utterances_of_the_fast_kernels():
    model = tiny_model("lstm", (2, 2), maps=(2, 3), block=ChannelsLastBlock)
    dice = torch.Generator().manual_seed(0)
    for _ in range(100):
        frames, chunk = torch.randint(20, 300, (2,), generator=dice).tolist()
        features = torch.randn(frames, 80, generator=dice)
        torch.testing.assert_close(streamed(model, features, chunk), whole(model, features), atol=TOLERANCE, rtol=0)


def test_outputs_come_before_the_end():
    stream = Stream(tiny_model("lstm", (2,), kernel=11))
    heard = stream.push(torch.randn(50, 80))
    assert len(heard) == 23, "all but those that see beyond: (50 + 5 - 11) // 2 + 1"


def test_a_model_that_hears_backwards_is_refused():
    with pytest.raises(UserError, match="whole"):
        Stream(tiny_model(models.KINDS[-1]))
