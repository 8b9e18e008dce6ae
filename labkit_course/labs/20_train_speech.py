# %% opening [markdown]
"""
# Train a speech recogniser to a target

After this notebook you will be able to

- **compute** what a recogniser hears, a log-mel picture, and say what that costs compared with training;
- **decode** a CTC model's output, and **score** it by characters and by words;
- **count** the parameters and operations of a recogniser before it is built;
- **train** one with a loop of your own, on whose loss no padding counts, and **judge** it on voices it has never heard;
- **judge** an optimiser, features and a depth that others chose.

**Time:** 120 minutes in two halves (50 and 70), with about 100 lines of yours; the machine computes for about three minutes on 2 quiet CPU cores. No GPU is needed.

**Prerequisites:** [Start here](00_start_here.ipynb), and PyTorch. Headphones help, and a microphone, for your own voice.
"""

# %% checks
import math
from dataclasses import replace
from itertools import pairwise
from operator import ne
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labkit.data.speech import Batch
from labkit.models import ConvBlock, SpeechConfig
from labkit_course.apparatus import WatchedRun
from labkit_course.exercise import Case, Exercise, Explanation, WrittenExercise
from labkit_course.lab import from_lab

# Shapes: B batch, T outputs, V alphabet with the blank (0).
# Shapes: n samples, T frames, K bins.
# Shapes: B batch, T frames, C channels, H width of a recurrent layer, V alphabet with the blank.
# Shapes: B batch, T frames, T' outputs, V alphabet with the blank (0).
gradient = from_lab("10", "gradient")
EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change. `student` is your number, by which the numbers of some questions are drawn.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full
runs_dir = "runs"  # run folders are made in its subfolder notebooks
data = "shipped"  # the corpus that comes with labkit
seed = 0
student = 0

# %% corpus-prose [markdown]
"""
## Listen

The corpus that ships with labkit is an hour of spoken numbers and commands. It was made by a speech synthesiser (espeak-ng), so it is far easier than people: error rates here say nothing about real speech, but the model, the loss and the costs are the real thing. Voices of the validation and test splits appear in no training utterance.

Preparing it decodes the audio and computes the features, once; after that it opens at once.
"""

# %% corpus
import labkit

speech = labkit.data.speech.load_speech(data)
voices, characters = speech.split("validation"), speech.alphabet.characters
in_both = set(voices.speakers) & set(speech.split("train").speakers)
print(f"{speech}; voices in training and validation: {len(in_both)}")

# %% waves-prose [markdown]
"""
These are the waveforms of the validation split, decoded again: float32, 16,000 samples a second.
"""

# %% waves
sound = labkit.data.speech.WaveformUtterances(data, "validation")
wave = sound.waves[0]
print(f"{len(sound)} utterances; the first has {len(wave):,} samples")

# %% play-prose [markdown]
"""
Play the first. Could you write down what was said? `sound.texts[0]` has the answer.
"""

# %% play
from IPython.display import Audio

Audio(wave, rate=16_000)

# %% features-prose [markdown]
"""
## What the model hears

16,000 numbers a second are too many, and their exact shape says little. A **log-mel** picture has a column every 10 ms and 80 rows, from low to high frequencies spaced as the ear spaces them; a cell is the logarithm of the energy there.

### Exercise 20.features

Write `log_energies(wave, filters)`: a waveform `(n,)` and the filters' weights `(257, K)` give features `(T, K)`.

1. Cut the wave into frames of 400 samples that begin 160 apart (25 ms long, 10 ms apart), and multiply each by a Hann window (`torch.hann_window(400)`).
2. The spectrum of a frame is its `torch.fft.rfft` with `n=512`, 257 complex numbers; the squares of their magnitudes times the filters are energies. Add 1e-6, and take the logarithm.

*Hint:* `wave.unfold(0, 400, 160)`.
"""

# %% answer 20.features
import torch
from torch import Tensor


def log_energies(wave: Tensor, filters: Tensor) -> Tensor:
    """Log-mel features (T, K) of a wave (n,), by filters (257, K)."""
    ### BEGIN SOLUTION
    frames = wave.unfold(0, 400, 160)  # (T, 400): 25 ms each, 10 ms apart
    spectrum = torch.fft.rfft(frames * torch.hann_window(400), n=512)  # (T, 257)
    return (spectrum.abs().square() @ filters + 1e-6).log()  # (T, K)
    ### END SOLUTION


# %% check 20.features points=4
from labkit_course import check

check("20.features", log_energies)


# %% checks
def _sound(samples: int, loudness: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(samples)
    time_s = torch.arange(samples) / 16_000
    wave = torch.sin(2 * torch.pi * (300 + 900 * time_s) * time_s) + 0.1 * torch.randn(samples, generator=generator)
    return loudness * wave, torch.rand(257, 12, generator=generator) / 100


EXERCISES["20.features"] = WrittenExercise(
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
    },
    hint="wave.unfold(0, 400, 160) gives the frames (T, 400); times torch.hann_window(400); torch.fft.rfft with n=512; "
    "the square of its magnitude times the filters; plus 1e-6; log.",
    explanation="100 columns a second of K numbers instead of 16,000.",
)

# %% torchaudio-prose [markdown]
"""
Yours against labkit's, with the same 80 filters; labkit's equal those of torchaudio's `MelSpectrogram`. Its frames are *centred* on every 160th sample, with zeros beyond both ends, so yours get 200 zeros there, too. A difference below 1e-3 is rounding.
"""

# %% torchaudio
import torch.nn.functional as F

filters = labkit.data.speech.mel_filters()  # (257, 80)
features = log_energies(F.pad(torch.from_numpy(wave), (200, 200)), filters)
difference = float((features - torch.from_numpy(labkit.data.speech.log_mel_batch([wave])[0])).abs().max())
print(f"{len(wave):,} samples became {tuple(features.shape)}; the largest difference is {difference:.1e}")

# %% picture-prose [markdown]
"""
Vowels are the bright horizontal stripes, and hissing consonants the clouds at the top.
"""

# %% picture
figure = labkit.plots.new_figure("Time (s)", "Mel bin (1: lowest frequency)")
figure.add_heatmap(x0=0, dx=0.01, z=features.T.numpy(), y0=1, dy=1, colorscale="Cividis")
figure.update_traces(name="measured", showlegend=True, colorbar_title_text="log energy")
figure.update_yaxes(range=[0.5, 80.5])
labkit.plots.show(figure)

# %% normalise-prose [markdown]
"""
A loud speaker and a good microphone say nothing about the words. So each bin is shifted and scaled, to mean 0 and deviation 1 over all that a *speaker* says.

### Exercise 20.normalise

Write `normalise(features, speakers)`: a list of features `(T, K)` and who speaks each give a list of the same shapes.

1. Of each speaker, put all frames together, and take mean and deviation of each bin; a deviation below 0.1 counts as 0.1, for a bin that hardly moves is not to be blown up.
2. Return each utterance less its speaker's mean, divided by the deviation.

*Hint:* `torch.cat` of one speaker's utterances, then `mean(0)` and `std(0).clamp(min=0.1)`.
"""

# %% answer 20.normalise
import torch
from torch import Tensor


def normalise(features: list[Tensor], speakers: list[str]) -> list[Tensor]:
    """Features of the same shapes, of which each speaker's have mean 0 and deviation 1 in every bin."""
    ### BEGIN SOLUTION
    normal = {}
    for speaker in set(speakers):
        own = torch.cat([one for one, who in zip(features, speakers, strict=True) if who == speaker])
        normal[speaker] = own.mean(0), own.std(0).clamp(min=0.1)
    return [(one - normal[who][0]) / normal[who][1] for one, who in zip(features, speakers, strict=True)]
    ### END SOLUTION


# %% check 20.normalise points=4
check("20.normalise", normalise)


# %% checks
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
EXERCISES["20.normalise"] = WrittenExercise(
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
    },
    hint="For each speaker torch.cat of all their features; then mean(0), and std(0).clamp(min=0.1); a list as long as "
    "the one given, in its order.",
    explanation="Loudness, microphone and room are gone, and what distinguishes the words is left.",
)

# %% valleys-prose [markdown]
"""
How far silence lies below speech depends on the room and the recorder, too. So labkit adds 1 % of the mean energy in each bin to all energies of an utterance before the logarithm. In a trial with a voice that the model had not heard, 76 % of the words were wrong without that, and 13 % with it (docs/performance.md).
"""


# %% valleys
def raise_valleys(log_mel):
    return (log_mel.exp() + 0.01 * log_mel.exp().mean(0)).log()


