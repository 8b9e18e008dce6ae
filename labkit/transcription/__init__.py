"""What a trained recogniser hears: audio to text, to characters at their times, and how wrong it is."""

from labkit.transcription.alignment import align
from labkit.transcription.decoding import CharacterModel, beam_search
from labkit.transcription.recogniser import Heard, Recogniser, read_recogniser
from labkit.transcription.streaming import Stream

__all__ = ["CharacterModel", "Heard", "Recogniser", "Stream", "align", "beam_search", "read_recogniser"]
