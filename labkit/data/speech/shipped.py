"""The corpus that comes with labkit: `datasets/speech/`, spoken by espeak-ng."""

from __future__ import annotations

from dataclasses import replace

from labkit.data.bad_rows import BadRows
from labkit.data.speech.manifest import read_manifest
from labkit.data.speech.utterance import Source
from labkit.data.store import shipped_datasets

NAME = "shipped"


def read_shipped(bad: BadRows) -> Source:
    """The utterances of the shipped corpus."""
    return replace(read_manifest(shipped_datasets() / "speech" / "manifest.jsonl", bad), name=NAME)
