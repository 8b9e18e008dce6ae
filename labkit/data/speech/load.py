"""`load_speech`: from a name or a path to a prepared speech set, prepared once and then opened."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from labkit.data.bad_rows import BadRows
from labkit.data.speech.layouts import SHIPPED, find_source, read_shipped
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
    content = fingerprint(
        format=FORMAT_VERSION,
        name=source.name,
        folder=str(source.folder.resolve()),
        listings=[file_fingerprint(path) for path in source.listings],
        files=tree_fingerprint(source.folder, source.files),
        on_bad_row=on_bad_row,
        seed=seed,
    )
    mark = fingerprint(content=content, frames_an_output=frames_an_output)
    folder = root / "speech" / f"{source.name}-{mark}"

    told = {"seed": seed, "bad": bad, "progress": progress or (lambda fraction, text: None)}
    build = partial(prepare_speech, source=source, fingerprint=content, frames_an_output=frames_an_output, **told)
    return SpeechSet(prepare_once(folder, build))


def read_source(data: str, bad: BadRows, seed: int) -> Source:
    """The utterances of a dataset, recognised by its layout."""
    if data == SHIPPED:
        return read_shipped(bad)
    path = Path(data).expanduser()
    if not path.exists():
        from labkit.data.catalog import unknown

        raise unknown(data, "speech")
    if found := find_source(path, bad, seed):
        return found
    raise UserError(
        f"{path} holds no speech in a layout that is known: {LAYOUTS}. Write a manifest, one JSON object a line such "
        'as {"audio_filepath": "a.wav", "text": "stop all jobs", "speaker": "anna"}, and pass its path.'
    )
