"""What students write in 20_train_speech before a model hears anything: features, and voices that are held out.

Shapes: n samples, T frames, K bins.
"""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor

from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- features


def log_energies(wave: Tensor, filters: Tensor) -> Tensor:
    frames = wave.unfold(0, 400, 160)  # (T, 400): 25 ms each, 10 ms apart
    spectrum = torch.fft.rfft(frames * torch.hann_window(400), n=512)  # (T, 257)
    return (spectrum.abs().square() @ filters + 1e-6).log()  # (T, K)


def _sound(samples: int, loudness: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(samples)
    time_s = torch.arange(samples) / 16_000
    wave = torch.sin(2 * torch.pi * (300 + 900 * time_s) * time_s) + 0.1 * torch.randn(samples, generator=generator)
    return loudness * wave, torch.rand(257, 12, generator=generator) / 100


FEATURES = WrittenExercise(
    log_energies,
    module="speech",
    cases=(
        Case("half a second of a rising tone", lambda code: code(*_sound(8000))),
        Case("a single frame", lambda code: code(*_sound(400))),
        Case("a number of samples that is no multiple of the hop", lambda code: code(*_sound(1999))),
        Case("a tone that can hardly be heard", lambda code: code(*_sound(800, 1e-4))),
    ),
    mistakes={
        (" * torch.hann_window(400)", ""): "Each frame is multiplied by a Hann window, or its edges sound as clicks.",
        (".square()", ""): "Energy is the square of the spectrum's magnitude.",
        (".log()", ""): "The logarithm is missing: an ear hears ratios.",
        (".log()", ".log10()"): "The natural logarithm is meant: log, not log10.",
        ("+ 1e-6)", ").clamp(min=1e-6)"): "Add 1e-6 to every energy: a least value is another thing.",
        ("400, 160", "400, 400"): "Frames lie 160 samples (10 ms) apart, and overlap.",
        ("400, 160", "400, 200"): "Frames lie 160 samples (10 ms) apart.",
    },
    hint="wave.unfold(0, 400, 160) gives the frames (T, 400); times torch.hann_window(400); torch.fft.rfft with n=512; "
    "the square of its magnitude times the filters; plus 1e-6; log.",
    explanation="100 columns a second of K numbers instead of 16,000.",
)


# --- each speaker's mean and deviation


def normalise(features: list[Tensor], speakers: list[str]) -> list[Tensor]:
    normal = {}
    for speaker in set(speakers):
        own = torch.cat([one for one, who in zip(features, speakers, strict=True) if who == speaker])
        normal[speaker] = own.mean(0), own.std(0).clamp(min=0.1)
    return [(one - normal[who][0]) / normal[who][1] for one, who in zip(features, speakers, strict=True)]


def _spoken(speakers: str, *, silent_bin: bool = False) -> tuple[list[Tensor], list[str]]:
    """Features of an utterance of each of these speakers, louder ones later in the alphabet."""
    generator = torch.Generator().manual_seed(len(speakers))
    features = [
        (1 + ord(who) % 7) * torch.randn(700 + 50 * place, 3, generator=generator) + torch.tensor([ord(who), 0, place])
        for place, who in enumerate(speakers)
    ]
    for one in features:
        one[:, 1] = 4.0 if silent_bin else one[:, 1]
    return features, list(speakers)


# mean or sum over n or n - 1 of 700 frames and more: either deviation is right
NORMALISE = WrittenExercise(
    normalise,
    module="speech",
    cases=(
        Case("five utterances of two speakers", lambda code: code(*_spoken("abbab")), 2e-3),
        Case("one utterance", lambda code: code(*_spoken("c")), 2e-3),
        Case("a bin that is always the same", lambda code: code(*_spoken("dde", silent_bin=True)), 2e-3),
    ),
    mistakes={
        ("(one - normal[who][0]) / normal[who][1]", "(one - one.mean(0)) / one.std(0).clamp(min=0.1)"): (
            "These are each utterance's own: in a short one the word itself is most of its mean. First put all frames "
            "of a speaker together."
        ),
        (" if who == speaker", ""): "That is one mean for all speakers, so their loudness and microphones remain.",
        ("own.mean(0), own.std(0)", "own.mean(), own.std()"): "Each bin has a mean and a deviation of its own.",
        (".clamp(min=0.1)", ""): "A bin that hardly moves is blown up: no deviation is below 0.1 (clamp).",
    },
    hint="For each speaker torch.cat of all their features; then mean(0), and std(0).clamp(min=0.1); a list as long as "
    "the one given, in its order.",
    explanation="Loudness, microphone and room are gone, and what tells the words apart is left.",
)

# --- voices that are held out


def hold_out(speakers: list[str], count: int, seed: int) -> tuple[list[int], list[int]]:
    chosen = Random(seed).sample(sorted(set(speakers)), count)
    kept = [index for index, speaker in enumerate(speakers) if speaker not in chosen]
    return kept, [index for index, speaker in enumerate(speakers) if speaker in chosen]


def _utterances_held_out(speakers: list[str], count: int, seed: int) -> tuple[list[int], list[int]]:
    held_out = sorted(Random(seed).sample(range(len(speakers)), count))
    return [index for index in range(len(speakers)) if index not in held_out], held_out


VOICES = WrittenExercise(
    hold_out,
    module="speech",
    cases=(
        Case("ten utterances of four speakers", lambda code: code(list("abcabdabca"), 1, 0)),
        Case("two of seven speakers", lambda code: code(list("ggfedcbaabcdefg"), 2, 5)),
        Case("none", lambda code: code(list("aba"), 0, 1)),
    ),
    mistakes={
        _utterances_held_out: "These are utterances: whoever speaks them is heard in training, too. Draw speakers.",
        (" if speaker not in chosen", ""): "The held-out utterances are still among those that are trained on.",
        lambda *drawn: hold_out(*drawn)[::-1]: "Those to train on come first.",
    },
    hint="Draw the speakers as the text says; then two lists of indices.",
    explanation="A voice is on one side or on the other.",
)

WHY_CACHED = Explanation(
    rubric=(
        "numbers: what features cost beside a step, measured here",
        "why: they are the same in every epoch, and the weights are not",
        "trade-off: what keeping them costs (disk or memory, changes of the sound while training)",
    ),
    model="Features of a batch took a measurable share of the step's time here, and they are the same in every epoch, "
    "so computing them once and keeping them saves that share from the second epoch on. What it costs is disk (160 "
    "bytes a frame in float16, half of the sound's 320), and that while training only the features can still be "
    "changed (their speed, masks, noise on them), no longer the sound itself: another room, microphone or codec.",
)

EXERCISES = {
    "20.features": FEATURES,
    "20.normalise": NORMALISE,
    "20.voices": VOICES,
    "20.why_cached": WHY_CACHED,
}
