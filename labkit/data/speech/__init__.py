"""Speech: read, check, turn into log-mel features once, batch by length."""

from __future__ import annotations

from labkit.data.speech.audio import read_wave
from labkit.data.speech.load import load_speech
from labkit.data.speech.prepared import Batch, SpeechSet, SpeechSplit

__all__ = ["Batch", "SpeechSet", "SpeechSplit", "load_speech", "read_wave"]