log_mels = [log_energies(F.pad(torch.from_numpy(one), (200, 200)), filters) for one in sound.waves]
raised = [raise_valleys(one) for one in log_mels]

# %% cached-prose [markdown]
"""
labkit computed the same when it prepared the corpus, and keeps it as float16. How far apart are the two?
"""

# %% cached
normal = normalise(raised, voices.speakers)
apart = max(float((one - torch.from_numpy(voices.features(index))).abs().max()) for index, one in enumerate(normal))
print(f"largest difference {apart:.3f} deviations; {2 * voices.lengths.sum() * 80 / 1e6:.1f} MB are kept")

# %% collapse-prose [markdown]
"""
## Reading what it writes

The model writes one character, or a *blank*, for each output, far more outputs than there are letters. **CTC** (Graves et al., 2006) reads them by a rule: first merge equal neighbours, then drop the blanks. With `-` for the blank, `ff-oou-r` reads `four`, and `-tth-reee-e` reads `three`.

### Exercise 20.collapse

Write `collapse(path)`: a list of ids, one an output, gives the list of ids that CTC reads. Id 0 is the blank.

1. Merge equal neighbours.
2. Drop the blanks.

*Hint:* keep the first id, and each that differs from the one before it.
"""


# %% answer 20.collapse
def collapse(path: list[int]) -> list[int]:
    """The ids that CTC reads from a path of ids, in which 0 is the blank."""
    ### BEGIN SOLUTION
    merged = [one for place, one in enumerate(path) if place == 0 or one != path[place - 1]]
    return [one for one in merged if one != 0]
    ### END SOLUTION


# %% check 20.collapse points=4
check("20.collapse", collapse)

# %% checks
EXERCISES["20.collapse"] = WrittenExercise(
    collapse,
    module="speech",
    cases=(
        Case("[2, 2, 0, 2, 1, 0, 1]", lambda code: code([2, 2, 0, 2, 1, 0, 1])),
        Case("[0, 0]", lambda code: code([0, 0])),
        Case("[]", lambda code: code([])),
        Case("[1, 0, 1, 1, 2, 2, 0, 0, 1]", lambda code: code([1, 0, 1, 1, 2, 2, 0, 0, 1])),
        Case("[3]", lambda code: code([3])),
    ),
    mistakes={
        lambda path: collapse([one for one in path if one != 0]): (
            "Merge first: a blank between two equal letters keeps both."
        ),
        ("in merged", "in path"): "Equal neighbours are one letter: merge them first.",
        ("place == 0 or ", ""): "Before the first id there is none: path[-1] is the last.",
    },
    hint="First merge equal neighbours, then drop the blanks.",
    explanation="Merge, then drop: the order is what makes `three` possible.",
)

# %% outputs-prose [markdown]
"""
The blank between two letters is what keeps a double letter double. So an utterance needs at least as many outputs as letters, plus one for each double letter: a fast speaker can be too fast for a model with few outputs a second.

### Exercise 20.outputs

What is the least number of outputs from which CTC can read this phrase? A space is a character.
"""

# %% draw-outputs
from labkit_course import draw

phrase = draw("20.outputs", student)["phrase"]

# %% answer-outputs-prose [markdown]
"""
Work it out by hand.
"""

# %% answer 20.outputs
### BEGIN SOLUTION
doubled = [place for place in range(1, len(phrase)) if phrase[place] == phrase[place - 1]]
answer = len(phrase) + len(doubled)
### END SOLUTION

# %% check 20.outputs points=1
check("20.outputs", answer, student)

# %% checks
PHRASES = ("three seven", "yellow letter", "all books stopped", "start eighteen", "add a summer", "keep all runs")


def _outputs_needed(phrase: str) -> int:
    return len(phrase) + sum(one == other for one, other in pairwise(phrase))


EXERCISES["20.outputs"] = Exercise(
    _outputs_needed,
    draw=lambda random: {"phrase": random.choice(PHRASES)},
    hint="One output for each character, and a blank wherever two equal ones follow each other.",
    explanation="Its characters, the space among them, and a blank between each two equal neighbours.",
    mistakes={
        lambda phrase: len(phrase): "Two equal letters in a row need a blank between them.",
        lambda phrase: 2 * len(phrase) - 1: (
            "Blanks may stand between all letters, but need to only between equal ones."
        ),
    },
)

# %% greedy-prose [markdown]
"""
### Exercise 20.greedy

Write `greedy(log_probabilities, lengths)`: a model's output `(B, T, V)`, and how many of the T outputs of each utterance are real `(B,)`, give a list of ids for each utterance.

1. At each output take the likeliest of the V characters.
2. Cut each path to its length (what lies beyond is padding), and collapse it.

*Hint:* `argmax(dim=2)`, and `tolist()` before you collapse.
"""

# %% answer 20.greedy
from torch import Tensor


def greedy(log_probabilities: Tensor, lengths: Tensor) -> list[list[int]]:
    """The ids that are read of each utterance: the likeliest path, cut to its length and collapsed."""
    ### BEGIN SOLUTION
    best = log_probabilities.argmax(dim=2)  # (B, T)
    return [collapse(path[:length].tolist()) for path, length in zip(best, lengths, strict=True)]
    ### END SOLUTION


# %% check 20.greedy points=4
check("20.greedy", greedy)


# %% checks
def _outputs() -> tuple[Tensor, Tensor]:
    scores = torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(7))
    return scores.log_softmax(2), torch.tensor([9, 4, 6, 1])


EXERCISES["20.greedy"] = WrittenExercise(
    greedy,
    module="speech",
    cases=(
        Case("4 utterances of up to 9 outputs", lambda code: code(*_outputs())),
        Case("one utterance", lambda code: code(_outputs()[0][:1], torch.tensor([3]))),
    ),
    mistakes={
        ("[:length]", ""): "Outputs beyond an utterance's length are padding: cut each path first.",
        ("collapse(path[:length].tolist())", "path[:length].tolist()"): "These are paths: collapse each.",
        ("argmax", "argmin"): "The likeliest character has the largest log-probability.",
    },
    hint="The likeliest character of each output (argmax over V), cut to the utterance's length, collapsed.",
    explanation="Greedy decoding takes the best character of each output; beam search weighs whole texts.",
)

# %% distance-prose [markdown]
"""
## Two error rates

The **character error rate** (CER) is the number of characters inserted, deleted or replaced, divided by the characters that were said; the **word error rate** (WER) counts words. The number of errors is that of the *cheapest* way from one text to the other: the edit distance.

### Exercise 20.distance

Write `edit_distance(said, read)` for two texts, or two lists of words.

1. Let D(i, j) be the distance of the first i of one and the first j of the other: D(i, 0) = i, D(0, j) = j.
2. D(i, j) is the least of D(i−1, j) + 1, D(i, j−1) + 1 and D(i−1, j−1), plus 1 in the last where the two differ.

*Hint:* one row of D at a time is enough to keep.
"""


# %% answer 20.distance
def edit_distance(said: list | str, read: list | str) -> int:
    """The fewest insertions, deletions and replacements that make one of the other."""
    ### BEGIN SOLUTION
    row = list(range(len(read) + 1))  # from nothing said to each number of the first read
    for place, one in enumerate(said, 1):
        diagonal, row[0] = row[0], place
        for other in range(1, len(read) + 1):
            cost = min(row[other] + 1, row[other - 1] + 1, diagonal + (one != read[other - 1]))
            diagonal, row[other] = row[other], cost
    return row[-1]
    ### END SOLUTION


# %% check 20.distance points=6
check("20.distance", edit_distance)

# %% checks
EXERCISES["20.distance"] = WrittenExercise(
    edit_distance,
    module="speech",
    cases=(
        Case('"seven" and "severn"', lambda code: code("seven", "severn")),
        Case('"kitten" and "sitting"', lambda code: code("kitten", "sitting")),
        Case('"" and "two"', lambda code: code("", "two")),
        Case("two lists of words", lambda code: code(["start", "job", "nine"], ["start", "a", "job", "five"])),
        Case("100 characters each", lambda code: code("one two three " * 7, "one too tree " * 8)),
    ),
    mistakes={
        ("(one != read", "2 * (one != read"): "A replaced character is one error, not a deletion and an insertion.",
        lambda said, read: sum(map(ne, said, read)) + abs(len(said) - len(read)): (
            "Place by place one missing letter makes all the rest wrong: what counts is the cheapest way."
        ),
        ("row[other - 1] + 1, ", ""): "A character too many in what was read is an error, too.",
    },
    hint="The distance of the first i and the first j characters is the least of three: one less of either plus one, "
    "or one less of both plus one if they differ. A function that calls itself three times never ends: keep rows of D.",
    explanation="Levenshtein's distance; on words it gives WER, on characters CER.",
)

