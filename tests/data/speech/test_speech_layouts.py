"""Layouts of speech datasets, their splits, the alphabet, and the corpus that ships; bad data is refused or skipped."""

import itertools
import json
import sys
from collections import defaultdict

import numpy as np
import pytest
import soundfile
from hypothesis import given, strategies as st

from labkit.data.speech import BLANK, ENGLISH, Alphabet, load_speech, outputs_needed, speech_metrics
from labkit.data.speech.sources import DIGITS, SPLITS, Utterance, fill_splits, read_fsdd
from labkit.errors import DataError, UserError
from labkit.project import shipped_datasets

WORDS = ("one", "two", "three", "four", "five", "six")


def sentences(speech) -> dict[str, set[str]]:
    return {name: set(speech.split(name).texts) for name in SPLITS}


def test_librispeechs_subsets_are_the_splits_and_one_of_them_is_divided_by_speaker(tmp_path, write_audio):
    for subset, count in {"train-clean-100": 4, "dev-clean": 6, "test-other": 1}.items():
        for speaker in range(count):
            chapter, name = tmp_path / "LibriSpeech" / subset / str(speaker) / "7", f"{speaker}-7-0000"
            write_audio(chapter / f"{name}.flac", seconds=2, seed=speaker)
            said = f"{subset.partition('-')[0].upper()} IT'S {WORDS[speaker].upper()}"
            (chapter / f"{speaker}-7.trans.txt").write_text(f"{name} {said}\n")
    assert sentences(load_speech(str(tmp_path))) == {
        "train": {f"train it's {word}" for word in WORDS[:4]},
        "validation": {f"dev it's {word}" for word in WORDS},
        "test": {"test it's one"},
    }
    speech = load_speech(str(tmp_path / "LibriSpeech" / "dev-clean"))
    speakers = [set(speech.split(name).speakers) for name in SPLITS]
    assert [len(of_split) for of_split in speakers] == [4, 1, 1]
    assert len(set.union(*speakers)) == 6


def test_bad_rows_of_a_common_voice_table_are_refused_with_their_line_or_skipped(tmp_path, write_audio):
    table, lines = tmp_path / "validated.tsv", ["client_id\tpath\tsentence\tage"]
    for number, word in enumerate(WORDS):
        write_audio(tmp_path / "clips" / f"{number}.mp3", seconds=2, rate_hz=32_000, format="MP3")
        lines.append(f"client-{number}\t{number}.mp3\t{word}\ttwenties")
    good = "\n".join([*lines, ""]).encode()
    for old, new in ((b"1.mp3", b"gone.mp3"), (b"two\t", b"tw\xe9\t"), (b"\ttwo\ttwenties", b"")):
        table.write_bytes(good.replace(old, new))
        with pytest.raises(DataError) as caught:
            load_speech(str(tmp_path), on_bad_row="error")
        assert (caught.value.file, caught.value.line) == (table, 3)
        assert load_speech(str(tmp_path), on_bad_row="skip").info["skipped"]["rows"] == 1


def test_a_manifest_of_windows_may_have_marks_inside_and_in_utf_16_is_refused_as_a_whole(write_manifest):
    manifest = write_manifest()
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("\ufeff" + "".join(lines[:3]) + "\ufeff" + "".join(lines[3:]))  # two that were joined
    assert load_speech(str(manifest), on_bad_row="error").info["skipped"]["rows"] == 0
    manifest.write_text("".join(lines), encoding="utf-16")
    with pytest.raises(DataError, match="iconv -f utf-16"):
        load_speech(str(manifest), on_bad_row="skip")


def test_a_manifest_without_splits_is_divided_by_speaker_and_seed(tmp_path, write_audio, write_manifest):
    write_audio(tmp_path / "a.wav")
    rows = [{"audio": "a.wav", "text": "one", "speaker": f"speaker{number % 10}"} for number in range(30)]
    path = str(write_manifest(*rows, good=False))
    divided, *others = ([{*load_speech(path, seed=seed).split(name).speakers} for name in SPLITS] for seed in range(4))
    assert [len(of_split) for of_split in divided] == [8, 1, 1] and load_speech(path).info["divided"]
    assert len(set.union(*divided)) == 10
    assert any(other != divided for other in others)


