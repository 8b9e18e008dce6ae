"""`labkit transcribe`: what a run's recogniser hears in files, folders and pipes."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labkit import UserError, data, errors, hardware, plots, runs, transcription
from labkit.cli.console import Console, print_frame
from labkit.cli.flags import add_command, refuse_unless_positive
from labkit.cli.printing import say

PIPE = "standard input"
MOST_PIPED = 2**30
"""Largest number of bytes from a pipe, which are kept in a file until they are heard"""
BEAM = 16
"""Number of texts kept at a time if only --lm is given"""
NOT_GIVEN = {"total": "", "speaker": "not given", "accent": "not given"}
MOST_ROWS = 20
"""Largest number of printed rows of error rates; --json has all"""
EPILOG = """\
Recordings in one folder count as one speaker's and are normalised together (with --by-file each counts as another's).
So transcribe recordings of one speaker together: of a single short word, the word itself is most of the mean. If
transcripts are known (a .txt next to the audio, a manifest, LibriSpeech, Common Voice), error rates are reported as
well. Files that cannot be used are named and skipped, and the exit status is then 2. With --json, each line is an
object: one per recording, then a summary."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    add = add_command(subparsers, "transcribe", epilog=EPILOG, run=run_transcribe, flags="runs_dir json").add_argument
    words = "audio, folders with audio, manifests; - reads a file from a pipe"
    add("paths", nargs="+", metavar="FILE|FOLDER", help=words)
    words = "the run of the recogniser (default: the newest finished speech run)"
    add("--run", dest="which", metavar="RUN", help=words)
    add("--beam", type=int, metavar="N", help="search N texts at a time with a character model (default: none)")
    words = f"text for that model, or none; alone it turns on --beam {BEAM} (default: the run's training transcripts)"
    add("--lm", metavar="FILE", help=words)
    add("--split", choices=("train", "validation", "test"), help="transcribe this split of a manifest or a dataset")
    add("--by-file", action="store_true", help="each file is another speaker's, not each folder")
    add("--stream", action="store_true", help="hear recordings in half seconds, and write text when it is known")
    add("--align", type=Path, metavar="FILE.html", help="draw the characters of one recording over its spectrogram")


def run_transcribe(args: argparse.Namespace) -> int:
    refuse_unless_positive(beam=args.beam)
    if args.stream and (args.beam or args.lm):
        raise UserError("--stream writes text when it is known, and --beam when all is heard: choose one.")
    if "-" in args.paths and (args.split or args.paths.count("-") > 1):
        raise UserError("- reads one recording from a pipe, which has no splits: give it once, without --split.")

    if args.align and (
        len(args.paths) > 1 or Path(args.paths[0]).is_dir() or Path(args.paths[0]).suffix in transcription.MANIFESTS
    ):
        raise UserError(f"--align {args.align} draws one recording: name one audio file.", field="align")
    which, of = args.which, args.runs_dir
    run = transcription.newest_recogniser(of) if which is None else runs.find_run(which, of)
    recogniser = transcription.read_recogniser(run)
    # models this small lose more by waiting for a second thread than they gain
    with hardware.one_thread(), _ended_as_by_ctrl_c(), tempfile.TemporaryDirectory(prefix="labkit-") as folder:
        return _transcribe(args, recogniser, run, Path(folder))