# %% rate-prose [markdown]
"""
### Exercise 20.rate

Write `character_error_rate(said, read)` for two lists of texts: all errors together, divided by all characters that were said.
"""


# %% answer 20.rate
def character_error_rate(said: list[str], read: list[str]) -> float:
    """Errors a character that was said, over all utterances together."""
    ### BEGIN SOLUTION
    errors = sum(edit_distance(one, other) for one, other in zip(said, read, strict=True))
    return errors / sum(map(len, said))
    ### END SOLUTION


# %% check 20.rate points=3
check("20.rate", character_error_rate)

# %% checks
SAID, READ = ["four", "set batch size", "nine"], ["for", "set bat size", "five"]


EXERCISES["20.rate"] = WrittenExercise(
    character_error_rate,
    module="speech",
    cases=(
        Case("three utterances", lambda code: code(SAID, READ)),
        Case("a word that was read too late", lambda code: code(["two one", "six"], ["two", "one six"])),
        Case("more errors than characters", lambda code: code(["no"], ["seven"])),
    ),
    mistakes={
        lambda said, read: float(np.mean([edit_distance(a, b) / len(a) for a, b in zip(said, read, strict=True)])): (
            "Add up errors and characters over all utterances first: else a short one counts as much as a long one."
        ),
        (
            "sum(edit_distance(one, other) for one, other in zip(said, read, strict=True))",
            'edit_distance("".join(said), "".join(read))',
        ): "In joined texts a word can move to the next utterance: count the errors of each, then add up.",
        ("map(len, said)", "map(len, read)"): "Divide by the characters that were said, not by those that were read.",
    },
    hint="Count the errors of each utterance by itself; their sum, divided by the characters that were said.",
    explanation="Errors a character, over the whole split.",
)

# %% guess-wer-prose [markdown]
"""
The transcript below is wrong in one character of 25, spaces counted: a CER of 4 %. **What is its word error rate?**
"""

# %% guess-wer
from labkit_course import guess, reveal

guess("20.wer_of_one_letter", 4, "%")

# %% wer-prose [markdown]
"""
Your distance takes lists of words as it takes texts. One wrong letter makes its whole word wrong.
"""

# %% wer
said, read = "set batch size to seventy", "set batch sise to seventy"
wer = edit_distance(said.split(), read.split()) / len(said.split())
reveal("20.wer_of_one_letter", 100 * wer)
print(f"CER {100 * character_error_rate([said], [read]):.0f} %")

# %% second-half [markdown]
"""
## Second half: a model

Right code is kept in `mylab/speech.py`. So this half may be done on another day: run the cells from the top to *Listen*, then go on here. What is not in your module yet is labkit's.
"""

# %% mine
from labkit_course import check, explain, guess, mine, model_answer, reveal

collapse, greedy = mine("20.collapse"), mine("20.greedy")
edit_distance, character_error_rate = mine("20.distance"), mine("20.rate")

# %% lengths-prose [markdown]
"""
The recogniser of this lab has convolutions only: two with stride 2, which leave 25 outputs of 100 frames, then blocks that keep their number, then a linear layer that writes characters. Utterances of a batch are padded to the longest, so the model has to say which of its outputs are real. (The preset `tour` of `labkit train speech` begins with three small convolutions over frames *and* bins, as over an image: they see a sound wherever it lies, also a little higher, in another's voice.)

### Exercise 20.lengths

Write `output_lengths(frames, convolutions)`: lengths `(B,)`, and of each convolution `(kernel, stride, padding)`, with that padding at both ends, give the lengths `(B,)` of what comes out of the last.

*Hint:* how often does a window of `kernel` frames fit, if it moves on by `stride`?
"""

# %% answer 20.lengths
from torch import Tensor


def output_lengths(frames: Tensor, convolutions: list[tuple[int, int, int]]) -> Tensor:
    """How many outputs the convolutions, one after the other, make of a number of frames."""
    ### BEGIN SOLUTION
    for kernel, stride, padding in convolutions:
        frames = (frames + 2 * padding - kernel) // stride + 1
    return frames
    ### END SOLUTION


# %% check 20.lengths points=3
check("20.lengths", output_lengths)

# %% checks
FRAMES = torch.tensor([1, 7, 64, 101, 250, 251])


EXERCISES["20.lengths"] = WrittenExercise(
    output_lengths,
    module="speech",
    cases=(
        Case("one convolution without padding", lambda code: code(FRAMES + 4, [(5, 3, 0)])),
        Case("this lab's two, of width 7 and stride 2", lambda code: code(FRAMES, [(7, 2, 3), (7, 2, 3)])),
        Case("no convolution", lambda code: code(FRAMES, [])),
        Case("three of different widths", lambda code: code(FRAMES + 40, [(11, 2, 0), (5, 1, 1), (3, 3, 2)])),
    ),
    mistakes={
        ("(frames + 2 * padding - kernel) // stride + 1", "frames // stride"): (
            "The stride alone does not say it: a window has to fit into the padded frames."
        ),
        ("(frames + 2 * padding - kernel) // stride + 1", "-(-frames // stride)"): (
            "Rounding up is right for an odd width with half of it as padding; without padding fewer windows fit."
        ),
        ("2 * padding", "padding"): "The padding stands at both ends: it counts twice.",
    },
    hint="A window of `kernel` frames fits into frames + 2 · padding first once, and then once more for each stride "
    "that is left: floor((frames + 2 · padding − kernel) / stride) + 1, convolution after convolution.",
    explanation="What lies beyond these lengths is padding, which neither the loss nor the decoder may see.",
)

# %% block-prose [markdown]
"""
### Exercise 20.block

Write `MyBlock`, of which the model is made: `(B, before, T)` becomes `(B, after, T / stride)`.

1. `__init__`: `self.stride`, by which the model knows how long its output is; `self.conv`, a `Conv1d` padded by half its kernel, without bias; `self.norm`, a `BatchNorm1d`; `self.dropout`.
2. `forward(x, mask)`: convolution, batch norm, ReLU, dropout, times the mask, which is 0 where a frame is padding. Where neither channels nor stride change the shape, `x` is added to that.

*Hint:* what padding became has to be zero again, or the next convolution carries it into real frames.
"""

# %% answer 20.block
import torch.nn.functional as F
from torch import Tensor, nn


class MyBlock(nn.Module):
    """Convolution over time, batch norm, ReLU, dropout; a shortcut where input and output have one shape."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, dropout: float):
        ### BEGIN SOLUTION
        super().__init__()
        self.stride, self.has_shortcut = stride, before == after and stride == 1
        self.conv = nn.Conv1d(before, after, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm1d(after)
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, after, T / stride) for x (B, before, T); `mask` (B, 1, T / stride) keeps padded frames at zero."""
        ### BEGIN SOLUTION
        y = self.dropout(F.relu(self.norm(self.conv(x)))) * mask
        return x + y if self.has_shortcut else y
        ### END SOLUTION


# %% check 20.block points=6
check("20.block", MyBlock)


# %% checks
def _size(code: Any, *sizes: Any) -> int:
    return sum(weight.numel() for weight in code(*sizes).parameters())


