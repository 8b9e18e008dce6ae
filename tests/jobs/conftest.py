"""Small jobs that train in a second."""

import json
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from labkit.hardware import one_thread
from labkit.jobs.launching import job_command
from labkit.tracking import StopRequest, run_command


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


@pytest.fixture(autouse=True)
def on_one_thread():
    with one_thread():
        yield


@pytest.fixture
def train(tmp_path, monkeypatch, no_sampler):
    """Trains a job in this process: `train("dlrm", max_epochs=1)`, its settings as flags; the answer."""
    monkeypatch.setenv("LABKIT_QUIET", "1")

    def train(job, on_event=lambda event: None, stop=None, resume=None, **settings):
        if job == "dlrm":
            settings = {"data": "synthetic-small", "batch_size": 4096, "precision": "fp32"} | settings
        command = job_command(job, runs_dir=tmp_path / "runs", **settings)
        if resume is not None:
            command = replace(command, resume=str(resume))
        return run_command(command, StopRequest() if stop is None else stop, on_event)

    return train