def test_whose_speaker_nobody_knows_stands_alone_when_splits_are_dealt():
    named = [Utterance((), "one", f"speaker{number}") for number in range(10)] * 9
    for seed in range(9):
        dealt = fill_splits([Utterance((), "one", "")] * 910 + named, seed)
        held_out = [each for each in dealt if each.split != "train"]
        assert 150 < len(held_out) < 350  # two tenths, but whole speakers have nine utterances


def test_of_several_datasets_in_a_folder_none_is_chosen(tmp_path, write_audio):
    for split in ("dev", "train"):
        write_audio(tmp_path / split / "a.wav")
        (tmp_path / split / "manifest.jsonl").write_text('{"audio": "a.wav", "text": "one", "speaker": null}\n' * 9)
    with pytest.raises(DataError, match="This folder has 2 datasets: dev, train"):
        load_speech(str(tmp_path))
    assert {*load_speech(str(tmp_path / "dev")).split("train").speakers} == {""}


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names of files are Unicode there")
def test_a_folder_may_have_a_name_that_is_not_utf8(tmp_path, write_manifest):
    write_manifest()
    folder = tmp_path.rename(tmp_path.with_name("caf\udce9"))
    assert len(load_speech(str(folder / "utterances.jsonl"), cache_dir=folder / "cache").split("train")) == 4


