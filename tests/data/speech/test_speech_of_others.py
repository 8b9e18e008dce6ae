"""Speech as others keep it: their folders, tables, letters and kinds of audio are read, or refused by name."""

import contextlib
import json
import os

import numpy as np
import pytest
import soundfile

from labkit.data.speech import SPLITS, Alphabet, Reader, Segment, Utterance, WaveformUtterances, decode, load_speech
from labkit.errors import DataError

WORDS = ("one", "two", "three", "four", "five", "six")


def buzz(seconds: float, rate_hz: int) -> np.ndarray:
    """A loud tone that is switched on and off, over quiet noise."""
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    tone = sum(np.sin(2 * np.pi * 120 * k * t) / k for k in range(1, 20)) * (np.sin(5 * np.pi * t) > 0)
    return 0.1 * tone + 0.003 * np.random.default_rng(0).standard_normal(len(t))


def texts_of(speech) -> dict[str, list[str]]:
    return {name: sorted(speech.split(name).texts) for name in SPLITS}


def decoded(path, *stretch: float | None, file: Reader | None = None) -> np.ndarray:
    return decode(Utterance((Segment(path, *stretch),), text="a", speaker=""), file)[0]


@pytest.mark.parametrize(
    ("form", "subtype", "rate_hz"),
    [
        ("OGG", "VORBIS", 16_000),
        ("OGG", "VORBIS", 44_100),
        ("OGG", "OPUS", 48_000),
        ("MP3", "MPEG_LAYER_III", 44_100),
        ("FLAC", "PCM_16", 22_050),
        ("WAV", "GSM610", 8_000),
        ("WAV", "G721_32", 8_000),
        ("WAV", "PCM_16", 11_025),
    ],
)
def test_a_stretch_has_the_samples_of_the_whole_file_also_where_that_stays_open(
    tmp_path, monkeypatch, form, subtype, rate_hz
):
    path = tmp_path / f"a.{form.lower()}"
    soundfile.write(path, buzz(4, rate_hz), rate_hz, format=form, subtype=subtype)
    whole, expected = decoded(path), []
    stretches = [*((start_s, 0.2) for start_s in (0.0, 1.003, 3.5, 3.75, 0.5, 2.0)), (1.0, None), (3.75, None)]
    for start_s, duration_s in stretches:
        part, first = decoded(path, start_s, duration_s), round(start_s * 16_000)
        assert len(part) == (3_200 if duration_s else len(whole) - first)
        # an MP3's decoder rounds differently after a jump
        np.testing.assert_allclose(part, whole[first : first + len(part)], atol=1e-6)
        expected.append(part)
    opened, open_file = [], soundfile.SoundFile
    monkeypatch.setattr(soundfile, "SoundFile", lambda *given: opened.append(given) or open_file(*given))
    with contextlib.closing(Reader()) as file:
        for stretch, samples in zip(stretches[:-1], expected, strict=False):
            # Opus' decoder, too, rounds differently after a jump: a sample in thousands, in its last bit
            atol = 1e-7 if subtype == "OPUS" else 0
            np.testing.assert_allclose(decoded(path, *stretch, file=file), samples, atol=atol, rtol=0)
        with pytest.raises(DataError):
            decoded(path, 9.0, 0.2, file=file)
    again = {"MPEG_LAYER_III": 8, "VORBIS": 3, "GSM610": 3, "G721_32": 3}  # each time, or for each jump back
    assert len(opened) == again.get(subtype, 1)


@pytest.mark.parametrize("mode", ["VARIABLE", "CONSTANT"])
def test_an_mp3_that_libsndfile_ends_early_is_refused(tmp_path, mode):
    inlet, outlet = os.pipe()  # into which no table of contents is written
    form = {"format": "MP3", "subtype": "MPEG_LAYER_III", "bitrate_mode": mode, "compression_level": 0.5}
    with soundfile.SoundFile(outlet, "w", 16_000, 1, **form) as file:
        file.write(np.append(0.3 * np.random.default_rng(0).standard_normal(16_000), 0.01 * buzz(4, 16_000)))
    (tmp_path / "a.mp3").write_bytes(os.read(inlet, 10**6))
    os.close(inlet)
    if mode == "CONSTANT":
        assert len(decoded(tmp_path / "a.mp3")) >= 80_000
    else:
        with pytest.raises(DataError, match=r"variable bit rate .* of 5\.\d s only [123]\.\d can be read"):
            decoded(tmp_path / "a.mp3")


