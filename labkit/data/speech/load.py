"""`load_speech`: from a name or a path to a prepared speech set, prepared once and then opened."""

from __future__ import annotations

import difflib
from pathlib import Path

from labkit.data.bad_rows import BadRows
from labkit.data.clicks.synthetic import SYNTHETIC
from labkit.data.speech.alphabet import Alphabet
from labkit.data.speech.layouts import (
    is_common_voice,
    is_fsdd,
    is_librispeech,
    read_common_voice,
    read_fsdd,
    read_librispeech,
)
from labkit.data.speech.manifest import SHIPPED, read_manifest, read_shipped
from labkit.data.speech.prepare import prepare_speech
from labkit.data.speech.prepared import FORMAT_VERSION, SpeechSet
from labkit.data.speech.utterance import Source
from labkit.data.store import Progress, file_fingerprint, fingerprint, prepare_once, prepared_root, tree_fingerprint
from labkit.errors import UserError

FRAMES_AN_OUTPUT = 4
"""The preset `tour` writes an output for every four frames; another model passes its own."""

LAYOUTS = (
    "a .jsonl manifest, a folder with one, FSDD's recordings, a LibriSpeech tree, or a Common Voice folder with "
    "clips and tables"
)


def load_speech(
    data: str = SHIPPED,
    *,
    cache_dir: Path | None = None,
    on_bad_row: str = "error",
    progress: Progress | None = None,
    seed: int = 0,
    frames_an_output: int = FRAMES_AN_OUTPUT,
) -> SpeechSet:
    """Open a speech set, preparing it first if that was not done before or its source changed.

    Args:
        data: "shipped" (the corpus that comes with labkit), or the path of a .jsonl manifest or of a folder:
            FSDD's recordings (made into connected digits), a LibriSpeech tree, a Common Voice language.
        cache_dir: where prepared data is kept; default `prepared_root()`.
        on_bad_row: "error" stops at the first bad utterance, "skip" counts and lists them in
            `info["skipped"]`.
        progress: called with the fraction done and a few words.
        seed: of splits by speaker where the source has none, and of FSDD's connected digits.
        frames_an_output: frames for which the model writes one CTC output.

    Raises:
        DataError: the data cannot be used; it says where and why.
        UserError: an unknown name or layout, a full disk.
    """
    root = prepared_root() if cache_dir is None else Path(cache_dir)
    bad = BadRows(on_bad_row)
    source = read_source(data, bad, seed)
    alphabet = Alphabet()
    content = fingerprint(
        format=FORMAT_VERSION,
        name=source.name,
        folder=str(source.folder.resolve()),
        listings=[file_fingerprint(path)["sha256"] for path in source.listings],
        files=tree_fingerprint(source.folder, source.files),
        alphabet=alphabet.characters,
        on_bad_row=on_bad_row,
        punctuation="remove" if source.has_punctuation else "keep",
        seed=seed,
    )
    mark = fingerprint(content=content, frames_an_output=frames_an_output)
    folder = root / "speech" / f"{source.name}-{mark}"

    def build(temporary: Path) -> None:
        prepare_speech(
            temporary,
            source,
            alphabet=alphabet,
            fingerprint=content,
            frames_an_output=frames_an_output,
            seed=seed,
            bad=bad,
            progress=progress or (lambda fraction, text: None),
        )

    return SpeechSet(prepare_once(folder, build))


def read_source(data: str, bad: BadRows, seed: int) -> Source:
    """The utterances of a dataset, recognised by its layout.

    Raises:
        UserError: there is none of that name or path, or its layout is unknown.
    """
    if data == SHIPPED:
        return read_shipped(bad)
    path = Path(data).expanduser()
    if path.is_file():
        return read_manifest(path, bad)
    if not path.is_dir():
        raise _unknown(data)
    # An unpacked archive often has its layout one or two folders down.
    for folder in (path, *sorted(path.glob("*/")), *sorted(path.glob("*/*/"))):
        manifests = sorted(folder.glob("*.jsonl"))
        if len(manifests) == 1:
            return read_manifest(manifests[0], bad)
        if is_fsdd(folder):
            return read_fsdd(folder, seed)
        if is_common_voice(folder):
            return read_common_voice(folder, bad)
        if is_librispeech(folder):
            return read_librispeech(folder, bad)
    raise UserError(
        f"{path} holds no speech in a layout that is known: {LAYOUTS}. Write a manifest, one JSON object a line such "
        'as {"audio_filepath": "a.wav", "text": "stop all jobs", "speaker": "anna"}, and pass its path.'
    )


def _unknown(data: str) -> UserError:
    if data == "fsdd":
        return UserError(
            "The Free Spoken Digit Dataset does not ship with labkit: download it with `labkit data prepare "
            "fsdd-1.0.9`, or pass the path of your own copy's folder `recordings` with --data."
        )
    if data in SYNTHETIC:
        return UserError(f"{data!r} is a click log, not speech: train on it with `labkit train dlrm`.")
    hint = f"Did you mean {SHIPPED!r}? " if difflib.get_close_matches(data, [SHIPPED]) else ""
    return UserError(
        f"{data!r} is neither a file or folder nor the name of a speech set. {hint}The name is {SHIPPED!r}; a path can "
        f"be {LAYOUTS}. `labkit data list` shows every dataset."
    )
