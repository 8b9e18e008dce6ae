"""The recorder: what arrives is taken or told of; and a voice from a browser's microphone to a transcript."""

import numpy as np
import pytest
import soundfile
import torch
from axe_playwright_python.sync_playwright import Axe
from jupyter_lab import wait_for
from scipy.signal import correlate

from labkit.data.speech import Alphabet, WaveformUtterances, read_wave, speech_metrics
from labkit.data.speech.prepared import padded
from labkit.errors import UserError
from labkit.jobs import get_preset
from labkit.jobs.speech import loss_of
from labkit.models import SpeechConfig, SpeechModel
from labkit_course.apparatus import Recorder

SAID, BY_HEART = 5, range(0, 20, 5)
"""The utterance of the validation split that is spoken into the microphone, and those that a model learns by heart"""


def tone(seconds: float, rate_hz: int) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate_hz)) / rate_hz)).astype(np.float32)


def sent(content: dict, data: bytes, recorder: Recorder | None = None) -> Recorder:
    """A recorder to which a browser sent this."""
    recorder = recorder or Recorder()
    recorder._handle_custom_msg(content, [memoryview(data)])
    return recorder


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 44_100, 48_000])
def test_samples_of_any_rate_become_float32_at_16_khz_and_observers_are_told(rate_hz):
    recorder, seen = Recorder(), []
    assert recorder.wave is None
    recorder.observe(lambda change: seen.append(change.new), "wave")
    for _ in range(2):  # the same length twice, too
        sent({"rate_hz": rate_hz}, tone(1.0, rate_hz).tobytes(), recorder)
    assert len(seen) == 2 and seen[1] is recorder.wave and recorder.wave.dtype == np.float32
    middle = slice(500, -500)  # the filter rings at both ends
    np.testing.assert_allclose(recorder.wave[middle], tone(1.0, 16_000)[middle], atol=0.01)
    assert "1.00 s, 16,000 samples at 16 kHz" in recorder.status
    torch.from_numpy(recorder.wave).add_(0)  # may be written


@pytest.mark.parametrize(
    ("wave", "words"),
    [
        (tone(0.1, 48_000), "0.10 s is too short for a word. Press Record, speak"),
        (tone(0.0, 48_000), "0.00 s is too short"),
        (tone(21.0, 48_000), "21.0 s is too long, 20 s are the most"),
        (np.zeros(48_000, np.float32), "is silent: every sample is 0. Switch the microphone on"),
        (np.full(48_000, np.nan, np.float32), "samples that are not numbers. Record it again"),
    ],
)
def test_what_cannot_be_used_is_told_and_leaves_what_is_there(wave, words):
    recorder = sent({"rate_hz": 48_000}, tone(1.0, 48_000).tobytes())
    before = recorder.wave
    sent({"rate_hz": 48_000}, wave.tobytes(), recorder)
    assert words in recorder.status and recorder.wave is before


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_a_chosen_file_is_the_wave_that_read_wave_reads(tmp_path, suffix):
    path = tmp_path / f"me.{suffix}"
    soundfile.write(path, np.stack([tone(1.0, 44_100), np.zeros(44_100)], 1), 44_100)
    recorder = sent({"file": path.name}, path.read_bytes())
    assert recorder.status.startswith(f"me.{suffix} is here: 1.")
    np.testing.assert_array_equal(recorder.wave, read_wave(path))
    assert np.abs(recorder.wave[4000:12_000]).max() == pytest.approx(0.25, abs=0.02)  # the mean of both channels


def test_a_file_that_is_no_audio_is_told_without_the_folder_that_it_was_read_from(tmp_path):
    recorder = sent({"file": "notes.wav"}, b"no audio at all")
    assert recorder.status.startswith("The audio file notes.wav cannot be decoded") and recorder.wave is None
    assert "WAV, FLAC" in sent({"file": "notes.raw"}, b"").status
    soundfile.write(tmp_path / "nan.wav", np.full(16_000, np.nan), 16_000, subtype="FLOAT")
    assert "NaN" in sent({"file": "nan.wav"}, (tmp_path / "nan.wav").read_bytes()).status
    with pytest.raises(UserError, match=r"me\.wav: There is no such file"):
        read_wave(tmp_path / "me.wav")


HEARS = """
from pathlib import Path
import ipywidgets, numpy as np, torch
from labkit.data.speech import Alphabet, log_mel_batch
from labkit_course.apparatus import Recorder

model, recorder, read = torch.load("model.pt", weights_only=False).eval(), Recorder(), ipywidgets.HTML()
recorder.longest_s = 5.0


def recognise(change):
    np.save("arriving.npy", change.new)
    Path("arriving.npy").replace("arrived.npy")  # which is read meanwhile
    loud = np.flatnonzero(np.abs(change.new) > 0.05 * np.abs(change.new).max())
    (features,) = log_mel_batch([change.new[max(loud[0] - 1600, 0) : loud[-1] + 1600]])
    features = torch.from_numpy((features - features.mean(0)) / (features.std(0) + 0.1))[None]
    with torch.inference_mode():
        written, lengths = model(features, torch.tensor([features.shape[1]]))
    read.value = f"It reads: <b id='read'>{Alphabet().decode(written.argmax(2), lengths)[0]}</b>"


recorder.observe(recognise, "wave")
ipywidgets.VBox([recorder, read])
"""
LEVEL = "document.querySelector('.labkit-recorder meter').value"
REFUSED = {
    "NotAllowedError": "The microphone was refused. Allow it",
    "NotFoundError": "There is no microphone. Connect one",
    "NotReadableError": "The microphone cannot be read",
    "OtherError": "The microphone cannot be used: OtherError, why. Or choose an audio file.",
}


