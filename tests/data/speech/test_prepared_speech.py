"""Features, preparing once, batches, and the outputs that speech needs."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import soundfile
import torch
from scipy.signal import resample_poly

from labkit.data.speech import BucketedBatches, ByLength, SpeechSplit, load_speech, read_wave, textbook_loader
from labkit.data.speech.audio import (
    KINDS,
    Voice,
    decode,
    features_of,
    frame_count,
    log_mel,
    log_mel_batch,
    mel_filters,
    normalise_file,
)
from labkit.data.speech.load import prepare_speech
from labkit.data.speech.prepared import fitting_resolution
from labkit.data.speech.sources import SPLITS, Segment, Source, Utterance
from labkit.data.store import BadRows


def utterance(*segments: Segment) -> Utterance:
    return Utterance(segments, "one", "anna")


def tone(hz: float, rate_hz: int, seconds: float = 1.0) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate_hz)) / rate_hz)).astype(np.float32)


def written(path: Path, wave: np.ndarray, rate_hz: int, **options) -> Path:
    soundfile.write(path, wave, rate_hz, **options)
    return path


@pytest.mark.parametrize("rate_hz", [8_000, 44_100, 44_101])
def test_any_rate_is_resampled_to_16_khz_and_stereo_is_mixed_down(tmp_path, rate_hz):
    both = np.stack([2 * tone(1_000, rate_hz), np.zeros(rate_hz, np.float32)], axis=1)
    said = utterance(Segment(written(tmp_path / "tone.flac", both, rate_hz)))
    with mock.patch("scipy.signal.resample_poly", wraps=resample_poly) as resample:
        (wave, _), _ = decode(said), decode(said)
    first, second = (call.kwargs["window"] for call in resample.mock_calls)
    assert first is second  # designing the filter may take longer than using it
    inside = slice(1_000, -1_000)  # the filter has nothing to lean on at the ends
    np.testing.assert_allclose(wave[inside], tone(1_000, 16_000)[inside], atol=0.01)


def test_a_stretch_is_cut_by_offset_and_duration_and_stretches_are_joined(tmp_path):
    wave = np.random.default_rng(0).standard_normal(32_000).astype(np.float32) * 0.1
    path = written(tmp_path / "a.wav", wave, 16_000, subtype="FLOAT")
    parts = Segment(path, 0.5, 0.25, silence_s=0.1), Segment(path, 1.75)
    joined, _ = decode(utterance(*parts))
    np.testing.assert_array_equal(joined, np.concatenate([wave[8_000:12_000], np.zeros(1_600), wave[28_000:]]))
    equal = [Utterance(parts, "one", "anna", split) for split in SPLITS] * 2
    source, bad = Source("twice", equal, tmp_path), BadRows("error")
    meta = prepare_speech(tmp_path, source, "log-mel", 0, bad, lambda *_: None)
    assert [len(meta["splits"][name]["frames"]) for name in SPLITS] == [2, 2, 2]


def test_features_equal_those_of_torchaudio():
    # made once with torchaudio 2.11, MelSpectrogram(16_000, 512, 400, 160, n_mels=80, mel_scale="slaney",
    # norm="slaney", pad_mode="constant"), and equal bit by bit there; another torch may round its FFT differently
    expected = np.load(Path(__file__).with_name("torchaudio_2_11.npz"))
    np.testing.assert_allclose(mel_filters(), expected["filters"], rtol=1e-5, atol=1e-9)
    rng, times = np.random.default_rng(0), np.arange(2_560) / 16_000
    waves = {
        "noise": rng.standard_normal(2_400).astype(np.float32) * 0.1,
        "sweep": (0.3 * np.sin(2 * np.pi * (100 + 20_000 * times) * times)).astype(np.float32),
        "silence": np.zeros(480, np.float32),
        "short": rng.standard_normal(160).astype(np.float32),
    }
    for name, wave in waves.items():
        np.testing.assert_allclose(log_mel([wave])[0], expected[f"{name}, log-mel, raw"], rtol=1e-5, atol=1e-5)
        for kind in KINDS:
            np.testing.assert_allclose(features_of([wave], kind)[0], expected[f"{name}, {kind}"], rtol=1e-5, atol=1e-5)


def test_batched_features_are_those_of_each_utterance_alone():
    rng = np.random.default_rng(0)
    waves = [rng.standard_normal(length).astype(np.float32) * 0.1 for length in (4_000, 25_600, 12_345, 160)]
    for wave, features in zip(waves, log_mel(waves), strict=True):
        assert features.shape == (frame_count(len(wave)), 80)
        np.testing.assert_allclose(features, log_mel_batch([wave])[0], atol=1e-3)


def test_a_speakers_frames_have_mean_zero_and_variance_one_in_each_bin(tmp_path):
    rng = np.random.default_rng(0)
    frames = [40, 60, 50]
    raw = [rng.normal(who, 1 + who, (count, 80)) for who, count in zip((0, 3, 0), frames, strict=True)]
    path = tmp_path / "features.f16"
    path.write_bytes(np.concatenate(raw).astype(np.float16).tobytes())
    normalise_file(path, [("train", "a"), ("train", "b"), ("train", "a")], frames, "log-mel")
    features = np.split(np.fromfile(path, np.float16).reshape(-1, 80).astype(np.float32), np.cumsum(frames)[:-1])
    for speaker in (np.concatenate([features[0], features[2]]), features[1]):
        np.testing.assert_allclose(speaker.mean(0), 0, atol=2e-3)  # half precision keeps three digits
        np.testing.assert_allclose(speaker.std(0), 1, atol=2e-3)
    assert abs(features[0].mean()) > 1e-3  # not each utterance by itself


@pytest.fixture
def manifest(tmp_path, write_audio, write_manifest) -> Path:
    """A set of five utterances, three of them in training."""
    rows = []
    for index, split in enumerate(("train", "train", "validation", "test", "train")):
        write_audio(tmp_path / f"{index}.ogg", 1 + 0.3 * index, seed=index, format="OGG", subtype="OPUS")
        rows.append({"audio": f"{index}.ogg", "text": "stop all jobs" if index else "one", "split": split})
    return write_manifest(*rows, good=False)


def test_a_batch_pads_the_features_of_the_audio_and_the_tokens(manifest):
    speech = load_speech(str(manifest))
    train = speech.split("train")
    assert train.lengths.tolist() == [101, 131, 221]
    batch = train.batch(np.array([2, 0]))
    assert batch.features.shape == (2, 221, 80) and batch.features.dtype == torch.float32
    assert batch.feature_lengths.tolist() == [221, 101]
    assert not batch.features[1, 101:].any()
    np.testing.assert_array_equal(batch.features[1, :101].numpy(), train.features(0))
    assert batch.texts == ["stop all jobs", "one"] and batch.token_lengths.tolist() == [13, 3]
    assert batch.tokens[1].tolist() == speech.alphabet.encode("one").tolist() + [0] * 10
    (raw,) = features_of([read_wave(manifest.parent / "3.ogg")], "log-mel")
    expected = (raw - raw.mean(0)) / raw.std(0).clip(0.1)  # no speaker is named, so it is normalised alone
    # raw log energies reach 14 and are kept in float16, whose 11 bits resolve 0.008 there, before the division
    np.testing.assert_allclose(speech.split("test").features(0), expected, atol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_features_of_each_kind_are_the_same_however_loud_the_recording_is(tmp_path, write_manifest, kind):
    found = []
    for scale in (0.1, 1, 32_768):  # as a sound card's numbers, which some programs keep in float files
        for number in range(3):
            loud = scale * np.random.default_rng(number).standard_normal(16_000)
            soundfile.write(tmp_path / f"{number}.wav", loud, 16_000, subtype="FLOAT")
        rows = [{"audio": f"{each}.wav", "text": "one"} for each in range(3)]
        speech = load_speech(str(write_manifest(*rows, good=False)), features=kind)
        found.append(speech.split("train").features(0))
    np.testing.assert_allclose(found[1].std(0), 1, atol=0.02)  # prepared features are float16
    for other in found:
        # logarithms to 27 in float16 are within 0.008, as are then shares of energies; MFCCs are sums of 80
        np.testing.assert_allclose(other, found[1], atol=0.15)


@pytest.mark.parametrize("kind", ["log-mel", "mel"])
def test_a_bin_in_which_nothing_happens_stays_quiet(kind):
    voice, features = Voice(kind), np.random.default_rng(0).normal(0, 1, (500, 3))
    features[:, 1] = np.log(1e-6) + np.random.default_rng(1).normal(0, 0.01, 500)  # above 4 kHz in telephone speech
    voice.listen(features)
    np.testing.assert_allclose(voice.normalised(features).std(0), [1, 0.1, 1], atol=0.02)


def test_how_deep_silence_lies_below_speech_is_hardly_heard():
    speech = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
    rooms = [np.concatenate([speech, noise * speech]) for noise in (1e-2, 1e-4)]
    quiet, quieter = features_of(rooms, "log-mel")
    assert np.abs(quiet - quieter).max() < 0.2  # 40 dB apart: 9.2 in logarithms of energies


def test_the_second_start_reads_no_audio_and_a_changed_source_or_option_is_prepared_anew(
    manifest, write_audio, monkeypatch
):
    chosen = [load_speech(str(manifest), **options) for options in ({}, {"seed": 1}, {"on_bad_row": "skip"})]
    with monkeypatch.context() as patch:
        patch.setattr("labkit.data.speech.load.decode", None)
        assert load_speech(str(manifest)).fingerprint == chosen[0].fingerprint
    assert load_speech(str(manifest), features="mfcc").split("train").features(0).shape[1] == 40
    manifest.write_text(manifest.read_text().replace('"one"', '"two"'))
    chosen.append(load_speech(str(manifest)))
    assert chosen[-1].split("train").texts[0] == "two"
    write_audio(manifest.parent / "0.ogg", 2.5, seed=9, format="OGG", subtype="OPUS")
    chosen.append(load_speech(str(manifest)))
    assert chosen[-1].split("train").lengths.tolist() == [251, 131, 221]
    assert len({speech.fingerprint for speech in chosen}) == 5
    copied = (
        shutil.copytree(manifest.parent, manifest.parent.parent / "copy", copy_function=shutil.copyfile) / manifest.name
    )
    again = load_speech(str(copied))
    assert again.folder != chosen[-1].folder and again.fingerprint == chosen[-1].fingerprint


LENGTHS = np.random.default_rng(0).integers(50, 400, 1003).astype(np.int32)


def bucketed_rows(batch_size: int, seed: int = 0, epoch: int = 0) -> list[np.ndarray]:
    return BucketedBatches(SimpleNamespace(lengths=LENGTHS), batch_size, seed).rows(epoch)


def test_batches_from_the_middle_of_an_epoch_are_those_of_the_whole():
    batches = BucketedBatches(load_speech("shipped").split("train"), 16, seed=3)
    first, second = list(batches), list(batches)
    assert len(first) == len(batches)
    assert first[0].texts != second[0].texts
    assert [batch.texts for batch in second[2:]] == [batch.texts for batch in batches.at(1, 2)]


def test_a_textbooks_loader_has_the_same_utterances_padded_to_the_longest():
    split = load_speech("shipped").split("test")
    prepared, textbook = list(ByLength(split, 8)), list(textbook_loader("shipped", "test", 8, shuffle=False))
    texts = [sorted(text for batch in batches for text in batch.texts) for batches in (prepared, textbook)]
    assert texts[0] == texts[1]
    (chosen,) = textbook_loader("shipped", "test", 8, shuffle=False, kept=np.array([5, 2]))
    assert chosen.texts == [split.texts[5], split.texts[2]]
    for batch in textbook:
        assert batch.features.shape == (len(batch.texts), int(batch.feature_lengths.max()), 80)
        for features, length in zip(batch.features, batch.feature_lengths, strict=True):
            assert not features[length:].any()
            torch.testing.assert_close(features[:length].mean(0), torch.zeros(80), rtol=0, atol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 16, 1003, 5000])
def test_an_epoch_has_every_utterance_once_in_full_batches_of_its_seed(batch_size):
    batches = bucketed_rows(batch_size)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(LENGTHS)))
    sizes = sorted(len(batch) for batch in batches)
    assert sizes[1:] == [min(batch_size, len(LENGTHS))] * (len(batches) - 1)
    texts = [str([batch.tolist() for batch in bucketed_rows(batch_size, *which)])
             for which in ((0, 0), (0, 0), (0, 1), (1, 0))]  # fmt: skip
    assert texts[0] == texts[1] and len(set(texts)) == 3


def test_buckets_spare_most_of_the_padding_and_do_not_come_in_the_order_of_their_length():
    bucketed = bucketed_rows(16)
    at_random = np.array_split(np.random.default_rng(0).permutation(len(LENGTHS)), len(bucketed))
    padding = [sum((LENGTHS[batch].max() - LENGTHS[batch]).sum() for batch in each) for each in (bucketed, at_random)]
    assert padding[0] < 0.25 * padding[1]
    longest = [int(LENGTHS[batch].max()) for batch in bucketed]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.5


def split_of(*frames: int) -> SpeechSplit:
    """Utterances of "three", which needs six outputs, in so many frames each."""
    return SpeechSplit(np.array(frames, np.int32), ["three"] * len(frames), ["ann"] * len(frames), np.zeros((0, 80)))


@pytest.mark.parametrize(
    ("frames", "strides", "kept", "words"),
    [
        *(([frames] * 10, (2, 2), 10, ()) for frames in (24, 21)),
        *(([frames] * 10, (2, 1), 10, ["too fast"]) for frames in (20, 11)),
        ([10] * 10, (1, 1), 10, ["too fast"]),
        ([40] * 199 + [12], (2, 2), 199, ["1 of 200 training utterances"]),  # one fast talker costs that one alone
        ([40] * 95 + [12] * 5, (2, 1), 100, ["every 40 ms", "every 20 ms"]),  # more than a hundredth make outputs finer
    ],
)
def test_the_coarsest_strides_that_leave_room_for_every_character_are_taken(frames, strides, kept, words):
    found = fitting_resolution(split_of(*frames), (2, 2))
    assert found.strides == strides and all(each in found.words for each in words)
    assert ("too fast" in found.words) == bool(words)
    np.testing.assert_array_equal(found.kept, np.arange(kept))