def test_audio_that_cannot_be_read_is_named_with_the_way_on(tmp_path):
    path = tmp_path / "a.flac"
    soundfile.write(path, buzz(1, 16_000), 16_000)
    data = bytearray(path.read_bytes())
    data[21:26] = bytes([data[21] & 0xF0, 0, 0, 0, 0])  # the number of samples: 36 bits of the first block
    path.write_bytes(data)
    (tmp_path / "b.m4a").write_bytes(b"\0\0\0\x20ftypM4A \0\0\0\0" + bytes(99))
    (tmp_path / "c.amr").write_bytes(b"#!AMR\n" + bytes(99))
    for name, words in {"a.flac": "does not state its length", "b.m4a": "is MP4 audio", "c.amr": "is AMR"}.items():
        with pytest.raises(DataError, match=words) as caught:
            decoded(tmp_path / name)
        assert f"ffmpeg -i {name}" in caught.value.fix


@pytest.fixture
def write_folder(tmp_path, write_audio):
    """`write({file: text})`: these files, and the audio files a0.wav to a5.wav in the folder of each."""

    def write(files: dict[str, str]):
        for name, text in files.items():
            path = tmp_path / name
            for number in range(6):
                write_audio(path.parent / f"a{number}.wav", seconds=1, seed=number)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


def table(*rows: tuple[str, ...], sign: str = ",") -> str:
    return "".join(sign.join(row) + "\n" for row in rows)


def lines(audio: str, text: str, words=WORDS, **more) -> str:
    rows = ({audio: f"a{number}.wav", text: word} | more for number, word in enumerate(words))
    return "".join(json.dumps(row) + "\n" for row in rows)