@pytest.fixture(scope="module")
def utterances() -> WaveformUtterances:
    return WaveformUtterances("shipped", "validation")


@pytest.fixture(scope="module")
def spoken(utterances, tmp_path_factory):
    """The file that the browser takes for a microphone: an utterance, a second of silence before and after."""
    path, silence = tmp_path_factory.mktemp("spoken") / "spoken.wav", np.zeros(16_000, np.float32)
    soundfile.write(path, np.concatenate([silence, utterances.waves[SAID], silence]), 16_000, subtype="PCM_16")
    return path


@pytest.fixture(scope="module")
def browser_options(spoken) -> list[str]:
    fake = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    return [*fake, f"--use-file-for-fake-audio-capture={spoken}%noloop"]


@pytest.fixture(scope="module")
def page(lab, utterances):
    """A notebook with a recorder, and a model that knows some utterances by heart."""
    torch.manual_seed(0)
    model = SpeechModel(SpeechConfig(vocabulary=len(Alphabet()), **get_preset("speech", "tour").model))
    optimizer, batch = torch.optim.Adam(model.parameters(), lr=4e-3), padded([utterances[each] for each in BY_HEART])
    for _ in range(60):
        loss_of(model, batch, "cpu").backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()
    torch.save(model, lab.folder / "model.pt")
    page = lab.run("recorder.ipynb", HEARS, shows=".labkit-recorder meter")
    yield page
    page.context.close()


@pytest.mark.slow
@pytest.mark.quiet  # a browser that lacks cores loses sound
@pytest.mark.timeout(600)
def test_what_is_said_into_the_microphone_arrives_and_its_transcript_appears(page, lab, utterances, spoken):
    record = page.get_by_role("group", name="Voice recorder").get_by_role("button").first
    assert record.inner_text() == "Record" and page.get_by_role("button", name="Play").is_disabled()
    record.press("Enter")
    page.get_by_text("Recording, for 5 s at most").wait_for(timeout=60_000)
    wait_for(page, f"{LEVEL} > 0.3")
    page.locator("#read").wait_for(timeout=60_000)  # it stopped by itself
    assert record.inner_text() == "Record" and page.evaluate(LEVEL) == 0
    arrived, fed = np.load(lab.folder / "arrived.npy"), soundfile.read(spoken, dtype="float32")[0]
    assert arrived.dtype == np.float32 and len(arrived) / 16_000 == pytest.approx(5, abs=0.1)
    alike = np.abs(correlate(arrived, fed)).max() / np.linalg.norm(arrived) / np.linalg.norm(fed)
    assert alike > 0.9, "as it was fed, but for where it begins and what resampling takes"
    errors = speech_metrics([utterances.texts[SAID]], [page.locator("#read").inner_text()])
    assert errors["cer"] < 0.4, "of another utterance more than half of the characters would be wrong"

    played = "function () { window.played = this.buffer.duration; }"
    page.evaluate(f"() => {{ AudioBufferSourceNode.prototype.start = {played}; }}")
    page.get_by_role("button", name="Play").press("Enter")
    assert page.evaluate("window.played") == pytest.approx(len(arrived) / 16_000)
    record.press("Enter")
    wait_for(page, f"{LEVEL} > 0.3")
    record.press("Space")  # it says Stop
    wait_for(page, lambda: len(np.load(lab.folder / "arrived.npy")) < 4.5 * 16_000)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_a_microphone_it_says_what_to_do_and_takes_a_file(page, lab, spoken):
    record = page.get_by_role("group", name="Voice recorder").get_by_role("button").first
    for name, words in REFUSED.items():
        refuse = f"navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('why', {name!r}))"
        page.evaluate(f"() => {{ {refuse} }}")
        record.press("Enter")
        page.get_by_role("status").filter(has_text=words).wait_for(timeout=60_000)
        assert record.inner_text() == "Record"
    page.evaluate("Object.defineProperty(navigator, 'mediaDevices', { value: undefined })")
    record.press("Enter")
    page.get_by_text("only to pages of https or localhost").wait_for(timeout=60_000)
    choose = page.get_by_label("Audio file")
    choose.set_input_files({"name": "long.wav", "mimeType": "audio/wav", "buffer": bytes(8_000_001)})
    page.get_by_text("long.wav has more than 8 MB").wait_for(timeout=60_000)
    choose.set_input_files(spoken)
    page.get_by_text("spoken.wav is here").wait_for(timeout=60_000)
    np.testing.assert_array_equal(np.load(lab.folder / "arrived.npy"), read_wave(spoken))
    found = Axe().run(page, context=".labkit-recorder", options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]})
    assert found.violations_count == 0, found.generate_report()
