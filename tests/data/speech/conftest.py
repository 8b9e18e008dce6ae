"""Small speech sets, written for a test."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

RATE_HZ = 16_000


def noise(seconds: float, rate_hz: int = RATE_HZ, channels: int = 1, seed: int = 0) -> np.ndarray:
    """Quiet white noise: float32 (samples, channels)."""
    rng = np.random.default_rng(seed)
    return 0.1 * rng.standard_normal((round(seconds * rate_hz), channels)).astype(np.float32)


@pytest.fixture
def write_audio() -> Callable[..., Path]:
    """`write_audio(path, seconds=1.5, rate_hz=16000, channels=1, seed=0, **soundfile options)`"""

    def write(path: Path, seconds: float = 1.5, rate_hz: int = RATE_HZ, channels: int = 1, seed: int = 0, **options):
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, noise(seconds, rate_hz, channels, seed), rate_hz, **options)
        return path

    return write


@pytest.fixture
def write_manifest(tmp_path, write_audio) -> Callable[..., Path]:
    """`write_manifest(*lines)`: a manifest of these lines, after six good utterances by six speakers unless
    `good=False`. Lines are objects, or text to be written as it is."""

    def write(*lines: dict | str, good: bool = True) -> Path:
        first = []
        for index in range(6 * good):
            write_audio(tmp_path / f"{index}.wav", seed=index)
            first.append({"audio_filepath": f"{index}.wav", "text": "stop all jobs", "speaker": f"speaker{index}"})
        written = [line if isinstance(line, str) else json.dumps(line) for line in (*first, *lines)]
        path = tmp_path / "utterances.jsonl"
        path.write_text("".join(f"{line}\n" for line in written), encoding="utf-8", errors="surrogateescape")
        return path

    return write
