"""From recordings to texts, lot by lot: what cannot be used is told of, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit.data.speech.audio import SAMPLE_RATE_HZ, decode
from labkit.data.speech.features import Voice
from labkit.errors import UserError, refusal
from labkit.transcription.recogniser import Heard, Recogniser
from labkit.transcription.recordings import Recording

LOT = 64
"""Recordings that are decoded before they are heard"""
LOT_S = 300.0
"""Seconds of audio from which a lot has enough"""
SILENT = 1e-4
"""No sample is beyond three steps of 16 bits: nobody spoke, and whatever a recogniser writes is made up"""
OGG_PAGE, LONGEST_PAGE, LAST_PAGE = b"OggS", 65_307, 4
"""How a page begins, its most bytes, and the flag of the last one"""

Decoder = Callable[[np.ndarray], str]
"""Log-probabilities (T', V) to a text"""


@dataclass(frozen=True)
class Transcribed:
    """What came of one recording."""

    recording: Recording
    text: str
    heard: Heard
    wave: np.ndarray
    """float32 (n,) at 16 kHz"""
    note: str
    """What a reader should know: silence, or that the file is cut off; mostly empty."""

    @property
    def audio_s(self) -> float:
        return len(self.wave) / SAMPLE_RATE_HZ


def transcribe(
    recogniser: Recogniser,
    recordings: Iterable[Recording | UserError],
    *,
    by_file: bool = False,
    decoder: Decoder | None = None,
    on_more: Callable[[str], None] | None = None,
) -> Iterator[Transcribed | UserError]:
    """What is said in each recording, or why that cannot be told.

    Args:
        recogniser: a trained one.
        recordings: those of one voice in a row are normalised together, each lot with all that was heard before it.
        by_file: normalise each recording alone, whoever speaks.
        decoder: writes a text; None writes the likeliest path.
        on_more: hear in chunks, and call this with each piece of text when it is known.
    """
    lot: list[tuple[Recording, np.ndarray]] = []
    voice, of = recogniser.voice(), ""
    for recording in recordings:
        if isinstance(recording, UserError):
            yield recording
            continue
        if by_file or recording.voice != of:
            yield from _hear(recogniser, lot, voice, decoder, on_more)
            voice, of = recogniser.voice(), recording.voice
        try:
            lot.append((recording, decode(recording.utterance)))
        except UserError as error:
            yield error
        except OSError as error:
            yield refusal(error) or UserError(f"{recording.name}: {error.strerror}.")
        if len(lot) == LOT or sum(len(wave) for _, wave in lot) > LOT_S * SAMPLE_RATE_HZ:
            yield from _hear(recogniser, lot, voice, decoder, on_more)
    yield from _hear(recogniser, lot, voice, decoder, on_more)


def _hear(
    recogniser: Recogniser,
    lot: list[tuple[Recording, np.ndarray]],
    voice: Voice,
    decoder: Decoder | None,
    on_more: Callable[[str], None] | None,
) -> Iterator[Transcribed]:
    """Hear a lot of one voice, and empty it."""
    spoken = [wave for _, wave in lot if not _is_silent(wave)]
    if on_more is None:
        heard = iter(recogniser.hear(spoken, voice))
    else:
        heard = (recogniser.hear_in_chunks(each, on_more) for each in recogniser.features(spoken, voice))
    for recording, wave in lot:
        if _is_silent(wave):
            nothing = Heard("", np.empty((0, len(recogniser.alphabet)), np.float32))
            yield Transcribed(recording, "", nothing, wave, "silence")
            continue
        own = next(heard)
        text = own.text if decoder is None else decoder(own.log_probabilities)
        is_cut = any(_is_cut_off(segment.audio) for segment in recording.utterance.segments)
        yield Transcribed(recording, text, own, wave, "the file is cut off, this is its beginning" if is_cut else "")
    lot.clear()


def _is_silent(wave: np.ndarray) -> bool:
    return float(np.abs(wave).max()) < SILENT


def _is_cut_off(path: Path) -> bool:
    """Whether an Ogg file (Opus, Vorbis) lacks its last page, which libsndfile does not tell (RFC 3533, section 6)."""
    with path.open("rb") as file:
        if file.read(4) != OGG_PAGE:
            return False
        file.seek(max(0, path.stat().st_size - LONGEST_PAGE))
        end = file.read()
    last = end.rfind(OGG_PAGE)
    flags = end[last + 5 : last + 6]  # none where it was cut within the page's head
    return not flags or not flags[0] & LAST_PAGE
