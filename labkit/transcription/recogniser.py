"""A recogniser of a finished run: its best weights, and what they hear, in whole recordings or chunk by chunk.

N recordings, n samples at 16 kHz, T frames of F features or bins, T' outputs, C and C' channels, V alphabet with the
blank.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from labkit import UserError, models, runs, tracking
from labkit.data.speech import ENGLISH, FRAMES_PER_S, Alphabet, Voice, features_of
from labkit.jobs.speech import build_model

BEST = Path("checkpoint", "best.pt")
BATCH_FRAMES = 30 * FRAMES_PER_S
"""Frames per batch, including padding"""
CHUNK = FRAMES_PER_S // 2
"""Frames per chunk"""
HARDLY = 0.5
"""CER above which a recogniser writes little more than frequent letters"""
EVERYWHERE = torch.ones(1, 1, 1, dtype=torch.bool)
"""The mask of a recording without padded frames"""


@dataclass(frozen=True)
class Heard:
    """The outputs of a recogniser for one recording."""

    text: str
    """Characters of the likeliest path"""
    log_probabilities: np.ndarray
    """float32 (T', V)"""


class Recogniser:
    """A trained model and its alphabet, on the CPU."""

    def __init__(self, model: "models.SpeechModel", record: "runs.RunRecord | None" = None):
        """`record` is the record of the run that trained the model."""
        self.model, self.record = model.eval(), record
        trained = record.config["train"] if record else {}
        self.alphabet = Alphabet(trained.get("alphabet", ENGLISH))
        self.features_kind = trained.get("features", "log-mel")
        self.by_file = trained.get("kernels") == "plain"
        """Whether each utterance was normalised alone in training"""

    @property
    def quality(self) -> str:
        """The test error of its run, as text."""
        record = self.record
        cer = ((record.result or {}).get("metrics") or {}).get("cer") if record else None
        if record is None or cer is None:
            return f"a run that ended as {record.status if record else 'unknown'} and was not tested"
        hint = "; it has hardly learnt: train for longer" if cer > HARDLY else ""
        return f"CER {cer:.1%} on its test split{hint}"

    @property
    def outputs_per_s(self) -> float:
        """CTC outputs per second of audio."""
        return FRAMES_PER_S / self.model.config.frames_an_output

    def features(self, waves: list[np.ndarray], voice: Voice | None = None) -> list[np.ndarray]:
        """Features float32 (T, F) of waves float32 (n,) by one speaker, whose voice learns from them."""
        voice, features = voice or Voice(self.features_kind), features_of(waves, self.features_kind)
        for each in features:
            voice.listen(each)
        return [voice.normalised(each) for each in features]

    @torch.inference_mode()
    def hear(self, waves: list[np.ndarray], voice: Voice | None = None) -> list[Heard]:
        """Hear waves float32 (n,) at 16 kHz, all by one speaker; results are in the same order.

        Args:
            waves: recordings; those of similar length are computed together.
            voice: the speaker's voice so far; it learns from these waves as well.
        """
        features = self.features(waves, voice)
        heard: dict[int, Heard] = {}
        by_length = sorted(range(len(waves)), key=lambda index: len(features[index]), reverse=True)
        while by_length:
            fit = max(1, BATCH_FRAMES // len(features[by_length[0]]))
            chosen, by_length = by_length[:fit], by_length[fit:]
            lengths = torch.tensor([len(features[index]) for index in chosen])
            own = [torch.from_numpy(features[index]) for index in chosen]
            padded = pad_sequence(own, batch_first=True)  # (B, T, F)
            log_probabilities, lengths = self.model(padded, lengths)  # (B, T', V)
            texts = self.alphabet.decode(log_probabilities.argmax(2), lengths)
            for place, index in enumerate(chosen):
                heard[index] = Heard(texts[place], log_probabilities[place, : lengths[place]].numpy().copy())
        return [heard[index] for index in range(len(waves))]

    def hear_in_chunks(self, features: np.ndarray, on_more: Callable[[str], None]) -> Heard:
        """Hear normalised features (T, F) of one recording in chunks of half a second.

        `on_more` is called with each piece of text when it is known; the pieces make up the text.
        """
        stream, ids, parts, text = Stream(self.model), [], [], ""
        for start in range(0, len(features), CHUNK):
            frames = torch.from_numpy(features[start : start + CHUNK])
            parts.append(stream.push(frames, is_last=start + CHUNK >= len(features)).numpy())
            ids += parts[-1].argmax(1).tolist()
            (longer,) = self.alphabet.decode(np.array([ids], np.int64), np.array([len(ids)]))
            on_more(longer[len(text) :])
            text = longer
        return Heard(text, np.concatenate(parts))


def read_recogniser(run: Path) -> Recogniser:
    """Read the recogniser of a finished speech run, with the best weights on its validation split.

    Raises:
        UserError: there is no run, or it is not a speech run, has not finished, or has no checkpoint.
    """
    record = runs.read_run(run)
    if reason := why_unusable(run, record):
        raise UserError(reason)
    weights: dict[str, Any] = tracking.load_checkpoint(run / BEST)["kept"]["model"]
    model = build_model(models.SpeechConfig(**record.config["model"]), "fast")
    # convolutions of either kernels: over images of height 1, or over series
    own = model.state_dict()
    model.load_state_dict({name: value.reshape(own[name].shape) for name, value in weights.items()})
    return Recogniser(model, record)


def why_unusable(run: Path, record: "runs.RunRecord") -> str:
    """Why a run has no recogniser to transcribe with, and what to do; empty if it has one."""
    if record.config.get("job", record.name) != "speech":
        why = f"this run trains {record.name}, not a recogniser: name a run of `labkit train speech`."
    elif "model" not in record.config:
        why = "this run ended before it had a model: name a run of `labkit train speech` that trained."
    elif "maps" not in record.config["model"]:
        why = "this run is of an older labkit, with other features: train one with `labkit train speech`."
    elif record.status == "running":
        why = f"this run is still training: wait for its end, or end it with `labkit runs stop {run}`."
    elif record.status == "interrupted":
        why = f"this run was interrupted: resume it with `labkit train speech --resume {run}`, or name another."
    elif not (run / BEST).is_file():
        why = (
            f"this run has no checkpoint of its best weights ({BEST}): it ended before its first evaluation, or is a "
            "copy without them. Train one with `labkit train speech`."
        )
    else:
        return ""
    return f"{run}: {why}"


def newest_recogniser(runs_dir: Path) -> Path:
    """The newest speech run in a folder that ended without a failure; a UserError if there is none."""
    for folder in reversed(runs.run_folders(runs_dir)):
        try:
            record = runs.read_run(folder)
            if record.status != "failed" and not why_unusable(folder, record):
                return folder
        except UserError:  # skip damaged records
            continue
    raise UserError(
        f"{runs_dir} has no finished speech run: train one with `labkit train speech`, or give its folder with --run."
    )


class _InChunks:
    """A convolution over time with frames in chunks; there is silence before the first frame and after the last."""

    def __init__(self, layer: Any):
        self._layer, self._kernel = layer, layer.conv.kernel_size[-1]
        self._kept: Tensor | None = None
        """Frames from the first one that the next output sees"""

    def push(self, x: Tensor, *, is_last: bool) -> Tensor:
        """Return the outputs (1, C', T', …), if any, that frames x (1, C, T, …) complete."""
        half, stride = self._kernel // 2, self._layer.stride

        def silence(frames: int) -> Tensor:
            return x.new_zeros(1, x.shape[1], frames, *x.shape[3:])

        x = torch.cat([silence(half) if self._kept is None else self._kept, x, silence(half * is_last)], 2)
        outputs = max(0, (x.shape[2] - self._kernel) // stride + 1)
        self._kept = x[:, :, outputs * stride :]
        # the layer adds silence of its own around what it gets, so the outputs that see it are computed and dropped
        first = -(-half // stride)
        seen = torch.cat([silence(first * stride - half), x, silence(self._kernel if not outputs else 0)], 2)
        return self._layer(seen, EVERYWHERE)[:, :, first : first + outputs]


class Stream:
    """One recording, heard in chunks by a model that looks only backwards in time: the same outputs as of the whole.

    Convolutions keep the frames that their next output needs, LSTMs their state. The outputs of a chunk wait for the
    later frames that the convolutions see.
    """

    def __init__(self, model: "models.SpeechModel"):
        """Begin a recording.

        Raises:
            UserError: the model also hears a recording from its end.
        """
        kind = model.config.kind
        if kind not in ("conv", "lstm"):
            raise UserError(
                f'a recogniser of kind "{kind}" also hears recordings from their end, and needs them whole: remove '
                '--stream, or train one of kind "conv" or "lstm", such as the presets tour and budget-m5.'
            )
        self._model, self._state = model, None
        self._images = list(map(_InChunks, model.images))
        self._blocks = list(map(_InChunks, (*model.subsample, *getattr(model, "blocks", ()))))

    @torch.inference_mode()
    def push(self, features: Tensor, *, is_last: bool = False) -> Tensor:
        """Return the log-probabilities (T', V) that the next frames (T, F) of the recording complete."""
        x = features[None, None]  # (1, 1, T, F)
        for image in self._images:
            x = image.push(x, is_last=is_last)
        x = models.bins_of(x)
        for block in self._blocks:
            x = block.push(x, is_last=is_last)
        x = x.transpose(1, 2)  # (1, T', C)
        if not x.shape[1]:
            return x.new_zeros(0, self._model.config.vocabulary)
        if self._model.config.kind == "lstm":
            x, self._state = self._model.lstm(x, self._state)
        return F.log_softmax(self._model.characters(x).float(), dim=2)[0]