SIX = [(f"a{number}.wav", word) for number, word in enumerate(WORDS)]
EACH = {"train": ["one", "two"], "validation": ["three"], "test": ["four"]}
FOLDERS = {
    "an audio folder": {"metadata.csv": table(("file_name", "transcription"), *SIX)},
    "an audio folder with lines": {"metadata.jsonl": lines("file_name", "transcription")},
    "an audio folder of splits": {
        "train/metadata.csv": table(("file_name", "transcription"), *SIX[:2]),
        "validation/metadata.csv": table(("file_name", "transcription"), ("a2.wav", "three")),
        "test/metadata.csv": table(("file_name", "transcription"), ("a3.wav", "four")),
    },
    "names with splits": {
        "train/x": "",
        "dev/x": "",
        "test/x": "",
        "metadata.csv": table(
            ("file_name", "transcription"),
            ("train/a0.wav", "one"),
            ("train/a1.wav", "two"),
            ("dev/a2.wav", "three"),
            ("test/a3.wav", "four"),
        ),
    },
    "NeMo's manifests": {
        "train_manifest.json": lines("audio_filepath", "text", WORDS[:2]),
        "dev_manifest.json": lines("audio_filepath", "text", WORDS[2:3]),
        "test_manifest.json": lines("audio_filepath", "text", WORDS[3:4]),
        "info.json": "{}",
    },
    "DeepSpeech's tables": {
        "train.csv": table(("wav_filename", "wav_filesize", "transcript"), *((a, "1", b) for a, b in SIX[:2])),
        "dev.csv": table(("wav_filename", "wav_filesize", "transcript"), ("a2.wav", "1", "three")),
        "test.csv": table(("wav_filename", "wav_filesize", "transcript"), ("a3.wav", "1", "four")),
    },
    "rows as datasets writes them": {
        "data.jsonl": "".join(
            json.dumps({"audio": {"path": name, "bytes": None}, "sentence": word}) + "\n" for name, word in SIX
        )
    },
    "LJSpeech": {
        "wavs/x": "",
        "metadata.csv": table(*((f"a{n}", "6", word) for n, (_, word) in enumerate(SIX)), sign="|"),
    },
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_folders_of_others_are_read_with_their_splits(write_folder, kind):
    speech = load_speech(str(write_folder(FOLDERS[kind])), on_bad_row="error")
    texts = texts_of(speech)
    if len(FOLDERS[kind]) > 2:
        assert texts == EACH and not speech.info["divided"]
    else:
        assert sorted(word for words in texts.values() for word in words) == sorted(WORDS)


def test_an_odd_row_of_a_table_costs_one_row(write_folder):
    header, *rows = FOLDERS["an audio folder"]["metadata.csv"].splitlines()
    for odd, words in {
        'a0.wav,"one': "quotation mark",
        "a0.wav,one, two": "3 fields",
        "a0.wav,": "'transcription' is ''",
        "a0.wav,one\0": "has '\\\\x00'",
    }.items():
        folder = write_folder({"metadata.csv": "\n".join([header, *rows[:2], odd, *rows[2:]])})
        with pytest.raises(DataError, match=words) as caught:
            load_speech(str(folder), on_bad_row="error")
        assert caught.value.line == 4
        assert load_speech(str(folder), on_bad_row="few").info["skipped"]["rows"] == 1
    twice = {"metadata.csv": table(("file_name", "note", "note", "transcription"), *((a, "", "x", b) for a, b in SIX))}
    assert load_speech(str(write_folder(twice)), on_bad_row="error").info["skipped"]["rows"] == 0
    wrong = twice["metadata.csv"].replace("note,note", "note,transcription")
    with pytest.raises(DataError, match="Two columns are named 'transcription'"):
        load_speech(str(write_folder({"metadata.csv": wrong})))


def test_a_table_with_other_columns_or_separators_is_refused_by_its_first_line(write_folder):
    rows = [("audio", "text"), *SIX]
    semicolons, tabs = table(*rows, sign=";"), table(*rows, sign="\t")
    others = table(("ID", "wav", "wrd"), *(("1", *row) for row in SIX))
    for text in (semicolons, tabs, others, "A" + table(*rows)[1:]):
        folder = write_folder({"a.csv": text})
        with pytest.raises(DataError, match=r"names none of audio_filepath, .* commas separate them in .csv") as caught:
            load_speech(str(folder / "a.csv"), on_bad_row="skip")
        assert (caught.value.line, caught.value.field) == (1, "audio_filepath")
    folder = write_folder({"A.CSV": table(*rows), "A.TSV": tabs, "A.JSONL": lines("audio", "text")})
    for name in ("A.CSV", "A.TSV", "A.JSONL"):
        assert load_speech(str(folder / name), on_bad_row="error").info["skipped"]["rows"] == 0


def test_a_tsv_is_a_folders_manifest_and_other_words_for_a_stretch_are_said(write_folder):
    rows = [("path", "sentence", "start"), *((*row, "0.5") for row in SIX)]
    folder = write_folder({"a.tsv": table(*rows, sign="\t"), "wavs/x": ""})  # which is no LJSpeech
    for path in (folder, folder / "a.tsv"):
        speech = load_speech(str(path), on_bad_row="error")
        assert speech.info["unused"] == {"start; a stretch is offset and duration": len(SIX)}
    (folder / "a.tsv").rename(folder / "a.txt")
    folder = write_folder({"a.jsonl": lines("audio", "text", end=1.5)})
    assert load_speech(str(folder), on_bad_row="error").info["unused"] == {
        "end; a stretch is offset and duration": len(WORDS)
    }


def test_common_voice_of_2026_and_of_2018_is_read_and_punctuation_goes(tmp_path, write_audio):
    columns = ["client_id", "path", "sentence_id", "sentence", "accents", "variant", "locale", "segment"]
    tables = {"train": ["“It’s one,” he said.", "Two: a-b!"], "dev": ["Three?"], "test": ['Say "four"']}
    for name, sentences in (tables | {"other": ["Five"]}).items():
        rows = []
        for number, sentence in enumerate(sentences):
            write_audio(tmp_path / "clips" / f"{name}{number}.mp3", seconds=2, rate_hz=32_000, format="MP3")
            clip = f"{name}{number}{'.mp3' * (name != 'train')}"
            rows.append([f"client-{number}", clip, "s", sentence, "Scottish", "", "en", ""])
        (tmp_path / f"{name}.tsv").write_text(table(columns, *rows, sign="\t"), encoding="utf-8")
    speech = load_speech(str(tmp_path), on_bad_row="error")
    expected = {"train": ["it's one he said", "two a b"], "validation": ["three"], "test": ["say four"]}
    assert texts_of(speech) == expected and speech.split("train").speakers == ["client-0", "client-1"]
    assert speech.info["unused"] == {"rows of other.tsv": 1, "transcripts' punctuation": 4}
    assert not speech.info["divided"]


@pytest.mark.parametrize("splits", [("train", "train", "dev", "test", "unassigned"), ("unassigned",) * 5])
def test_spontaneous_speech_is_read_without_its_tags(tmp_path, write_audio, splits):
    columns = ["client_id", "audio_file", "duration_ms", "prompt", "transcription", "split"]
    rows = []
    for number, split in enumerate((*splits, "train")):
        write_audio(tmp_path / "audios" / f"s{number}.mp3", rate_hz=32_000, format="MP3")
        text = f"[um] {WORDS[number]}, <noise> yes." if number < 5 else ""
        rows.append([f"c{number}", f"s{number}.mp3", "1500", "Why?", text, split if text else ""])
    (tmp_path / "ss-corpus-en.tsv").write_text(table(columns, *rows, sign="\t"))
    speech = load_speech(str(tmp_path), on_bad_row="error")
    unused = speech.info["unused"]
    assert unused["rows without a transcription"] == 1 and unused["transcripts' tags in brackets"] == 5 - (
        "dev" in splits
    )
    texts = texts_of(speech)
    if "dev" in splits:
        assert unused["rows of no split"] == 1
        assert texts == {"train": ["one yes", "two yes"], "validation": ["three yes"], "test": ["four yes"]}
    else:
        assert sum(map(len, texts.values())) == 5


LETTERS = {
    "German": ("Grüße aus Köln", "grüße aus köln", "öüß"),
    "Danish, with marks apart": ("Rødgrød pa\u030a", "rødgrød på", "åø"),
    "Russian": ("Привет, мир!", "привет мир", "вемпирт"),
    "Hindi": ("नमस्ते दुनिया", "नमस्ते दुनिया", "नमसतदुनिया\N{DEVANAGARI SIGN VIRAMA}\N{DEVANAGARI VOWEL SIGN E}"),
    "Turkish": ("İyi günler, ışık", "iyi günler ışık", "üış"),
    "Turkish, its capital I": ("Isparta I\u0307c\u0327i, ILIK ışık", "ısparta içi ılık ışık", "ışç"),
    "Polish": ("Zażółć GĘŚLĄ jaźń", "zażółć gęślą jaźń", "óąćęłńśźż"),
    "Ukrainian": ("П’ять їжаків — Ґанок", "п'ять їжаків ґанок", "авжкнптьяіїґо"),
    "Greek": ("Ο ΣΊΣΥΦΟΣ, φως", "ο σίσυφος φως", "ίςσυφοω"),
    "Chinese": ("你好，世界", "你好 世界", "你好世界"),
}


@pytest.mark.parametrize("language", LETTERS)
def test_the_alphabet_has_the_letters_of_the_transcripts(write_folder, language):
    written, text, own = LETTERS[language]
    folder = write_folder({"m.jsonl": lines("audio", "text", [written] * 6)})
    speech = load_speech(str(folder), on_bad_row="error")
    train = speech.split("train")
    assert {*train.texts} == {text}
    basis = " '" if language in ("Russian", "Hindi", "Chinese", "Ukrainian", "Greek") else Alphabet().characters
    assert speech.alphabet.characters == basis + "".join(sorted(set(own)))
    batch = train.batch([0])
    assert speech.alphabet.decode(np.repeat(batch.tokens.numpy(), 2, axis=1), [0])[0] == ""
    assert "".join(speech.alphabet.characters[token - 1] for token in batch.tokens[0].tolist()) == text
    assert WaveformUtterances(str(folder), "train").alphabet.characters == speech.alphabet.characters


def test_a_foreign_name_leaves_english_its_capital_i(write_folder):
    folder = write_folder({"m.jsonl": lines("audio", "text", ["I see"] * 9 + ["I see Işık"]).replace("a9", "a0")})
    for number in range(6, 9):
        (folder / f"a{number}.wav").write_bytes((folder / "a1.wav").read_bytes())
    texts = texts_of(load_speech(str(folder), on_bad_row="error"))
    assert sorted(text for each in texts.values() for text in each) == ["i see"] * 9 + ["i see işık"]


def test_a_letter_of_one_transcript_in_ten_thousand_is_not_learnt():
    assert Alphabet.of(["café"] + ["one"] * 9_999).characters == Alphabet().characters
    assert Alphabet.of(["café", "olé"] + ["one"] * 9_998).characters == Alphabet().characters + "é"
