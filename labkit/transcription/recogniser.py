"""A recogniser of a finished run: its best weights, and what they hear.

N recordings, n samples at 16 kHz, T frames of F features, T' outputs, V alphabet with the blank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from labkit.data.speech import FRAMES_PER_S, Alphabet, Voice, features_of
from labkit.errors import UserError
from labkit.jobs.speech import build_model
from labkit.models import SpeechConfig, SpeechModel
from labkit.runs import RunRecord, read_run, run_folders
from labkit.tracking import load_checkpoint
from labkit.transcription.streaming import Stream

BEST = Path("checkpoint", "best.pt")
BATCH_FRAMES = 30 * FRAMES_PER_S
"""Frames of a batch, padding included"""
CHUNK = FRAMES_PER_S // 2
"""Frames that come at a time"""


@dataclass(frozen=True)
class Heard:
    """What a recogniser heard in one recording."""

    text: str
    """The characters of the likeliest path."""
    log_probabilities: np.ndarray
    """float32 (T', V)"""


class Recogniser:
    """A trained model and its alphabet, on the CPU."""

    def __init__(self, model: SpeechModel, record: RunRecord | None = None):
        """`record` is that of the run which trained the model."""
        self.model, self.record, self.alphabet = model.eval(), record, Alphabet()
        trained = record.config["train"] if record else {}
        self._kind = trained.get("features", "log-mel")
        self.by_file = trained.get("kernels") == "plain"
        """Whether it was trained on utterances that were each normalised alone"""

    def voice(self) -> Voice:
        """One of which nothing was heard yet."""
        return Voice(self._kind)

    @property
    def outputs_per_s(self) -> float:
        """CTC outputs a second of audio."""
        return FRAMES_PER_S / self.model.config.frames_an_output

    def features(self, waves: list[np.ndarray], voice: Voice | None = None) -> list[np.ndarray]:
        """Features float32 (T, F) of waves float32 (n,) by one speaker, whose voice learns from them."""
        voice, features = voice or self.voice(), features_of(waves, self._kind)
        for each in features:
            voice.listen(each)
        return [voice.normalised(each) for each in features]

    @torch.inference_mode()
    def hear(self, waves: list[np.ndarray], voice: Voice | None = None) -> list[Heard]:
        """What is said in waves float32 (n,) at 16 kHz, all by one speaker, in their order.

        Args:
            waves: recordings; those of like length are computed together.
            voice: what was heard of this speaker before; it learns from these, too.
        """
        features = self.features(waves, voice)
        heard: dict[int, Heard] = {}
        by_length = sorted(range(len(waves)), key=lambda index: len(features[index]), reverse=True)
        while by_length:
            fit = max(1, BATCH_FRAMES // len(features[by_length[0]]))
            chosen, by_length = by_length[:fit], by_length[fit:]
            lengths = torch.tensor([len(features[index]) for index in chosen])
            padded = pad_sequence(
                [torch.from_numpy(features[index]) for index in chosen], batch_first=True
            )  # (B, T, F)
            log_probabilities, lengths = self.model(padded, lengths)  # (B, T', V)
            texts = self.alphabet.decode(log_probabilities.argmax(2), lengths)
            for place, index in enumerate(chosen):
                own = log_probabilities[place, : lengths[place]].numpy().copy()
                heard[index] = Heard(texts[place], own)
        return [heard[index] for index in range(len(waves))]

    def hear_in_chunks(self, features: np.ndarray, on_more: Callable[[str], None]) -> Heard:
        """What is said in normalised features (T, F) of one recording that come half a second at a time.

        `on_more` is called with each piece of text when it is known: the pieces make up the text.
        """
        stream, ids, parts, text = Stream(self.model), [], [], ""
        for start in (*range(0, len(features), CHUNK), None):
            is_last = start is None
            part = stream.finish() if is_last else stream.push(torch.from_numpy(features[start : start + CHUNK]))
            parts.append(part.numpy())
            ids += parts[-1].argmax(1).tolist()
            (longer,) = self.alphabet.decode(np.array([ids], np.int64), np.array([len(ids)]))
            on_more(longer[len(text) :])
            text = longer
        return Heard(text, np.concatenate(parts))


def read_recogniser(run: Path) -> Recogniser:
    """The recogniser of a finished speech run, with the weights that were best on its validation split.

    Raises:
        UserError: there is no run, or it trains no recogniser, has not finished, or has no checkpoint.
    """
    record = read_run(run)
    if reason := why_unusable(run, record):
        raise UserError(reason)
    weights: dict[str, Any] = load_checkpoint(run / BEST)["kept"]["model"]
    model = build_model(SpeechConfig(**record.config["model"]), "fast")
    # either kernels' convolutions, of images of height 1 or of series
    own = model.state_dict()
    model.load_state_dict({name: value.reshape(own[name].shape) for name, value in weights.items()})
    return Recogniser(model, record)


def why_unusable(run: Path, record: RunRecord) -> str:
    """Why a run has no recogniser to transcribe with, and what to do; empty where it has one."""
    if record.config.get("job", record.name) != "speech":
        return f"{run}: this run trains {record.name}, no recogniser: name one of `labkit train speech`."
    if "model" not in record.config:
        return f"{run}: this run ended before it had a model: name one of `labkit train speech` that trained."
    if "maps" not in record.config["model"]:
        return f"{run}: this run is of an older labkit, with other features: train one with `labkit train speech`."
    if record.status == "running":
        return f"{run}: this run is still training: wait for its end, or end it with `labkit runs stop {run}`."
    if record.status == "interrupted":
        return (
            f"{run}: this run was interrupted before its end: go on with `labkit train speech --resume {run}`, or name "
            "another."
        )
    if not (run / BEST).is_file():
        return (
            f"{run}: this run has no checkpoint of its best weights ({BEST}): it ended before its first evaluation, or "
            "is a copy without them. Train one with `labkit train speech`."
        )
    return ""


def newest_recogniser(runs_dir: Path) -> Path:
    """The newest speech run in a folder that ended without a failure.

    Raises:
        UserError: there is none.
    """
    for folder in reversed(run_folders(runs_dir)):
        try:
            record = read_run(folder)
            if record.status != "failed" and not why_unusable(folder, record):
                return folder
        except UserError:  # a damaged record is not the one that is looked for
            continue
    raise UserError(
        f"{runs_dir} has no finished speech run: train one with `labkit train speech`, or name its folder with --run."
    )
