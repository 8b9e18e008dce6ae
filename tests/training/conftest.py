"""Small jobs that train in a second."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile


@pytest.fixture(scope="session")
def tiny_speech(tmp_path_factory):
    """A JSONL manifest of 24 one-second tones, the pitch telling the word."""
    folder = tmp_path_factory.mktemp("tones")
    rng = np.random.default_rng(0)
    lines = []
    for number in range(24):
        word, pitch = (("low", 200), ("high", 900))[number % 2]
        seconds = 0.8 + 0.4 * rng.random()
        wave = np.sin(2 * np.pi * pitch * np.arange(int(16000 * seconds)) / 16000) * 0.3
        path = folder / f"{number}.wav"
        soundfile.write(path, wave + 0.01 * rng.normal(size=len(wave)), 16000)
        split = ("validation", "test")[number % 4 // 2] if number < 8 else "train"
        lines.append({"audio_filepath": path.name, "text": word, "speaker": f"s{number}", "split": split})
    manifest = folder / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return manifest