def _heard(code: Any, *sizes: Any, frames: int = 9, training: bool = False, of_gradient: bool = False) -> Tensor:
    """What a block with the kit's weights makes of two utterances, the second of which ends half-way."""
    torch.manual_seed(5)
    kit = ConvBlock(*sizes)
    nn.init.normal_(kit.norm.weight), nn.init.normal_(kit.norm.bias)
    x = torch.randn(2, sizes[0], frames)
    x[1, :, frames // 2 :] = 0
    block = code(*sizes).train(training)
    block.conv.load_state_dict(kit.conv.state_dict(), strict=False)
    block.norm.load_state_dict(kit.norm.state_dict())
    outputs = -(-frames // sizes[3])
    mask = (torch.arange(outputs) < torch.tensor([[outputs], [outputs // 2]])).float().unsqueeze(1)
    return gradient(lambda each: block(each, mask), x) * mask if of_gradient else block(x, mask)


EXERCISES["20.block"] = WrittenExercise(
    MyBlock,
    module="speech",
    cases=(
        Case("the stride that the model asks a block for", lambda code: code(4, 6, 5, 2, 0.0).stride),
        Case("how many weights 4 channels to 6 have", lambda code: _size(code, 4, 6, 5, 2, 0.0)),
        Case("4 channels to 6, two utterances of which one is shorter", lambda code: _heard(code, 4, 6, 5, 1, 0.0)),
        Case("6 channels to 6", lambda code: _heard(code, 6, 6, 3, 1, 0.0)),
        Case("6 channels to 6 by stride 2", lambda code: _heard(code, 6, 6, 7, 2, 0.5)),
        Case("a step of training", lambda code: _heard(code, 6, 6, 3, 1, 0.0, training=True)),
        Case("the gradient of x", lambda code: _heard(code, 6, 6, 3, 1, 0.0, of_gradient=True)),
    ),
    mistakes={
        ("kernel, stride, padding", "kernel, padding"): "The convolution moves on by the stride: pass it to Conv1d.",
        (", bias=False", ""): "Batch norm takes any bias away again: bias=False.",
        (" * mask", ""): "What a padded frame becomes has to be zero again: times the mask, before the shortcut.",
    },
    hint="conv, norm and dropout are attributes; dropout(relu(norm(conv(x)))) times the mask; plus x where the numbers "
    "of channels and of frames stay.",
    explanation="With the same weights it is the kit's block, and no padding leaks into a real frame.",
)

# %% build-prose [markdown]
"""
labkit's `SpeechModel` puts your blocks together. Its lengths, and yours, of the first utterances:
"""

# %% build
import torch

masks = {"mask_bins": 8, "mask_frames": 6}  # stretches that are hidden while it trains
config = labkit.models.SpeechConfig(len(speech.alphabet), "conv", channels=64, layers=4, kernel=7, dropout=0.1, **masks)
batch = voices.batch(range(8))
torch.manual_seed(seed)
_, lengths = labkit.models.SpeechModel(config, block=MyBlock).eval()(batch.features, batch.feature_lengths)
print(lengths, output_lengths(batch.feature_lengths, [(7, 2, 3), (7, 2, 3)]))

# %% guess-paper-prose [markdown]
"""
## What it costs, on paper

The model of *Training for Speech Recognition on Coprocessors* (ADMS 2020, arXiv 2003.12366) has one convolution of width 11 with 600 outputs and stride 2, then five LSTM layers of width 800, in one direction, then a linear layer. **How many million parameters are that?**
"""

# %% guess-paper
guess("20.paper_parameters", 10, "million")

# %% cost-prose [markdown]
"""
### Exercise 20.cost

Write `speech_cost(config)`: of a model of convolutions (`config.kind == "conv"`) or with LSTM layers (`"lstm"`), a dictionary with its `"parameters"`, and with the `"flops"` of its forward pass for a second of audio (100 frames): the multiplications and the additions of its products with weights, nothing else.

1. A convolution of `config.strides` leaves fewer frames a second, has width × `config.channels` × `config.kernel` weights and no bias; batch norm adds a scale and a shift for each channel. The model of kind `"conv"` has `config.layers` more with stride 1, from `config.channels` to `config.channels`.
2. An LSTM layer has four gates, each with weights for its input and for its state of `config.hidden`, and two biases. The last layer has `config.vocabulary` outputs, with biases.

*Hint:* each weight is multiplied and added once for every frame that its layer writes. `config.mel_bins` is the first width.
"""

# %% answer 20.cost
import labkit


def speech_cost(config: labkit.models.SpeechConfig) -> dict[str, float]:
    """The model's "parameters", and "flops" of its forward pass for a second of audio."""
    ### BEGIN SOLUTION
    frames_a_s, width = 100, config.mel_bins
    parameters, flops = 0, 0
    blocks = config.layers if config.kind == "conv" else 0
    for stride in [*config.strides, *[1] * blocks]:
        frames_a_s /= stride
        weights = width * config.channels * config.kernel
        parameters += weights + 2 * config.channels  # batch norm scales and shifts each channel
        flops += 2 * weights * frames_a_s  # a multiplication and an addition
        width = config.channels
    for _ in range(config.layers if config.kind == "lstm" else 0):
        weights = 4 * config.hidden * (width + config.hidden)  # four gates, of the input and of the state
        parameters += weights + 2 * 4 * config.hidden  # torch's LSTM has two biases a gate
        flops += 2 * weights * frames_a_s
        width = config.hidden
    parameters += (width + 1) * config.vocabulary
    return {"parameters": parameters, "flops": flops + 2 * width * config.vocabulary * frames_a_s}
    ### END SOLUTION


# %% check 20.cost points=5
check("20.cost", speech_cost)

# %% checks
ADMS = SpeechConfig(29, "lstm", 600, 5, hidden=800, kernel=11, strides=(2,))


TINY = SpeechConfig(10, "conv", 16, 3, kernel=3, strides=(2, 2), mel_bins=20)


EXERCISES["20.cost"] = WrittenExercise(
    speech_cost,
    module="speech",
    cases=(
        Case("a small model of convolutions", lambda code: code(TINY)),
        Case("two recurrent layers", lambda code: code(SpeechConfig(10, "lstm", 12, 2, hidden=7, strides=(3,)))),
        Case("the model of ADMS 2020", lambda code: code(ADMS)),
    ),
    mistakes={
        ('"flops": flops + 2 *', '"flops": flops / 2 +'): "A multiplication and an addition: two operations each.",
        ("frames_a_s /= stride", "pass"): (
            "After a stride fewer frames a second are left, and each layer computes for those that it writes."
        ),
        ("flops += 2 * weights * frames_a_s  #", "flops += 2 * weights * frames_a_s * stride  #"): (
            "A convolution computes for the frames that it writes, after its stride."
        ),
    },
    hint="Of a convolution width × channels × kernel weights, of an LSTM layer 4 × hidden × (width + hidden), of the "
    "last layer width × vocabulary; each weight is multiplied and added once for each frame that its layer writes.",
    explanation="On paper, before anything was built.",
)

# %% paper-prose [markdown]
"""
Your count of the paper's model, then PyTorch's of both.
"""

# %% paper
paper = labkit.models.SpeechConfig(len(speech.alphabet), "lstm", 600, 5, hidden=800, kernel=11, strides=(2,))
models = {"ADMS 2020": labkit.models.SpeechModel(paper), "this lab's": labkit.models.SpeechModel(config, block=MyBlock)}
costs = {name: speech_cost(model.config) for name, model in models.items()}
reveal("20.paper_parameters", costs["ADMS 2020"]["parameters"] / 1e6)
print({name: sum(weight.numel() for weight in model.parameters()) for name, model in models.items()})

# %% guess-times-prose [markdown]
"""
**How many times as long as this lab's model does the paper's take here for the same audio?** Divide the operations first. Then think of two things: an LSTM goes through its outputs one after the other, and large products keep cores busier than many small ones.
"""

# %% guess-times
print({name: f"{cost['flops'] / 1e6:,.1f} million operations a second of audio" for name, cost in costs.items()})
guess("20.times_as_long", 200, "times")

# %% measure-prose [markdown]
"""
Sixteen utterances at once, by the two models in turns: a pass each to warm up, then three. Close what else runs: on busy cores the ratio is another.
"""

# %% measure
import timeit

frames = {"smoke": 24, "standard": 200, "full": 1000}[profile]


def forward_s(model):
    inputs = torch.randn(16, frames, 80), torch.full((16,), frames)
    with torch.inference_mode():
        return timeit.timeit(lambda: model.eval()(*inputs), number=1)


rounds = [[forward_s(model) for model in models.values()] for _ in range(4)]

# %% measured-prose [markdown]
"""
The shortest of three counts. Operations divided by time say how well each uses the cores.
"""

# %% measured
import numpy as np
import pandas as pd

costs = pd.DataFrame(costs).T
costs["ms a second of audio, measured"] = 1e5 * np.min(rounds[1:], axis=0) / 16 / frames
costs["GFLOP/s"] = costs["flops"] / costs["ms a second of audio, measured"] / 1e6
labkit.plots.show(costs.rename(columns={"flops": "flops a second of audio"}))
times_as_long = costs.iloc[0, 2] / costs.iloc[1, 2]
reveal("20.times_as_long", times_as_long)

# %% why-cost-prose [markdown]
"""
On Common Voice, recordings of people, the thesis behind the paper's code reports word error rates of 17.4, 13.7, 10.5 and 14.1 % with 1, 3, 5 and 7 LSTM layers. In two or three sentences: the ratio of the operations and that of the times, why they differ, and what more layers bought for their time.
"""

# %% explain 20.why_cost points=2 grade_id="20-why-cost"
### BEGIN SOLUTION
answer = model_answer("20.why_cost")
### END SOLUTION
explain("20.why_cost", answer)

# %% checks
EXERCISES["20.why_cost"] = Explanation(
    rubric=(
        "numbers: the ratio of operations on paper, and the ratio of times measured",
        "why: what an LSTM cannot do at once, and what size of product each model gives the cores",
        "trade-off: what more layers bought the thesis for their time",
    ),
    model="By arithmetic the paper's model does more than 200 times the operations a second of audio, and the times "
    "differ by another factor than that. A large product uses the cores better than many small ones, where each "
    "operation costs a start, while an LSTM has to go through the outputs one after the other and reads its weights "
    "each time. In the thesis two more layers bought three to four points of WER up to five, and two more cost as "
    "many operations and lost as much.",
)

# %% loss-prose [markdown]
"""
## Can it learn at all?

### Exercise 20.loss

Write `loss_of(model, batch)`: the mean CTC loss, as `F.ctc_loss` takes it by default. `batch` has `features` `(B, T, 80)`, `feature_lengths` `(B,)`, `tokens` `(B, S)` and `token_lengths` `(B,)`; the model returns log-probabilities `(B, T', V)` and their lengths.

*Hint:* `F.ctc_loss` wants the outputs first, `(T', B, V)`, and the lengths of what is real.
"""

# %% answer 20.loss
import torch.nn.functional as F
from torch import Tensor, nn

import labkit


def loss_of(model: nn.Module, batch: labkit.data.speech.Batch) -> Tensor:
    """The mean CTC loss of a batch, on which no padding counts."""
    ### BEGIN SOLUTION
    log_probabilities, lengths = model(batch.features, batch.feature_lengths)  # (B, T', V)
    return F.ctc_loss(log_probabilities.transpose(0, 1), batch.tokens, lengths, batch.token_lengths)
    ### END SOLUTION


# %% check 20.loss points=4
check("20.loss", loss_of)


# %% checks
class _Recogniser(nn.Module):
    """Writes an output for every two frames, of which it sees no others."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        torch.manual_seed(2)
        self.dropout, self.characters = nn.Dropout(dropout), nn.Linear(2 * 3, 6)
        self.seen: list[tuple[bool, bool, int]] = []
        """Of each forward pass whether it was for training, whether it kept a gradient, of how many utterances"""

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        self.seen.append((self.training, torch.is_grad_enabled(), len(features)))
        pairs = features[:, : features.shape[1] // 2 * 2].reshape(len(features), -1, 6)
        return self.characters(self.dropout(pairs)).log_softmax(2), lengths // 2


def _batch(seed: int, utterances: int = 3, noise: float = 0.0) -> Batch:
    """Utterances of unlike length whose features name the character that is said; `noise` fills the padding."""
    generator = torch.Generator().manual_seed(seed)
    token_lengths = torch.arange(utterances) % 3 + 2
    tokens = torch.randint(1, 6, (utterances, 4), generator=generator) * (torch.arange(4) < token_lengths[:, None])
    lengths = 4 * token_lengths + 2
    features = torch.zeros(utterances, 24, 3)
    for row, said in zip(features, tokens, strict=True):
        for place, token in enumerate(said[said > 0].tolist()):
            row[4 * place : 4 * place + 2] = torch.tensor([token & 1, token >> 1 & 1, token >> 2], dtype=torch.float32)
    padding = torch.arange(24) >= lengths[:, None]  # (B, T)
    features += noise * padding.unsqueeze(2) * torch.randn(features.shape, generator=generator)
    texts = ["".join(" abcdef"[one] for one in said if one) for said in tokens.tolist()]
    return Batch(features, lengths, tokens, token_lengths, texts)


_OF_PADDING = (", lengths, ", ", torch.full_like(lengths, log_probabilities.shape[1]), ")


def _gradient_of_loss(code: Any) -> Tensor:
    model = _Recogniser()
    code(model, _batch(4)).backward()
    return model.characters.weight.grad


EXERCISES["20.loss"] = WrittenExercise(
    loss_of,
    module="speech",
    cases=(
        Case("three utterances of unlike length", lambda code: code(_Recogniser(), _batch(1))),
        Case("the same with noise for padding", lambda code: code(_Recogniser(), _batch(1, noise=3.0))),
        Case("one utterance", lambda code: code(_Recogniser(), _batch(2, 1))),
        Case("the gradient", _gradient_of_loss),
    ),
    mistakes={
        _OF_PADDING: "Padding is trained on: give ctc_loss the lengths that the model returns.",
        ("batch.token_lengths)", 'batch.token_lengths, reduction="sum")'): (
            "The mean over the batch, as ctc_loss gives it by default."
        ),
        (".transpose", ".exp().transpose"): "ctc_loss takes logarithms, which the model returns already.",
    },
    hint="F.ctc_loss(log_probabilities, tokens, lengths, token_lengths): it wants the outputs first, (T', B, V), so "
    "transpose; lengths are those that the model returns with them.",
    explanation="The same with any padding, so none is trained on.",
)

# %% overfit-prose [markdown]
"""
### Exercise 20.overfit

Before any long run: can the model learn a few utterances by heart? If not, there is a fault, and more data will not fix it. Write `overfit(model, batch, steps, lr)`: so many steps of Adam on one batch; the list of losses, as floats, each before its step.
"""

# %% answer 20.overfit
import torch
from torch import nn

import labkit


def overfit(model: nn.Module, batch: labkit.data.speech.Batch, steps: int, lr: float) -> list[float]:
    """The losses of some steps of Adam on one and the same batch."""
    ### BEGIN SOLUTION
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
    ### END SOLUTION


# %% check 20.overfit points=4
check("20.overfit", overfit)


# %% checks
def _learnt(code: Any, steps: int) -> dict[str, Any]:
    model = _Recogniser()
    losses = code(model, _batch(1), steps, 0.05)
    return {
        "losses": len(losses),
        "of them floats": sum(isinstance(each, float) for each in losses),
        "passes of a model that trains": sum(training for training, _, _ in model.seen),
        "each": losses,
    }


EXERCISES["20.overfit"] = WrittenExercise(
    overfit,
    module="speech",
    cases=(
        Case("six steps on three utterances", lambda code: _learnt(code, 6), 1e-3),
        Case("no step", lambda code: _learnt(code, 0)),
        Case("30 steps", lambda code: code(_Recogniser(), _batch(3), 30, 0.05)[-1], 1e-2),
    ),
    mistakes={
        ("optimizer.zero_grad()", "pass"): "Gradients add up from step to step: clear them after each (zero_grad).",
        ("optimizer.step()", "pass"): (
            "The weights stay as they are: optimizer.step() comes after backward, and before the gradients are cleared."
        ),
        ("optimizer.step()", "torch.optim.Adam(model.parameters(), lr=lr).step()"): (
            "Make the optimiser once: a new one at each step has forgotten its moments."
        ),
    },
    hint="One Adam; at each step loss_of, backward, step, zero_grad, and loss.item() into the list.",
    explanation="A model that cannot learn a few utterances by heart has a fault, and more data would not fix it.",
)

# %% guess-overfit-prose [markdown]
"""
Eight utterances, without dropout and masks. **At which step is the loss first below 0.1?**
"""

# %% guess-overfit
guess("20.overfit_step", 100, "steps")

# %% by-heart-prose [markdown]
"""
The first loss is that of a model that knows nothing; after a few steps most outputs are blanks, and the letters come late.
"""

# %% by-heart
from dataclasses import replace

torch.manual_seed(seed)
plain = labkit.models.SpeechModel(replace(config, dropout=0.0, mask_bins=0, mask_frames=0), block=MyBlock)
losses = overfit(plain, batch, {"smoke": 10}.get(profile, 60), lr=4e-3)
reveal("20.overfit_step", next((step for step, loss in enumerate(losses) if loss < 0.1), None))
print(f"{losses[0]:.1f} at first, {losses[-1]:.3f} after {len(losses)} steps")

# %% transcribe-prose [markdown]
"""
## Train

### Exercise 20.transcribe

Write `transcribe(model, batches, characters)`: two lists of texts, what was said (`batch.texts`) and what the model reads, with your `greedy`. Id 1 is the first of `characters`.

1. The model does not train meanwhile: `model.eval()`, and no gradients.
2. Afterwards it trains again: `model.train()`.
"""

# %% answer 20.transcribe
from collections.abc import Iterable

import torch
from torch import nn

import labkit


def transcribe(
    model: nn.Module, batches: Iterable[labkit.data.speech.Batch], characters: str
) -> tuple[list[str], list[str]]:
    """What was said in all utterances, and what the model reads."""
    ### BEGIN SOLUTION
    said, read = [], []
    model.eval()
    with torch.inference_mode():
        for batch in batches:
            log_probabilities, lengths = model(batch.features, batch.feature_lengths)
            said += batch.texts
            read += ["".join(characters[one - 1] for one in ids) for ids in greedy(log_probabilities, lengths)]
    model.train()
    return said, read
    ### END SOLUTION


# %% check 20.transcribe points=4
check("20.transcribe", transcribe)


# %% checks
def _transcribed(code: Any, utterances: int = 5) -> dict[str, Any]:
    model = _Recogniser(0.5)
    overfit(model.eval(), _batch(6), 60, 0.1)
    model.train().seen.clear()
    said, read = code(model, [_batch(6, utterances), _batch(7, 2, noise=5.0)], "ABCDEFGH")
    seen = {
        "passes with dropout": sum(one[0] for one in model.seen),
        "with a gradient": sum(one[1] for one in model.seen),
    }
    return {"said": said, "read": read} | seen | {"trains again afterwards": model.training}


EXERCISES["20.transcribe"] = WrittenExercise(
    transcribe,
    module="speech",
    cases=(
        Case("two batches of seven utterances", _transcribed),
        Case("three utterances", lambda code: _transcribed(code, 1)),
    ),
    mistakes={
        ("model.eval()", "pass"): "Dropout is on and batch norm learns from what it hears: model.eval() first.",
        ("model.train()", "pass"): "Whoever trains on finds the model in evaluation mode: model.train() at the end.",
        ("inference_mode()", "enable_grad()"): "Gradients are kept for nothing: torch.inference_mode().",
    },
    hint="eval, inference_mode, greedy of what the model returns, characters[id - 1] of each id, joined; train.",
    explanation="Texts as they were said and as they were read, with your own decoder.",
)

# %% loop-prose [markdown]
"""
### Exercise 20.loop

Write `train(run, model, optimizer, batches, score, epochs, clip)`. `run` is a `labkit.Run`, which keeps the clocks and ends the loops when the target is reached or the time is up.

1. `run.epochs(epochs)` gives the epochs, and `run.batches(batches)` the batches of each. Of each batch: the loss, the gradients, which `nn.utils.clip_grad_norm_` clips to the norm `clip` (CTC's are now and then very large), a step of the optimiser, and no gradient left over.
2. Then `run.step(loss, samples=...)`, with the number of utterances; and where `run.due` says so, `run.evaluate(cer=score())`.
"""

# %% answer 20.loop
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

import labkit


def train(
    run: Any,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[labkit.data.speech.Batch],
    score: Callable[[], float],
    epochs: int,
    clip: float = math.inf,
) -> None:
    """Train on `batches`; `score()` is the CER on voices that are never trained on."""
    ### BEGIN SOLUTION
    for _ in run.epochs(epochs):
        for batch in run.batches(batches):
            loss = loss_of(model, batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, samples=len(batch.texts))
            if run.due:
                run.evaluate(cer=score())
    ### END SOLUTION


# %% check 20.loop points=6
check("20.loop", train)


# %% checks
def _trained(
    code: Any, *, epochs: int, clip: float = math.inf, noise: float = 0.0, most_steps: float = math.inf
) -> dict[str, Any]:
    """What a loop does with five batches, and a sixth of a speaker who is held out."""

    def once() -> tuple[WatchedRun, _Recogniser]:
        run, model = WatchedRun(most_steps=most_steps), _Recogniser(0.1)
        *batches, held_out = (_batch(seed, 2 + seed % 3, noise) for seed in range(6))
        held_out = replace(held_out, features=held_out.features.flip(1))

        def score() -> float:
            _, read = transcribe(model, [held_out], "abcdef")
            return float(sum(map(len, read)))

        code(run, model, torch.optim.SGD(model.parameters(), lr=0.5), batches, score, epochs, clip)
        return run, model

    (run, model), (again, _) = once(), once()
    return {
        "epochs that the run is asked for": run.epochs_asked,
        "samples": sum(run.samples),
        "utterances trained on": sum(count for training, gradient, count in model.seen if training and gradient),
        "evaluations": len(run.evaluated),
        "losses": run.losses,
        "scores": run.evaluated,
        "the loss falls": sum(run.losses[-5:]) < sum(run.losses[:5]),
        "the same seed repeats": run.losses == again.losses,
    }


EXERCISES["20.loop"] = WrittenExercise(
    train,
    module="speech",
    cases=(
        Case("four epochs of five batches", lambda code: _trained(code, epochs=4), 1e-3),
        Case("noise for padding", lambda code: _trained(code, epochs=1, noise=3.0), 1e-3),
        Case("gradients clipped to a norm of 0.1", lambda code: _trained(code, epochs=2, clip=0.1), 1e-3),
        Case("a run that is over after 4 steps", lambda code: _trained(code, epochs=2, most_steps=4), 1e-3),
    ),
    mistakes={
        ("optimizer.zero_grad()", "pass"): "Gradients add up from step to step: clear them after each (zero_grad).",
        ("optimizer.step()", "optimizer.zero_grad(), optimizer.step()"): (
            "The gradients are cleared before the optimiser uses them."
        ),
        ("samples=len(batch.texts)", "samples=1"): (
            "Tell run.step how many utterances the batch had: samples=len(batch.texts)."
        ),
    },
    hint="loss_of, backward, clip_grad_norm_, step, zero_grad, run.step, and run.evaluate(cer=score()) where run.due.",
    explanation="The loss falls, the same seed repeats it, padding changes nothing, held-out voices are only scored.",
)

# %% guess-time-prose [markdown]
"""
The target of this corpus is a CER of 0.05 on the validation voices, by your decoder and your metric. One pass over the training split is evaluated three times. **After how many seconds will it be there?** A run that does not get there before `limit_s` is censored.
"""

# %% guess-time
limit_s = {"smoke": 2, "standard": 180, "full": 600}[profile]
guess("20.time_to_target", 60.0, "s")

# %% guess-share-prose [markdown]
"""
Features could be computed again each time an utterance comes up, or once, and kept. **If they were computed each time, what share of the time of an utterance, features and training together, would they take?** It is 1.7 s of sound on average; training takes about three forward passes, of which you counted the operations.
"""

# %% guess-share
guess("20.features_share", 20, "%")

# %% before-prose [markdown]
"""
The model, which has learnt nothing yet, and how it is scored:
"""

# %% before
torch.manual_seed(seed)
model = labkit.models.SpeechModel(config, block=MyBlock)


def cer_of(model, split):
    return character_error_rate(*transcribe(model, labkit.data.speech.ByLength(split, 64), characters))


few = [voices.batch(range(0, len(voices), len(voices) // 4))]
said, before = transcribe(model, few, characters)

# %% run-prose [markdown]
"""
Everything in the loop is yours. The test split has other voices still; it decides nothing, and is scored at the end, with the weights that were best on the validation voices.
"""

# %% run
from pathlib import Path

runs, training = Path(runs_dir) / "notebooks", speech.split("train")
settings = {"runs_dir": runs, "seed": seed, "max_seconds": limit_s, "evaluate_every": len(training) // 3}
with labkit.Run("speech", target="cer <= 0.05", config={"batch_size": 32, "lr": 4e-3}, **settings) as run:
    run.keep(model=model)
    adam = torch.optim.Adam(model.parameters(), lr=4e-3)
    batches = labkit.data.speech.BucketedBatches(training, 32, seed)
    train(run, model, adam, batches, lambda: cer_of(model, voices), epochs=12, clip=5.0)
    if run.load_best():
        run.test(cer=cer_of(model, speech.split("test")))

# %% reveal-time-prose [markdown]
"""
How far off were you?
"""

# %% reveal-time
reveal("20.time_to_target", run.result["time_to_target_s"])
print(f"{run.result['steps']} steps, {run.result['samples_per_s']:.0f} utterances/s; over by: {run.result['reason']}")

# %% curve-prose [markdown]
"""
The curve; its hover text gives time and samples. The error axis is logarithmic: from 10 % to 5 % is as far as from 100 % to 50 %.
"""

# %% curve
table, evaluations = labkit.tta.run_table([run.folder]), labkit.tta.curves([run.folder])
crossed = labkit.tta.crossings(evaluations, table, 0.05)
labkit.plots.show(
    labkit.plots.figure_time_to_accuracy(
        evaluations, 0.05, crossings=crossed, survival=labkit.tta.survival(evaluations, table, 0.05)
    )
)

# %% after-prose [markdown]
"""
Before and after: which letters are still wrong? Are they the ones you would have mistaken?
"""

# %% after
_, after = transcribe(model, few, characters)
pd.DataFrame({"said": said, "before": [text[:20] for text in before], "after": after})

# %% share-prose [markdown]
"""
And what features would have cost, computed again for each utterance:
"""

# %% share
log_energies, filters = mine("20.features"), labkit.data.speech.mel_filters()
some = [torch.from_numpy(one) for one in sound.waves[:100]]
features_ms = 10 * min(timeit.repeat(lambda: [log_energies(one, filters) for one in some], number=1, repeat=2))
step_ms = 1000 * run.result["train_s"] / run.result["samples"]
reveal("20.features_share", 100 * features_ms / (features_ms + step_ms))
print(f"features {features_ms:.2f} ms an utterance, training {step_ms:.2f} ms (measured)")

# %% why-cached-prose [markdown]
"""
In two or three sentences: is it worth keeping them, why, and what does it cost?
"""

# %% explain 20.why_cached points=2 grade_id="20-why-cached"
### BEGIN SOLUTION
answer = model_answer("20.why_cached")
### END SOLUTION
explain("20.why_cached", answer)

# %% checks
EXERCISES["20.why_cached"] = Explanation(
    rubric=(
        "numbers: what features cost compared with a step, measured here",
        "why: they are the same in every epoch, and the weights are not",
        "trade-off: what keeping them costs (disk or memory, changes of the sound while training)",
    ),
    model="Features of a batch took a measurable share of the step's time here, and they are the same in every epoch, "
    "so computing them once and keeping them saves that share from the second epoch on. What it costs is disk (160 "
    "bytes a frame in float16, half of the sound's 320), and that while training only the features can still be "
    "changed (their speed, masks, noise on them), no longer the sound itself: another room, microphone or codec.",
)

# %% voices-prose [markdown]
"""
Now the voices that were never looked at. Expect them to be worse than the target: training stopped when the *validation* voices were read well enough, and these are new ones.
"""


# %% word-error-rate
def word_error_rate(said, read):
    pairs = [(one.split(), other.split()) for one, other in zip(said, read, strict=True)]
    return sum(edit_distance(*pair) for pair in pairs) / sum(len(one) for one, _ in pairs)


# %% test-voices-prose [markdown]
"""
Both rates, by your functions.
"""

# %% test-voices
rates = {}
for name in ("validation", "test"):
    texts = transcribe(model, labkit.data.speech.ByLength(speech.split(name), 64), characters)
    rates[name] = {"voices": len(set(speech.split(name).speakers))}
    rates[name] |= {"CER (%)": 100 * character_error_rate(*texts), "WER (%)": 100 * word_error_rate(*texts)}
labkit.plots.show(pd.DataFrame(rates).T)

# %% why-voices-prose [markdown]
"""
In two or three sentences: the rates on both kinds of voices and why they differ, why WER is the larger, and what so few voices in a split can say.
"""

# %% explain 20.why_voices points=2 grade_id="20-why-voices"
### BEGIN SOLUTION
answer = model_answer("20.why_voices")
### END SOLUTION
explain("20.why_voices", answer)

# %% checks
EXERCISES["20.why_voices"] = Explanation(
    rubric=(
        "numbers: the error rates on validation and test voices, and of words against characters",
        "why: which choice was made by looking at the validation voices, and why one letter makes a word wrong",
        "trade-off: what few voices in a split cost, and what more of them would",
    ),
    model="Training ended when the validation voices were read well enough, so their rate is the best of several "
    "looks, while the test voices chose nothing: theirs is the rate to expect of a new voice, and usually higher. "
    "A word is wrong if any of its letters is, so WER is a few times CER. With four or five voices a split one odd "
    "voice moves the rate a lot; more voices held out would say it better, and leave fewer to train on.",
)

# %% say-prose [markdown]
"""
## Say it yourself

Now your own voice. Record some numbers, or a command such as `show accuracy of run sixty four`, then run the two cells below; after another recording, run them again. The sound goes to this notebook's kernel and nowhere else. In code, a file does it, too: `wave = read_wave("me.wav")`, from `labkit.data.speech`.
"""

# %% say-record
from labkit_course import apparatus

recorder = apparatus.Recorder()
recorder

# %% say-hear-prose [markdown]
"""
Hear it as the model will. Mean and deviation are now those of this one utterance, and silence counts in them: with a second more of it at both ends, a trained model made four times the errors. So a tenth of a second is left, as in the corpus. Where nothing was recorded, a voice of the test split speaks.
"""

# %% say-hear
spoken = recorder.wave
if spoken is None:
    spoken = labkit.data.speech.WaveformUtterances(data, "test").waves[0]
    print("Nothing was recorded, so this is a voice of the test split.")
loud = np.flatnonzero(np.abs(spoken) > 0.05 * np.abs(spoken).max())
spoken = spoken[max(loud[0] - 1600, 0) : loud[-1] + 1600]
Audio(spoken, rate=16_000)

# %% say-see-prose [markdown]
"""
See it, and read what your model makes of it, by your functions from the wave to the text. It will mishear you more than the voices of the test split: all that it was trained on came from *one* synthesiser, which says a sound in nearly the same way each time, without breath, room or accent, so nothing has taught it that these do not matter.
"""

# %% say-see
normalise = mine("20.normalise")
log_mel = log_energies(F.pad(torch.from_numpy(spoken), (200, 200)), filters)
(heard,) = normalise([raise_valleys(log_mel)], ["me"])
with torch.inference_mode():
    (ids,) = greedy(*model.eval()(heard[None], torch.tensor([len(heard)])))
print("Your model reads:", "".join(characters[one - 1] for one in ids))
figure = labkit.plots.new_figure("Time (s)", "Mel bin (1: lowest frequency)")
figure.add_heatmap(name="measured", x0=0, dx=0.01, z=heard.T.numpy(), y0=1, dy=1, colorscale="Cividis")
figure.update_traces(showlegend=True, colorbar_title_text="deviations")
labkit.plots.show(figure)

# %% choices-prose [markdown]
"""
## What others chose

The thesis found log-mel features best, then MFCC (their cosine transform), then mel energies without the logarithm. The paper's scripts train with AdaDelta at learning rate 1.0 and clip nothing. Both can be tried here, at a few epochs. But a choice is not to be made on the voices that judge it later: hold out some of the *training* voices.

### Exercise 20.voices

Write `hold_out(speakers, count, seed)`: who speaks each utterance gives two lists of indices, of the utterances to train on, and of those of `count` speakers, whom `Random(seed).sample(sorted(set(speakers)), count)` draws (sorted, for a set has no order).
"""

# %% answer 20.voices
from random import Random


def hold_out(speakers: list[str], count: int, seed: int) -> tuple[list[int], list[int]]:
    """Indices of the utterances to train on, and of all those of `count` speakers, drawn by `seed`."""
    ### BEGIN SOLUTION
    chosen = Random(seed).sample(sorted(set(speakers)), count)
    kept = [index for index, speaker in enumerate(speakers) if speaker not in chosen]
    return kept, [index for index, speaker in enumerate(speakers) if speaker in chosen]
    ### END SOLUTION


# %% check 20.voices points=3
check("20.voices", hold_out)


# %% checks
def _utterances_held_out(speakers: list[str], count: int, seed: int) -> tuple[list[int], list[int]]:
    held_out = sorted(Random(seed).sample(range(len(speakers)), count))
    return [index for index in range(len(speakers)) if index not in held_out], held_out


EXERCISES["20.voices"] = WrittenExercise(
    hold_out,
    module="speech",
    cases=(
        Case("ten utterances of four speakers", lambda code: code(list("abcabdabca"), 1, 0)),
        Case("two of seven speakers", lambda code: code(list("ggfedcbaabcdefg"), 2, 5)),
        Case("none", lambda code: code(list("aba"), 0, 1)),
    ),
    mistakes={
        _utterances_held_out: "These are utterances: their speakers are heard in training, too. Draw speakers.",
        (" if speaker not in chosen", ""): "The held-out utterances are still among those that are trained on.",
        lambda *drawn: hold_out(*drawn)[::-1]: "Those to train on come first.",
    },
    hint="Draw the speakers as the text says; then two lists of indices.",
    explanation="A voice is on one side or on the other.",
)

# %% sounds-prose [markdown]
"""
Log-mel features of the training split by your function (the profile `smoke` takes the few of the validation split instead), from which the other two follow, and with valleys as deep as they are, as the thesis had them. Energies are divided by their mean, for the smallest deviation of `normalise` was made for logarithms.
"""

# %% sounds
from scipy.fft import dct

normalise = mine("20.normalise")
part = "validation" if profile == "smoke" else "train"
sound, speakers = labkit.data.speech.WaveformUtterances(data, part), speech.split(part).speakers
log_mels = [log_energies(F.pad(torch.from_numpy(one), (200, 200)), filters) for one in sound.waves]
energy = torch.cat(log_mels).exp().mean()
kinds = {"log-mel": log_mels, "mel": [one.exp() / energy for one in log_mels]}
kinds["MFCC"] = [torch.from_numpy(dct(one.numpy(), norm="ortho")[:, :40]) for one in log_mels]

# %% splits-prose [markdown]
"""
Held-out speakers on one side, all others on the other, normalised by your function.
"""

# %% splits
import numpy as np

kept, held_out = hold_out(speakers, 1 if profile == "smoke" else 4, seed)


def split_of(features, indices):
    chosen = [features[index] for index in indices]
    names = [[each[index] for index in indices] for each in (sound.texts, speakers)]
    return labkit.data.speech.SpeechSplit(np.array([len(one) for one in chosen]), *names, torch.cat(chosen).numpy())


# %% compare-prose [markdown]
"""
One short run: some epochs on these features with this optimiser, scored once, at its end.
"""

# %% compare
epochs, seeds = {"smoke": (1, [0]), "standard": (3, [0, 1]), "full": (12, range(5))}[profile]


def short_run(kind, seed, optimiser=torch.optim.Adam, lr=4e-3, clip=5.0):
    torch.manual_seed(seed)
    features = normalise(kinds[kind], speakers)
    own = labkit.models.SpeechModel(replace(config, mel_bins=features[0].shape[1], mask_bins=0), block=MyBlock)
    batches, rest = labkit.data.speech.BucketedBatches(split_of(features, kept), 32, seed), split_of(features, held_out)
    with labkit.Run("choice", target="min cer", runs_dir=runs, seed=seed, evaluate_every=10**9) as run:
        train(run, own, optimiser(own.parameters(), lr=lr), batches, lambda: cer_of(own, rest), epochs, clip)
    return 100 * run.result["best_validation"]


# %% kinds-prose [markdown]
"""
CER on the held-out training voices for each kind of features, with Adam.
"""

# %% kinds
cers = {f"Adam, {kind}": [short_run(kind, each) for each in seeds] for kind in kinds}

# %% guess-adadelta-prose [markdown]
"""
**At equal steps on log-mel features, how many times Adam's character error rate is AdaDelta's?** Below 1, AdaDelta is better.
"""

# %% guess-adadelta
guess("20.adadelta", 1.5, "times")

# %% compared-prose [markdown]
"""
All of them, a column a seed.
"""

# %% compared
adadelta = {"optimiser": torch.optim.Adadelta, "lr": 1.0, "clip": math.inf}
cers["AdaDelta, log-mel"] = [short_run("log-mel", each, **adadelta) for each in seeds]
table = pd.DataFrame(cers, index=[f"CER (%), seed {each}" for each in seeds]).T
mean = table.mean(axis=1)
labkit.plots.show(table.assign(**{"mean CER (%)": mean}))
reveal("20.adadelta", mean["AdaDelta, log-mel"] / mean["Adam, log-mel"])

# %% claims-prose [markdown]
"""
## Judge

The scripts of ADMS 2020 set AdaDelta, learning rate 1.0 and no clipping, without saying why. The claim to judge is that this trains such a model as well as the kit's Adam with clipping does, at equal steps. (`does not hold here` where AdaDelta's error rate is more than a tenth higher.)
"""

# %% claim H6 points=1
from labkit_course import claim

ours, theirs = mean["Adam, log-mel"], mean["AdaDelta, log-mel"]
steps = f"{epochs} × {len(kept):,} utterances, seeds {', '.join(map(str, seeds))}"
### BEGIN SOLUTION
ratio = theirs / ours
learnt = "holds here" if ratio <= 1.1 else "does not hold here"
verdict = learnt if ours < 50 else "cannot be tested here"  # in so few steps
answer = verdict, f"at equal steps its CER is {ratio:.2f} times Adam's; a small model, few seeds, made-up voices"
### END SOLUTION
claim("H6", f"CER {theirs:.1f} % with AdaDelta, {ours:.1f} % with Adam; {steps}", answer)

# %% layers-prose [markdown]
"""
Layers take twenty minutes to try (`labkit sweep speech_layers`), so these runs are *recorded*: recognisers of 1, 3, 5 and 7 LSTM layers with equally many parameters, 16 passes over the training voices, three seeds, scored on the test voices. Beside them the thesis' figures, of much more speech.
"""

# %% layers
import json

recorded = json.loads((labkit.project.shipped_datasets() / "recorded" / "speech_layers.json").read_text())
layers = 100 * pd.DataFrame(recorded["cells"]).pivot_table("test_wer", "layers", "seed")
layers.columns = [f"WER (%), seed {each}, recorded" for each in layers]
labkit.plots.show(layers.assign(thesis=[17.4, 13.7, 10.5, 14.1]))

# %% claim-H7-prose [markdown]
"""
The thesis' order is five layers best, then three, seven and one. Is it the same here? A recogniser with 95 % of its words or more wrong in every seed has not left the plateau on which little but frequent letters is written: where any is so, the order cannot be tested, and your reason says which, and what the others show.
"""

# %% claim H7 points=1
layers_mean = layers.mean(axis=1)
### BEGIN SOLUTION
same = list(layers_mean.sort_values().index) == [5, 3, 7, 1]
stuck = " and ".join(map(str, layers.index[(layers >= 95).all(axis=1)]))
verdict = "cannot be tested here" if stuck else "holds here" if same else "does not hold here"
best = layers_mean.idxmin()
plateau = f"{stuck} layers never left the plateau under this one recipe; of the others "
answer = verdict, (plateau if stuck else "") + f"{best} is best"
### END SOLUTION
words = ", ".join(f"{value:.1f} % with {count}" for count, value in layers_mean.items())
claim("H7", f"WER {words} layers at equal parameters", answer, how="recorded")

# %% claim-H8-prose [markdown]
"""
The thesis has 13.7, 14.4 and 14.8 % of words wrong with log-mel, MFCC and mel. Is the *order* the same here? Say in your reason how far the means lie apart, beside what two seeds of one kind differ by.
"""

# %% claim H8 points=1
order = [mean[f"Adam, {kind}"] for kind in ("log-mel", "MFCC", "mel")]
### BEGIN SOLUTION
learnt = "holds here" if order == sorted(order) else "does not hold here"
verdict = learnt if max(order) < 50 else "cannot be tested here"  # in so few steps
seeds_apart = (table.max(axis=1) - table.min(axis=1)).max()
answer = verdict, f"judged by the order of means, while seeds lie up to {seeds_apart:.1f} points apart; made-up voices"
### END SOLUTION
words = "CER {:.1f}, {:.1f} and {:.1f} % with log-mel, MFCC and mel".format(*order)
claim("H8", f"{words}; {steps}", answer)

# %% scores-prose [markdown]
"""
How good were your guesses?
"""

# %% scores
from labkit_course import score_notebook

score_notebook()

# %% results-prose [markdown]
"""
The numbers of this notebook, each with the bounds that hold on any machine, for a program to read:
"""

# %% results tags=["results"]
from labkit_course import results

results(
    times_as_long=(times_as_long, 1, 1e5),
    overfit_end_over_start=(losses[-1] / losses[0], 0, 0.95),
    time_to_target_s=(run.result["time_to_target_s"], 1, 600),
    test_cer=(run.result["metrics"].get("cer"), 0, 5),
)

# %% recap [markdown]
"""
## Recap

- Speech enters as a log-mel picture: 80 bins, 100 columns a second, computed once and kept.
- CTC merges repeats, then drops blanks; a blank between equal letters keeps both. Only real outputs count, in the loss and in reading.
- Parameters and operations can be known before anything is built; the time also depends on what has to wait for what.
- A model that cannot learn eight utterances by heart has a fault.
- One wrong letter makes a wrong word, so WER is usually the larger of the two rates.
- Held-out *voices*, not held-out sentences, show whether the model learnt to hear, and choices are made on other voices than those that judge.

**Next:** the same on platforms of three sizes: [Speech recognition on three budgets](21_speech_on_budgets.ipynb)
"""
