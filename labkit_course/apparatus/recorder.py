"""A voice for a notebook: recorded by the browser from the microphone, or an audio file that is chosen there."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anywidget
import numpy as np
import traitlets

from labkit.errors import DataError, UserError

SHORTEST_S = 0.2
"""Less is a slip of the finger, and no word"""
LONGEST_S = 20.0
"""At a microphone's 96 kHz that is 7.7 MB, and a Jupyter server takes 10 MB at once"""


class Recorder(anywidget.AnyWidget):
    """Records a voice, or takes a file; in code: `wave = read_wave("me.wav")`, from `labkit.data.speech`.

    `recorder.observe(lambda change: ..., "wave")` calls a function with each new wave. Without a browser nothing is
    recorded, and `wave` stays None.
    """

    _esm = Path(__file__).with_name("recorder.js")
    _css = Path(__file__).with_name("recorder.css")

    wave = traitlets.Any()
    """What was recorded or chosen last and can be used: float32 (samples,), mono, at 16 kHz; None: nothing yet"""
    status = traitlets.Unicode("Press Record and speak, or choose an audio file.").tag(sync=True)
    """What happened, and what to do next"""
    longest_s = traitlets.Float(LONGEST_S).tag(sync=True)
    """Seconds after which a recording stops by itself"""

    def __init__(self):
        super().__init__()
        self.on_msg(self._hear)

    def _hear(self, _: Any, content: dict, buffers: list[memoryview]) -> None:
        """Take what the browser sends: samples float32 (n,) and their rate, or a file and its name.

        `status` says what cannot be used, which leaves `wave` as it was.
        """
        from labkit.data.speech import SAMPLE_RATE_HZ, resample  # its package imports torch

        name = content.get("file", "The recording")
        try:
            if "file" in content:
                wave, rate_hz = _read_file(name, buffers[0]), SAMPLE_RATE_HZ
            else:
                wave, rate_hz = np.frombuffer(buffers[0], "<f4").copy(), round(content["rate_hz"])
            self._check(name, wave, len(wave) / rate_hz)
        except UserError as error:
            self.status = str(error)
            return
        wave = resample(wave, rate_hz)
        self.send({"rate_hz": SAMPLE_RATE_HZ}, [wave.tobytes()])  # what is played is what a model will hear
        self.status = f"{name} is here: {len(wave) / SAMPLE_RATE_HZ:.2f} s, {len(wave):,} samples at 16 kHz."
        self.wave = wave

    def _check(self, name: str, wave: np.ndarray, length_s: float) -> None:
        """Refuse a wave in which nothing can be heard."""
        if length_s < SHORTEST_S:
            what = f"{length_s:.2f} s is too short for a word"
            raise UserError(f"{name}: {what}. Press Record, speak, and press Stop after the last word.")
        if length_s > self.longest_s + 0.1:  # a recording ends with its last block
            what = f"{length_s:.1f} s is too long, {self.longest_s:g} s are the most"
            raise UserError(f"{name}: {what}. Cut it, or choose a shorter one.")
        if not np.isfinite(wave).all():
            raise UserError(f"{name} has samples that are not numbers. Record it again, or choose an audio file.")
        if not wave.any():
            fix = "Switch the microphone on, choose another in the browser's settings for this page, or choose a file."
            raise UserError(f"{name} is silent: every sample is 0. {fix}")


def _read_file(name: str, content: memoryview) -> np.ndarray:
    """The wave of a file that was chosen in the browser, of which errors name no folder of this machine."""
    from labkit.data.speech import read_wave

    with TemporaryDirectory() as folder:
        path = Path(folder, Path(name).name)
        path.write_bytes(content)
        try:
            return read_wave(path)
        except DataError as error:
            raise UserError(f"{error.what} {error.fix}".replace(f"{folder}{os.sep}", "")) from None