def test_connected_digits_are_of_one_speaker_and_split_and_fixed_by_the_seed(tmp_path):
    for name in itertools.product(range(10), ("anna", "ben"), range(15)):  # what is in the files is not looked at
        (tmp_path / "{}_{}_{}.wav".format(*name)).touch()
    utterances = read_fsdd(tmp_path, seed=0).utterances
    assert {len(each.segments) for each in utterances} == {1, 2, 3, 4, 5, 6}
    used = {split: set() for split in SPLITS}
    for each in utterances:
        digits, speakers, _ = zip(*(segment.audio.stem.split("_") for segment in each.segments), strict=True)
        assert each.text.split() == [DIGITS[int(digit)] for digit in digits] and {*speakers} == {each.speaker}
        used[each.split] |= {segment.audio for segment in each.segments}
    assert used["test"] == set(tmp_path.glob("*_[0-4].wav"))
    assert not used["train"] & used["validation"]
    assert len(used["train"]) + len(used["validation"]) + len(used["test"]) == 300
    texts = [[each.text for each in read_fsdd(tmp_path, seed).utterances] for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    for path in used["test"]:
        path.unlink()
    with pytest.raises(DataError, match="no recordings of the test split"):
        load_speech(str(tmp_path))


def test_real_recordings_become_connected_digits(shared_data, tmp_path):
    for path in (shared_data / "fsdd" / "recordings").glob("*_[0-9].wav"):  # ten of each digit and speaker do
        (tmp_path / path.name).symlink_to(path)
    speech = load_speech(str(tmp_path))
    test = speech.split("test")
    # A spoken digit takes a fifth of a second to one second and a half, silence included.
    assert 20 < test.lengths.sum() / sum(len(text.split()) for text in test.texts) < 150
    assert speech.info["skipped"]["rows"] == 0


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


FOLDER = shipped_datasets() / "speech"


@pytest.fixture(scope="module")
def lines() -> list[dict]:
    return [json.loads(line) for line in (FOLDER / "manifest.jsonl").read_text().splitlines()]


def test_it_lasts_an_hour_weighs_at_most_14_mb_and_its_card_says_so(lines):
    assert sum(line["duration"] for line in lines) > 3600
    size_bytes = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert size_bytes <= 14e6
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for split in ("train", "validation", "test"):
        of_split = [line for line in lines if line["split"] == split]
        minutes = sum(line["duration"] for line in of_split) / 60
        voices = len({line["speaker"] for line in of_split})
        assert f"| {split} | {len(of_split):,} | {voices} | {minutes:.1f} |" in card
    words = {word for line in lines for word in line["text"].split()}
    assert f"{len(words)} words" in card and f"{size_bytes / 1e6:.1f} MB" in card


def test_voices_are_of_one_split_and_words_of_a_small_grammar(lines):
    voices, variants, words = defaultdict(set), defaultdict(set), defaultdict(set)
    for line in lines:
        # A speaker is named SPLIT-NUMBER-VARIANT; the variant is what makes espeak-ng sound like another person.
        split, _, variant = line["speaker"].split("-")
        voices[line["split"]].add(line["speaker"])
        variants[variant].add(split)
        words[line["split"]] |= set(line["text"].split())
    assert all(len(of_variant) == 1 for of_variant in variants.values())
    train, validation, test = voices["train"], voices["validation"], voices["test"]
    assert len(train | validation | test) == len(train) + len(validation) + len(test) >= 24
    assert len(validation) >= 3 and len(test) >= 4
    assert words["test"] | words["validation"] <= words["train"]
    assert {*DIGITS, "set", "start", "stop", "run", "jobs"} <= words["train"] and len(words["train"]) <= 60


def test_utterances_lie_one_after_the_other_in_their_files_and_are_cut_between_words(lines):
    files = defaultdict(list)
    for line in lines:
        files[line["audio_filepath"]].append(line)
    assert {FOLDER / name for name in files} == set((FOLDER / "audio").iterdir())
    for number, (name, of_file) in enumerate(files.items()):
        info = soundfile.info(FOLDER / name)
        assert (info.samplerate, info.channels, info.subtype) == (16_000, 1, "OPUS")
        ends = [line["offset"] + line["duration"] for line in of_file]
        assert all(end < line["offset"] for end, line in zip(ends, of_file[1:], strict=False))
        assert ends[-1] <= info.duration
        if number % 8:
            continue
        wave, _ = soundfile.read(FOLDER / name, dtype="float32")
        for line in of_file:  # utterances begin and end with at least 60 ms without speech
            cut = wave[round(line["offset"] * 16_000) :][: round(line["duration"] * 16_000)]
            loud = np.sqrt(np.mean(cut**2))
            assert max(np.sqrt(np.mean(end**2)) for end in (cut[:480], cut[-480:])) < 0.3 * loud, line


def write_cut(path, seconds, size_bytes, **options):
    soundfile.write(path, np.random.default_rng(0).standard_normal(16_000 * seconds) * 0.1, 16_000, **options)
    path.write_bytes(path.read_bytes()[:size_bytes])


# What is on line 7 of the manifest, and the field that the error names.
LINES = {
    "not JSON": ('{"audio": ', None),
    "not an object": ("[1, 2]", None),
    "no audio key": ({"text": "one"}, "audio_filepath"),
    "no text key": ({"audio": "0.wav"}, "text"),
    "text is no text": ({"audio": "0.wav", "sentence": 12}, "sentence"),
    "blank text": ({"audio": "0.wav", "text": " "}, "text"),
    "outside the alphabet": ({"path": "0.wav", "transcript": "café 2"}, "transcript"),
    "longer than its frames": ({"audio": "0.wav", "text": "batch " * 60}, "text"),
    "missing file": ({"audio": "none.wav", "text": "one"}, "audio"),
    "wrong sample rate": ({"audio": "0.wav", "text": "one", "sample_rate": 8000}, "sample_rate"),
    "offset past the end": ({"audio": "0.wav", "text": "one", "offset": 9}, "offset"),
    "duration past the end": ({"audio": "0.wav", "text": "one", "duration": 2}, "duration"),
    "negative offset": ({"audio": "0.wav", "text": "one", "offset": -1}, "offset"),
    "duration is text": ({"audio": "0.wav", "text": "one", "duration": "2"}, "duration"),
    "a number of 5,000 digits": ('{"audio": "0.wav", "text": "one", "offset": ' + "9" * 5000 + "}", None),
    "a duration beyond all files": ({"audio": "0.wav", "text": "one", "duration": 1e308}, "duration"),
    "nested too deeply": ("[" * 100_000, None),
    "a surrogate in a name": ({"audio": "\ud800.wav", "text": "one"}, "audio"),
    "a name too long": ({"audio": "a" * 5000, "text": "one"}, "audio"),
    "a surrogate in a speaker": ({"audio": "0.wav", "text": "one", "speaker": "\ud800"}, "text"),
    "Latin-1": ('{"audio": "0.wav", "text": "caf\udce9"}', "text"),
    "UTF-16": ('{"audio": "0.wav", "text": "\udcff\udcfeo"}', "text"),
    "a split in a list": ({"audio": "0.wav", "text": "one", "split": ["train"]}, "split"),
    "unknown split": ({"audio": "0.wav", "text": "one", "split": "exam"}, "split"),
    "a control character": ('{"audio": "0.wav", "text": "one\x07"}', None),
    "an object without a path": ({"audio": {"path": None, "bytes": ""}, "text": "one"}, "audio"),
    "digits": ({"audio": "0.wav", "text": "42 jobs"}, "text"),
}
AUDIO = {
    "0 bytes": (lambda path: path.write_bytes(b""), r"empty \(0 bytes\)"),
    "no samples": (lambda path: soundfile.write(path, np.zeros(0), 16_000), "no samples"),
    "not audio": (lambda path: path.write_bytes(bytes(range(256)) * 8), "cannot be decoded"),
    "NaN": (lambda path: soundfile.write(path, np.full(16_000, np.nan), 16_000, subtype="FLOAT"), "NaN, infinite"),
    "beyond all sound": (lambda path: soundfile.write(path, np.full(9, 1e30), 16_000, subtype="DOUBLE"), "beyond"),
    "silence": (lambda path: soundfile.write(path, np.zeros(16_000), 16_000), "bad.wav is silent"),
    "no sample rate for speech": (lambda path: soundfile.write(path, np.zeros(1_000), 1_000), "1,000 Hz, too low"),
    "a sample rate beyond all cards": (lambda path: soundfile.write(path, np.zeros(9), 2_000_000), "higher than any"),
    "cut off": (lambda path: write_cut(path, 5, 60_000, format="FLAC"), "cannot be decoded|ends after"),
    "cut off, of a kind that plays": (
        lambda path: write_cut(path, 30, 40_000, format="OGG", subtype="OPUS"),
        "is truncated",
    ),
    "eleven minutes": (lambda path: soundfile.write(path, np.zeros(660 * 8_000), 8_000), "lasts 660 s"),
}


def refused_or_skipped(manifest, field: str | None, message: str = "") -> None:
    """The error points at line 7 and says what to do; without that line the rest is loaded."""
    with pytest.raises(DataError, match=message) as caught:
        load_speech(str(manifest), on_bad_row="error")
    assert (caught.value.file, caught.value.line, caught.value.field) == (manifest, 7, field)
    assert "--on-bad-row skip" in caught.value.fix
    speech = load_speech(str(manifest), on_bad_row="skip")
    assert sum(len(speech.split(name)) for name in ("train", "validation", "test")) == 6
    assert [(row["line"], row["field"]) for row in speech.info["skipped"]["first"]] == [(7, field)]


@pytest.mark.parametrize(("line", "field"), LINES.values(), ids=LINES.keys())
def test_a_bad_line_is_refused_or_skipped(write_manifest, line, field):
    refused_or_skipped(write_manifest(line), field)


@pytest.mark.parametrize(("write", "message"), AUDIO.values(), ids=AUDIO.keys())
def test_bad_audio_is_refused_or_skipped(tmp_path, write_manifest, write, message):
    write(tmp_path / "bad.wav")
    refused_or_skipped(write_manifest({"audio_filepath": "bad.wav", "text": "one"}), "audio_filepath", message)


def test_one_bad_utterance_costs_itself_and_one_in_a_hundred_is_the_most(write_audio, write_manifest, tmp_path):
    write_audio(tmp_path / "a.wav")
    good, bad = {"audio": "a.wav", "text": "one"}, [{"audio": "none.wav", "text": "one"}, {"audio": "a.wav"}]
    late = {"audio": "a.wav", "text": "two " * 200}  # seen only when the audio is decoded
    for many, rows in ((100, bad), (197, [*bad, late])):
        with pytest.raises(
            DataError, match=f"{len(rows)} of {many + len(rows)} are bad so far, and at most 1% are skipped"
        ):
            load_speech(str(write_manifest(*[good] * many, *rows, good=False)))
    for many, rows in ((5, [late]), (198, bad)):
        speech = load_speech(str(write_manifest(*[good] * many, *rows, good=False)))
        assert speech.info["skipped"]["rows"] == len(rows)


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_a_split_left_empty_is_refused(tmp_path, write_audio, write_manifest, policy):
    write_audio(tmp_path / "a.wav")
    splits = ("train", "train", "train", "validation", "test")
    rows = [{"audio": "a.wav", "text": "one", "split": split} for split in splits]
    rows[-1]["text"] = "two " * 200  # found too long only when the splits are settled
    message = "CTC outputs" if policy == "error" else "test split has no usable utterance"
    with pytest.raises(DataError, match=message):
        load_speech(str(write_manifest(*rows, good=False)), on_bad_row=policy)


SETS = {
    "an empty manifest": ({"m.jsonl": "\n"}, "no usable utterance"),
    "too few for three splits": ({"m.jsonl": '{"audio": "a.wav", "text": "one"}\n' * 2}, "too few"),
    "common voice without a row": ({"clips/x": "", "train.tsv": "client_id\tpath\tsentence\n"}, "no usable utterance"),
    "librispeech without audio": ({"dev-clean/1/2/1-2.trans.txt": "1-2-0000 HELLO\n"}, r"1-2-0000\.flac"),
    "librispeech without a chapter's transcripts": (
        {"dev/1/2/1-2.trans.txt": "1-2-0 HELLO\n"}
        | dict.fromkeys(("dev/1/2/1-2-0.flac", "test/3/4/3-4-0.flac", "test/3/5/3-5-0.flac"), ""),
        r"test/3/4: The recordings have no \*\.trans\.txt",
    ),
    "no known layout": ({"song.mp3": ""}, "audio_filepath"),
    "rows of shards": ({"m.json": '{"audio": "b.wav", "text": "one", "shard_id": 0}'}, "tar archives"),
    "rows in a bucket": ({"m.json": '{"audio": "s3://speech/a.wav", "text": "one"}'}, "download it"),
    "Kaldi's": ({"wav.scp": ""}, "Kaldi"),
    "Parquet": ({"data/train-0.parquet": ""}, "Parquet"),
    "a tar archive": ({"b.tar": ""}, "unpack"),
    "Arrow": ({"b.arrow": ""}, "Arrow"),
    "TIMIT's": ({"TRAIN/A.TXT": ""}, "a line of a manifest for each utterance"),
}


@pytest.mark.parametrize("kind", SETS)
def test_a_set_that_cannot_be_used_is_refused(tmp_path, write_audio, kind):
    files, words = SETS[kind]
    write_audio(tmp_path / "a.wav")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=words):
        load_speech(str(tmp_path))
    with pytest.raises(UserError):
        load_speech(str(tmp_path), on_bad_row="skip")
    with pytest.raises(UserError, match="This is an audio file"):
        load_speech(str(tmp_path / "a.wav"))


def test_an_unknown_name_or_option_is_refused_with_the_known_ones():
    for data, words in {"shiped": "'shipped'", "fsdd": "data prepare fsdd-1.0.9", "synthetic": "train dlrm"}.items():
        with pytest.raises(UserError, match=words):
            load_speech(data)
    with pytest.raises(UserError, match="choose one of error, few, skip"):
        load_speech(on_bad_row="ignore")