@contextmanager
def _ended_as_by_ctrl_c() -> Generator[None]:
    """Let a kill or a closed terminal end the block as Ctrl-C does, so that the file of a pipe is removed."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _recordings(
    args: argparse.Namespace, record: runs.RunRecord, folder: Path
) -> Iterator[transcription.Recording | UserError]:
    for path in args.paths:
        if path != "-":
            yield from transcription.find_recordings([Path(path)], args.split, record)
            continue
        with (folder / PIPE).open("wb") as file:
            while (part := sys.stdin.buffer.read(2**20)) and file.tell() < MOST_PIPED:
                file.write(part)
        too_much = UserError(f"{PIPE}: more than 1 GiB: cut it, or name a file.")
        yield too_much if part else transcription.from_file(folder / PIPE, PIPE)


def _transcribe(args: argparse.Namespace, recogniser: transcription.Recogniser, run: Path, folder: Path) -> int:
    import numpy as np

    say(f"recogniser of {run}: {recogniser.quality}", to_stderr=True)
    by_file = args.by_file or recogniser.by_file
    options: dict[str, Any] = {}
    if args.stream:
        transcription.Stream(recogniser.model)  # refuses models that hear backwards
        options["on_more"] = (lambda recording, piece: None) if args.json else _printed_pieces()
    if args.beam or args.lm:
        options["decoder"], how = transcription.fitted_beam(recogniser, args.beam or BEAM, args.lm, by_file=by_file)
        say(how, to_stderr=True)
    recogniser.hear([data.speech.resample(np.zeros(800, np.float32), 8000)])  # imports and set-up are not timed
    tally = transcription.Tally(recogniser.alphabet)
    last, began = None, time.perf_counter()
    recordings = _recordings(args, errors.certain(recogniser.record), folder)
    for each in transcription.transcribe(recogniser, recordings, by_file=by_file, **options):
        if isinstance(each, UserError):
            tally.failed += 1
            message = str(each).replace(f"{folder}{os.sep}", "")  # the path of a pipe's file
            say(f"labkit: {message}", to_stderr=True)
            if args.json:
                print(json.dumps({"error": message}), flush=True)
            continue
        _print(args, each)
        try:
            tally.add(each)
        except UserError as error:
            say(f"labkit: not compared: {error}", to_stderr=True)
        last = each
    took_s = time.perf_counter() - began
    if args.align and last:
        _draw(args.align, last, recogniser)
    summary = tally.to_dict(run, took_s)
    if args.json:
        print(json.dumps(summary), flush=True)
    elif tally.done:
        _print_summary(summary)
    return 2 if tally.failed else 0


def _printed_pieces() -> Callable[[transcription.Recording, str], None]:
    """A function that prints the pieces of a recording after its name."""
    begun = None

    def show(recording: transcription.Recording, piece: str) -> None:
        nonlocal begun
        name = "" if recording is begun else f"{recording.name}: "
        begun = recording
        print(f"{name}{piece}", end="", flush=True)

    return show


def _print(args: argparse.Namespace, each: transcription.Transcribed) -> None:
    if args.json:
        print(json.dumps(each.to_dict()), flush=True)
        return
    is_printed = args.stream and len(each.heard.log_probabilities) > 0
    words = [""] * bool(each.text.strip()) if is_printed else [f"{each.recording.name}: {each.text}".rstrip()]
    if not each.text.strip() and not each.note:
        words.append("(no words)")
    if each.note:
        words.append(f"({each.note})")
    say(" ".join(words))
    print(end="", flush=True)


def _draw(page: Path, each: transcription.Transcribed, recogniser: transcription.Recogniser) -> None:
    heard, pace = each.heard.log_probabilities, recogniser.outputs_per_s
    characters = transcription.align(heard, each.text, pace, recogniser.alphabet)
    figure = plots.figure_alignment(data.speech.log_mel([each.wave])[0], characters)
    page.parent.mkdir(parents=True, exist_ok=True)
    runs.replace_text(page, plots.page_of(figure, f"What was heard in {Path(each.recording.name).name}"))
    say(f"alignment in {page}", to_stderr=True)


def _print_summary(summary: dict[str, Any]) -> None:
    console = Console()
    if rows := summary["errors"]:
        shown = [
            {"of": f"{row['of']} {row['name'] or NOT_GIVEN[row['of']]}".strip(), "recordings": row["recordings"]}
            | {name.upper(): f"{row[name]:.1%}" for name in ("cer", "wer")}
            for row in rows[:MOST_ROWS]
        ]
        print_frame(console, shown)
        if len(rows) > MOST_ROWS:
            console.print(f"The first {MOST_ROWS} of {len(rows):,} rows; --json has all.")
    times = f"{summary['times_real_time']:{',.0f' if summary['times_real_time'] >= 10 else '.2g'}}"
    line = (
        f"{summary['audio_s']:.1f} s of audio in {summary['took_s']:.2f} s: {times} times "
        "real time, measured, with files decoded in one thread and heard in another."
    )
    console.print_line(line)
