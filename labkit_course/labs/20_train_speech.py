# %% opening [markdown] packages="soundfile scipy" disk_gb=0.5
r"""
# Train a speech recogniser to a target

After this notebook you will be able to

- **compute** what a recogniser hears, a log-mel picture, and **compare** its cost with that of training;
- **decode** a CTC model's output, **score** it, and **write** the CTC loss that it is trained with;
- **count** the parameters and operations of a recogniser before it is built;
- **train** one with a step of your own, and **judge** it on voices it has never heard.

**Time:** 120 minutes in two halves (45 and 75). You write six functions of 3 to 12 lines. The machine computes for about two minutes on 2 quiet CPU cores. No GPU is needed.

**Prerequisites:** [Start here](00_start_here.ipynb), and PyTorch. Headphones help, and a microphone for your own voice.
"""

# %% checks
import operator
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labkit.data.speech import Batch
from labkit.models import ConvBlock
from labkit_course.exercise import Case, Explanation, WrittenExercise
from labkit_course.lab import from_lab

# Shapes: B batch, T frames or outputs, C channels, V alphabet with the blank (0), S states of an alignment.
# Shapes: n samples, T frames, K bins.
gradient = from_lab("10", "gradient")
MODULE = "speech"
EXERCISES = {}

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full
runs_dir = "runs"  # run folders are made in its subfolder notebooks
data = "shipped"  # the corpus that comes with labkit
seed = 0

# %% corpus-prose [markdown]
"""
## Listen

The corpus is an hour of spoken numbers and commands, made by a speech synthesiser (espeak-ng). That is far easier than recordings of people, so error rates here say nothing about real speech. The model, the loss and the costs are real. The voices of the validation and test splits do not occur in training.
"""

# %% corpus
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from IPython.display import Audio

import labkit
from labkit_course import check, claim, drawing, explain, guess, mine, model_answer, paired_times, reveal

# %% corpus-load-prose [markdown]
"""
The first call prepares the corpus. Play the first utterance. Could you write down what it says? `sound.texts[0]` has the answer.
"""

# %% corpus-load
speech = labkit.data.speech.load_speech(data)
voices, characters = speech.split("validation"), speech.alphabet.characters
sound = labkit.data.speech.WaveformUtterances(data, "validation")
Audio(sound.waves[0], rate=16_000)

# %% features-prose [markdown]
r"""
## What the model hears

Sound has 16,000 numbers per second. A **log-mel** picture has a column every 10 ms and 80 rows, which are frequencies, spaced as the ear spaces them. Each cell is the logarithm of the energy there.

### Exercise 20.features

Write `log_energies(wave, filters)`: a wave `(n,)` and the filters' weights `(257, K)` give features `(T, K)`.

1. Cut the wave into frames of 400 samples that begin 160 apart (25 ms long, 10 ms apart). Multiply each by `torch.hann_window(400)`.
2. Take each frame's spectrum by `torch.fft.rfft` with `n=512`: 257 complex numbers. Their squared magnitudes, weighted by each filter and summed, are the energies. Add $10^{-6}$, and take the logarithm.

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
check("20.features", log_energies)


# %% checks
def _sound(samples: int, loudness: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(samples)
    time_s = torch.arange(samples) / 16_000
    wave = torch.sin(2 * torch.pi * (300 + 900 * time_s) * time_s) + 0.1 * torch.randn(samples, generator=generator)
    return loudness * wave, torch.rand(257, 12, generator=generator) / 100


def _frame_by_frame(wave: Tensor, filters: Tensor) -> Tensor:
    rows = []
    for start in range(0, len(wave) - 399, 160):
        found = torch.fft.rfft(wave[start : start + 400] * torch.hann_window(400), n=512)
        energies = (found.real**2 + found.imag**2) @ filters
        rows.append(torch.log(energies + 1e-6))
    return torch.stack(rows)


EXERCISES["20.features"] = WrittenExercise(
    log_energies,
    Case("half a second of a rising tone", lambda code: code(*_sound(8000))),
    Case("a single frame", lambda code: code(*_sound(400))),
    Case("a number of samples that is no multiple of the hop", lambda code: code(*_sound(1999))),
    Case("a tone that can hardly be heard", lambda code: code(*_sound(800, 1e-4))),
    mistakes={
        (" * torch.hann_window(400)", ""): "Each frame has to be multiplied by a window, or its edges sound as clicks.",
        (".square()", ""): "You sum magnitudes, and not energies: how does energy depend on the magnitude?",
        (".log()", ""): "The logarithm is missing: an ear hears ratios.",
    },
    hint="Look at the shapes: (T, 400) frames, then (T, 257) after the transform, then (T, K). What turns a complex "
    "number into an energy, and when is the logarithm taken?",
    explanation="Now a second has 100 columns of K numbers instead of 16,000 numbers.",
    variants=(_frame_by_frame,),
)

# %% picture-prose [markdown]
"""
labkit centres its frames on every 160th sample, so yours get 200 zeros at both ends. Then the two agree to 1e-3.
"""

# %% picture
filters, wave = labkit.data.speech.mel_filters(), torch.from_numpy(sound.waves[0])  # (257, 80), (n,)
features = log_energies(F.pad(wave, (200, 200)), filters)
difference = np.abs(features.numpy() - labkit.data.speech.log_mel_batch([wave.numpy()])[0]).max()
print(f"{len(wave):,} samples became {tuple(features.shape)}; the largest difference from labkit's is {difference:.1e}")
figure = labkit.plots.new_figure("Time (s)", "Mel bin (1: lowest frequency)")
figure.add_heatmap(x0=0, dx=0.01, z=features.T.numpy(), y0=1, dy=1, colorscale="Cividis")
figure.update_traces(name="measured", showlegend=True, colorbar_title_text="log energy")
labkit.plots.show(figure.update_layout(title_text="Vowels are stripes, hissing consonants clouds at the top"))

# %% greedy-prose [markdown]
r"""
labkit then scales each bin to mean 0 and deviation 1 over all that a *speaker* says, because loudness and room say nothing about the words.

## Reading what the model writes

At each output the model writes one character or a *blank*. **CTC** (Graves et al., 2006) reads the outputs by a rule: first merge equal neighbours, then drop the blanks. With `-` for the blank, `ff-oou-r` reads `four`, and `-tth-reee-e` reads `three`.

### Exercise 20.greedy

Write `greedy(log_probabilities, lengths)`. It gets a model's output `(B, T, V)` and the number of real outputs of each utterance, `(B,)`. It returns a list of ids for each utterance.

1. At each output take the likeliest of the V characters. Cut the path to its length: the rest is padding.
2. Merge equal neighbours, then drop the blanks (id 0).
"""

# %% answer 20.greedy
from torch import Tensor


def greedy(log_probabilities: Tensor, lengths: Tensor) -> list[list[int]]:
    """The ids that CTC reads from the likeliest path of each utterance."""
    ### BEGIN SOLUTION
    read = []
    for path, length in zip(log_probabilities.argmax(dim=2), lengths, strict=True):
        ids = path[:length].tolist()
        merged = [one for place, one in enumerate(ids) if place == 0 or one != ids[place - 1]]
        read.append([one for one in merged if one != 0])
    return read
    ### END SOLUTION


# %% check 20.greedy points=5
check("20.greedy", greedy)


# %% checks
def _paths(*paths: list[int], longest: int = 12) -> tuple[Tensor, Tensor]:
    """Outputs (B, T, 5) whose likeliest paths begin with these; what lies beyond is 4."""
    ids = torch.full((len(paths), longest), 4)
    for row, path in zip(ids, paths, strict=True):
        row[: len(path)] = torch.tensor(path)
    noise = torch.rand(*ids.shape, 5, generator=torch.Generator().manual_seed(longest))
    return (noise + 2 * torch.nn.functional.one_hot(ids, 5)).log_softmax(2), torch.tensor([*map(len, paths)])


def _outputs(seed: int = 7) -> tuple[Tensor, Tensor]:
    scores = torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(seed))
    return scores.log_softmax(2), torch.tensor([9, 4, 6, 1])


def _by_unique(log_probabilities: Tensor, lengths: Tensor) -> list[list[int]]:
    import torch

    found = []
    for scores, length in zip(log_probabilities, lengths.tolist(), strict=True):
        merged = torch.unique_consecutive(scores[:length].argmax(-1))
        found.append(merged[merged > 0].tolist())
    return found


EXERCISES["20.greedy"] = WrittenExercise(
    greedy,
    draw=lambda random: (
        Case("the paths 2 2 0 2 1 0 1 and 3 3", lambda code: code(*_paths([2, 2, 0, 2, 1, 0, 1], [3, 3]))),
        Case("4 utterances of up to 9 outputs", lambda code: code(*_outputs())),
        Case("the paths 1 0 1 1 2 2 0 0 1 and 0 0", lambda code: code(*_paths([1, 0, 1, 1, 2, 2, 0, 0, 1], [0, 0]))),
        Case("one utterance", lambda code: code(_outputs()[0][:1], torch.tensor([3]))),
        Case("outputs drawn for this try", operator.call, *_outputs(random.randrange(10**6))),
    ),
    mistakes={
        ("[:length]", ""): "Outputs beyond an utterance's length are padding: cut each path first.",
        ("ids = path[:length].tolist()", "ids = [one for one in path[:length].tolist() if one]"): (
            "Merge first: a blank between two equal letters keeps both."
        ),
        ("place == 0 or ", ""): "The first id has no neighbour before it: ids[-1] is the last id.",
    },
    hint="Write down by hand what `2 2 0 2` reads, and then what your code makes of it, step by step.",
    explanation="The order, merge and then drop, is what makes `three` possible.",
    variants=(_by_unique,),
)

# %% rate-prose [markdown]
"""
The blank keeps a double letter double: `three` takes at least six outputs. So a speaker can be too fast for a model with few outputs per second.

## Two error rates

The **character error rate** (CER) is the number of characters that were inserted, deleted or replaced, divided by the number of characters that were said. The **word error rate** (WER) counts words instead. Both count the errors of the *cheapest* way from one text to the other, over all utterances together. `speech_metrics` of labkit has both.

The transcript below is wrong in one of its 25 characters, a CER of 4 %. **What is its word error rate?**
"""

# %% guess-wer
guess("20.wer_of_one_letter", 4, "%")

# %% wer
rates = labkit.data.speech.speech_metrics(["set batch size to seventy"], ["set batch sise to seventy"])
reveal("20.wer_of_one_letter", 100 * rates["wer"])
print(f"CER {100 * rates['cer']:.0f} %")

# %% ctc-prose [markdown]
r"""
## What it is trained for

The corpus says *what* was said, but not *when*. So CTC counts every way to say it. An **alignment** is a path through the states *blank, a, blank, b, …, blank*, with one state per output.
"""

# %% ctc-drawing
drawing("ctc")

# %% ex-ctc [markdown]
r"""
The loss is $-\ln \sum_\pi P(\pi)$ over all alignments $\pi$ of the text. Their number grows exponentially, but the sum needs only $T \times S$ steps: let $\alpha_t(s)$ be the summed probability of all ways to be in state $s$ after output $t$.

### Exercise 20.ctc

Write `ctc_loss(log_probabilities, tokens)`. It gets a tensor `(T, V)` and the list of the letters' ids. It returns the loss as a float, or `inf` where no alignment exists.

1. A path begins in one of the first two states, and ends in one of the last two. With no letters there is one state, the blank.
2. At each further output a path stays, or goes on by one state, or skips a blank. It may skip the blank between two letters only if the letters *differ*. Multiply by the output's probability of the state.
3. Work with logarithms: products of hundreds of probabilities are too small for a float.

*Hint:* `F.pad(ahead, (1, 0), value=-math.inf)[:-1]` shifts by one state, and `torch.logsumexp` adds probabilities.
"""

# %% answer 20.ctc
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def ctc_loss(log_probabilities: Tensor, tokens: Sequence[int]) -> float:
    """-log of the summed probability of all alignments of `tokens` to outputs (T, V); inf where there is none."""
    ### BEGIN SOLUTION
    states = [0]
    for token in tokens:
        states += [token, 0]  # blank, a, blank, b, blank
    skips = [place > 1 and state not in (0, states[place - 2]) for place, state in enumerate(states)]
    ahead = torch.full((len(states),), -math.inf)  # (S,): log of alpha
    ahead[:2] = log_probabilities[0, states[:2]]
    for output in log_probabilities[1:]:
        step = F.pad(ahead, (1, 0), value=-math.inf)[:-1]
        skip = F.pad(ahead, (2, 0), value=-math.inf)[:-2].where(torch.tensor(skips), -math.inf)
        ahead = torch.stack([ahead, step, skip]).logsumexp(0) + output[states]
    return -ahead[-2:].logsumexp(0).item()
    ### END SOLUTION


# %% check 20.ctc points=7
check("20.ctc", ctc_loss)


# %% checks
def _said(code: Any, tokens: list[int], outputs: int, seed: int) -> Any:
    """Outputs (T, 5) of a model that knows nothing."""
    drawn = torch.randn(outputs, 5, generator=torch.Generator().manual_seed(seed)).log_softmax(1)
    return code(drawn, tokens)


def _state_by_state(log_probabilities: Tensor, tokens: list[int]) -> float:
    states = [0] + [each for token in tokens for each in (token, 0)]
    table = torch.full((len(log_probabilities), len(states)), float("-inf"))
    for t in range(len(table)):
        for s, state in enumerate(states):
            if t == 0:
                ways = [torch.zeros(())] if s < 2 else [torch.tensor(float("-inf"))]
            else:
                ways = [table[t - 1, s]] + ([table[t - 1, s - 1]] if s > 0 else [])
                ways += [table[t - 1, s - 2]] if s > 1 and state and state != states[s - 2] else []
            table[t, s] = torch.logsumexp(torch.stack(ways), 0) + log_probabilities[t, state]
    return -float(torch.logsumexp(table[-1, -2:], 0))


_SKIPS = "place > 1 and state not in (0, states[place - 2])"


EXERCISES["20.ctc"] = WrittenExercise(
    ctc_loss,
    draw=lambda random: (
        Case("three letters and nine outputs", _said, [1, 3, 2], 9, 1),
        Case("two equal letters, between which a blank has to stand", _said, [2, 2], 5, 2),
        Case("as many outputs as letters: one alignment", _said, [4, 1, 3], 3, 3),
        Case("fewer outputs than letters: no alignment, inf", _said, [4, 1, 3], 2, 4),
        Case("nothing said: blanks alone", _said, [], 4, 5),
        Case("ten letters and 200 outputs", _said, [1, 2, 2, 3, 4, 4, 1, 3, 3, 2], 200, 6),
        Case("letters drawn for this try", _said, random.choices([1, 2, 3], k=6), 24, random.randrange(10**6)),
    ),
    mistakes={
        (_SKIPS, "place > 1 and state != 0"): (
            "Between two equal letters the path needs a blank, or CTC merges them. Such a skip is no alignment."
        ),
        (_SKIPS, "False"): "Look at the drawing: which state does an arrow leave out?",
        ("return -ahead[-2:]", "return -ahead[-1:]"): "An alignment may end with the last letter or with the blank.",
    },
    hint="Write alpha for one letter and two outputs by hand: three states, and four ways in all. Which ways lead into "
    "each state, and in which states may a path begin and end?",
    explanation="You sum an exponential number of alignments in T × S steps. torch does the same, in batches.",
    variants=(_state_by_state,),
    instead_of=("torch.ctc_loss",),
)

# %% ctc-torch-prose [markdown]
"""
Compare your loss with torch's on 60 random outputs, for five letters of which two are the same.
"""

# %% ctc-torch
outputs, letters = torch.randn(60, 28).log_softmax(1), [8, 5, 12, 12, 15]
theirs = F.ctc_loss(outputs[:, None], torch.tensor([letters]), [60], [5], reduction="sum").item()
print(f"yours {ctc_loss(outputs, letters):.4f}, torch's {theirs:.4f}")

# %% second-half [markdown]
"""
## Second half: a model

If you begin here, run the cells down to *Listen* and then this one. `mine` takes your code from `mylab/speech.py`, or labkit's if you have none yet.
"""

# %% mine
log_energies, greedy = mine("20.features"), mine("20.greedy")

# %% block-write-prose [markdown]
"""
The recogniser has convolutions only. Two have stride 2, so 100 frames become 25 outputs; the others keep that number. Then a linear layer writes characters. Utterances of a batch are padded to the longest one, and a mask says which frames are real.

### Exercise 20.block

Write `MyBlock`, the part that the model repeats: `(B, before, T)` becomes `(B, after, T / stride)`.

1. `__init__` makes `self.stride`, which the model asks for; `self.conv`, a `Conv1d` padded by half its kernel, without bias; `self.norm`, a `BatchNorm1d`; and `self.dropout`.
2. `forward(x, mask)` computes convolution, batch norm, ReLU and dropout, and multiplies by the mask, which is 0 where a frame is padding. Then it adds `x` if neither channels nor stride change the shape.

The mask keeps padding out of the next convolution, but not out of the batch norm's statistics.
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
    mask = (torch.arange(outputs) < torch.tensor([[outputs], [outputs // 2]])).unsqueeze(1)
    return gradient(lambda each: block(each, mask), x) * mask if of_gradient else block(x, mask)


EXERCISES["20.block"] = WrittenExercise(
    MyBlock,
    Case("the stride that the model asks a block for", lambda code: code(4, 6, 5, 2, 0.0).stride),
    Case("how many weights 4 channels to 6 have", _size, 4, 6, 5, 2, 0.0),
    Case("4 channels to 6, two utterances of which one is shorter", _heard, 4, 6, 5, 1, 0.0),
    Case("6 channels to 6", _heard, 6, 6, 3, 1, 0.0),
    Case("6 channels to 6 by stride 2", _heard, 6, 6, 7, 2, 0.5),
    Case("a step of training", _heard, 6, 6, 3, 1, 0.0, training=True),
    Case("the gradient of x", _heard, 6, 6, 3, 1, 0.0, of_gradient=True),
    mistakes={
        ("kernel, stride, padding", "kernel, padding"): "The convolution has to move on by the stride.",
        (", bias=False", ""): "Batch norm removes any bias again, so this convolution has none.",
        (" * mask", ""): "A padded frame has to be zero again after the block, before the shortcut is added.",
    },
    hint="Compare shapes first: is the output as long as the mask? Then the order of the five parts, and when x is "
    "added.",
    explanation="With the same weights it computes what the kit's block computes.",
    variants=(
        (
            "y = self.dropout(F.relu(self.norm(self.conv(x)))) * mask",
            "y = torch.where(mask.bool(), self.dropout(torch.relu(self.norm(self.conv(x)))), 0.0)",
        ),
        (
            "y = self.dropout(F.relu(self.norm(self.conv(x)))) * mask",
            "y = F.relu(self.dropout(self.norm(self.conv(x))) * mask)",
        ),
    ),
)

# %% guess-paper-prose [markdown]
"""
## What it costs, on paper

The model of *Training for Speech Recognition on Coprocessors* (Baunsgaard et al., ADMS 2020) has one convolution of width 11 with 600 outputs and stride 2. Five LSTM layers of width 800 follow, in one direction, and then a linear layer. **How many million parameters does it have?**
"""

# %% guess-paper
guess("20.paper_parameters", 10, "million")

# %% cost-prose [markdown]
r"""
### Exercise 20.cost

Write `speech_cost(layers)`, for a list of layers from the first to the last. It returns a dictionary: `"parameters"`, and the `"flops"` of a forward pass for one second of audio (100 frames). Count only multiplications and additions with weights.

- `("conv", before, after, kernel, stride)`: a convolution without bias, then a batch norm, which has a scale and a shift for each of its outputs.
- `("lstm", before, after)`: four gates. Each has weights for its input and for its state, and PyTorch keeps two biases per gate and number.
- `("linear", before, after)`: with biases.

*Hint:* a layer uses each weight once for every frame that it *writes*.
"""


# %% answer 20.cost
def speech_cost(layers: list[tuple]) -> dict[str, float]:
    """The "parameters" of these layers, and the "flops" of their forward pass for a second of audio."""
    ### BEGIN SOLUTION
    frames_per_s, parameters, flops = 100, 0, 0
    for kind, before, after, *shape in layers:
        weights, others = before * after, after
        if kind == "conv":
            kernel, stride = shape
            frames_per_s /= stride
            weights, others = weights * kernel, 2 * after  # batch norm scales and shifts each output
        elif kind == "lstm":
            weights, others = 4 * after * (before + after), 8 * after  # of the input and of the state
        parameters += weights + others
        flops += 2 * weights * frames_per_s  # a multiplication and an addition
    return {"parameters": parameters, "flops": flops}
    ### END SOLUTION


# %% check 20.cost points=6
check("20.cost", speech_cost)

# %% checks
ADMS = [("conv", 80, 600, 11, 2), ("lstm", 600, 800), *[("lstm", 800, 800)] * 4, ("linear", 800, 29)]
TINY = [("conv", 20, 16, 3, 2), ("conv", 16, 16, 3, 2), ("conv", 16, 16, 3, 1), ("linear", 16, 10)]


def _layers(random: Random) -> list[tuple]:
    first, second, third = (random.randint(3, 40) for _ in range(3))
    conv = ("conv", 80, first, random.choice([3, 5, 7]), random.choice([2, 3]))
    return [conv, ("lstm", first, second), ("linear", second, third)]


def _kind_by_kind(layers: list[tuple]) -> dict[str, float]:
    total = {"parameters": 0, "flops": 0}
    frames = 100
    for layer in layers:
        if layer[0] == "conv":
            frames = frames / layer[4]
            products, rest = layer[1] * layer[2] * layer[3], layer[2] + layer[2]
        elif layer[0] == "lstm":
            products, rest = 4 * (layer[1] * layer[2] + layer[2] ** 2), 2 * 4 * layer[2]
        else:
            products, rest = layer[1] * layer[2], layer[2]
        total["parameters"] += products + rest
        total["flops"] += products * frames * 2
    return total


EXERCISES["20.cost"] = WrittenExercise(
    speech_cost,
    draw=lambda random: (
        Case("a small model of convolutions", lambda code: code(TINY)),
        Case("two recurrent layers", lambda code: code([("conv", 80, 12, 5, 3), ("lstm", 12, 7), ("lstm", 7, 7)])),
        Case("the model of ADMS 2020", lambda code: code(ADMS)),
        Case("widths drawn for this try", operator.call, _layers(random)),
    ),
    mistakes={
        ("flops += 2 * weights", "flops += weights"): "A multiplication *and* an addition for each weight.",
        ("frames_per_s /= stride", "pass"): "How many frames per second are left after a stride of 2?",
        (
            "flops += 2 * weights * frames_per_s  #",
            'flops += 2 * weights * frames_per_s * (shape[1] if kind == "conv" else 1)  #',
        ): "A convolution computes for the frames that it writes, after its stride.",
    },
    hint="Take one layer of each kind with small numbers, and compare with torch's own: "
    "sum(each.numel() for each in nn.LSTM(3, 2).parameters()). Then ask for how many frames each weight is used.",
    explanation="You know both before anything is built.",
    variants=(_kind_by_kind,),
)

# %% paper-prose [markdown]
"""
Count both models, and compare with what PyTorch counts. `SpeechModel` of labkit puts your blocks together; `mask_bins` and `mask_frames` hide stretches of the features while it trains.
"""

# %% paper
vocabulary, masks = len(speech.alphabet), {"mask_bins": 8, "mask_frames": 6}
config = labkit.models.SpeechConfig(vocabulary, "conv", channels=64, layers=4, kernel=7, dropout=0.1, **masks)
adms = labkit.models.SpeechConfig(vocabulary, "lstm", 600, 5, hidden=800, kernel=11, strides=(2,))
own = [("conv", 80, 64, 7, 2), ("conv", 64, 64, 7, 2), *[("conv", 64, 64, 7, 1)] * 4, ("linear", 64, vocabulary)]
paper = [("conv", 80, 600, 11, 2), ("lstm", 600, 800), *[("lstm", 800, 800)] * 4, ("linear", 800, vocabulary)]
models = {"ADMS 2020": labkit.models.SpeechModel(adms), "this lab's": labkit.models.SpeechModel(config, block=MyBlock)}
costs = pd.DataFrame({"ADMS 2020": speech_cost(paper), "this lab's": speech_cost(own)}).T
reveal("20.paper_parameters", costs.loc["ADMS 2020", "parameters"] / 1e6)
costs["parameters, by PyTorch"] = [sum(weight.numel() for weight in model.parameters()) for model in models.values()]
labkit.plots.show(costs.rename(columns={"flops": "FLOP per second of audio"}))

# %% guess-times-prose [markdown]
"""
**For the same audio, how many times as long does the paper's model take here as this lab's?** Divide the operations first. But an LSTM computes its outputs one after the other, and large products keep a core busier than many small ones. (Sixteen utterances run at once, on one thread.)
"""

# %% guess-times
guess("20.times_as_long", 200, "times")

# %% measure
from functools import partial

frames, rounds = {"smoke": (24, 1), "standard": (200, 3), "full": (1000, 5)}[profile]
batch = torch.randn(16, frames, 80), torch.full((16,), frames)
with torch.inference_mode():
    forward_s = paired_times({name: partial(model.eval(), *batch) for name, model in models.items()}, rounds).median()
costs["ms per second of audio, measured"] = 1e5 * forward_s / 16 / frames
costs["GFLOP/s"] = costs["flops"] / costs["ms per second of audio, measured"] / 1e6
labkit.plots.show(costs.drop(columns="parameters, by PyTorch").rename(columns={"flops": "FLOP per second of audio"}))
times_as_long = forward_s["ADMS 2020"] / forward_s["this lab's"]
reveal("20.times_as_long", times_as_long)

# %% why-cost-prose [markdown]
"""
In two or three sentences: compare the ratio of the operations with that of the times. Why do they differ? The thesis behind the paper's code used recordings of people (Common Voice). Its word error rates are 17.4, 13.7, 10.5 and 14.1 % with 1, 3, 5 and 7 LSTM layers. What did more layers buy for their time?
"""

# %% explain 20.why_cost points=2 grade_id="20-why-cost"
### BEGIN SOLUTION
answer = model_answer("20.why_cost")
### END SOLUTION
explain("20.why_cost", answer)

# %% checks
EXERCISES["20.why_cost"] = Explanation(
    "numbers: the ratio of operations on paper, and the ratio of times measured",
    "why: what an LSTM cannot do at once, and what size of product each model gives the cores",
    "trade-off: what more layers bought the thesis for their time",
    model="The paper's model does 235 times the operations per second of audio, but takes only 98 times as long: its "
    "large products use a core better than many small ones, where each operation costs a start. An LSTM loses part of "
    "that gain, because it computes one output after the other and reads its weights each time. In the thesis "
    "five layers have 10.5 % of the words wrong where one has 17.4 %, for five times the operations; two more "
    "layers cost 40 % more and lost 3.6 points.",
    half="The paper's model has 235 times the operations but takes only 98 times as long, because large products keep "
    "the cores busier than small ones.",
)

# %% claim-H7-prose [markdown]
"""
### Your verdict on an order

The thesis' order is five layers best, then three, seven and one. Is it the same here? These runs take twenty minutes (`labkit sweep speech_layers`), so they are *recorded*: models of about the same number of parameters, three seeds, scored on the test voices.

The rule comes first. A recogniser with a WER of 95 % or more in every seed has not learnt to read yet, so its rate does not say how good that number of layers is. If there is such a recogniser, the order `cannot be tested here`, and your reason says what the others show. If there is none, the claim holds if the means have the same order.
"""

# %% layers
import json

recorded = json.loads((labkit.project.shipped_datasets() / "recorded" / "speech_layers.json").read_text())
layers = 100 * pd.DataFrame(recorded["cells"]).pivot_table("test_wer", "layers", "seed")
labkit.plots.show(layers.add_prefix("WER (%), recorded, seed ").assign(thesis=[17.4, 13.7, 10.5, 14.1]))

# %% claim H7 points=1
layers_mean = layers.mean(axis=1)
same_order = list(layers_mean.sort_values().index) == [5, 3, 7, 1]
stuck = " and ".join(map(str, layers.index[(layers >= 95).all(axis=1)]))  # those that have not learnt to read
### BEGIN SOLUTION
verdict = "cannot be tested here" if stuck else "holds here" if same_order else "does not hold here"
plateau = f"{stuck} layers never left the plateau under this one recipe; of the others " if stuck else ""
answer = verdict, f"{plateau}{layers_mean.idxmin()} layers are best"
### END SOLUTION
words = ", ".join(f"{value:.1f} % with {count}" for count, value in layers_mean.items())
claim("H7", f"WER {words} layers at equal parameters", answer, how="recorded")

# %% step-prose [markdown]
r"""
## Train

### Exercise 20.step

Write `train_step(model, batch, optimizer, clip)`. It takes one step on one batch, and returns the loss before the step as a float.

1. The model takes `batch.features` `(B, T, 80)` and `batch.feature_lengths` `(B,)`. It returns log-probabilities `(B, T', V)` and the number of real outputs of each utterance, `(B,)`.
2. The loss is `F.ctc_loss` with its default mean, with `batch.tokens` `(B, S)` and `batch.token_lengths` `(B,)`. It takes the outputs first, `(T', B, V)`. No padding may count.
3. CTC's gradients are sometimes very large, so clip them to the norm `clip` (`nn.utils.clip_grad_norm_`). Gradients of one batch must not remain in the next step.
"""

# %% answer 20.step
import torch
import torch.nn.functional as F
from torch import nn

import labkit


def train_step(
    model: nn.Module, batch: labkit.data.speech.Batch, optimizer: torch.optim.Optimizer, clip: float
) -> float:
    """One step of the optimiser on one batch; the mean CTC loss before it."""
    ### BEGIN SOLUTION
    log_probabilities, lengths = model(batch.features, batch.feature_lengths)  # (B, T', V)
    loss = F.ctc_loss(log_probabilities.transpose(0, 1), batch.tokens, lengths, batch.token_lengths)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()
    ### END SOLUTION


# %% check 20.step points=6
check("20.step", train_step)


# %% checks
class _Recogniser(nn.Module):
    """Writes an output for every two frames, of which it sees no others."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.characters = nn.Linear(2 * 3, 6)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        pairs = features[:, : features.shape[1] // 2 * 2].reshape(len(features), -1, 6)
        return self.characters(pairs).log_softmax(2), lengths // 2


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


def _stepped(code: Any, steps: int = 6, clip: float = 100.0, noise: float = 0.0) -> dict[str, Any]:
    """Steps of one optimiser on three batches in turn: losses, and the weights that they end with."""
    model = _Recogniser()
    adam = torch.optim.SGD(model.parameters(), lr=0.5)
    batches = [_batch(seed, 2 + seed, noise) for seed in range(3)]
    losses = [code(model, batches[step % 3], adam, clip) for step in range(steps)]
    floats = all(isinstance(loss, float) for loss in losses)
    return {"losses": losses, "losses are floats": floats, "weights": model.characters.weight.detach()}


def _cleared_last(model, batch, optimizer, clip):
    probabilities, counts = model(batch.features, batch.feature_lengths)
    outputs_first = probabilities.permute(1, 0, 2)
    loss = nn.CTCLoss()(outputs_first, batch.tokens, counts, batch.token_lengths)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=clip)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


EXERCISES["20.step"] = WrittenExercise(
    train_step,
    Case("one step on two utterances", _stepped, 1, relative=1e-3),
    Case("six steps on three batches", _stepped, relative=1e-3),
    Case("noise for padding", _stepped, noise=3.0, relative=1e-3),
    Case("gradients clipped to a norm of 0.1", _stepped, clip=0.1, relative=1e-3),
    mistakes={
        (", lengths, ", ", torch.full_like(lengths, log_probabilities.shape[1]), "): (
            "Padding is trained on: which lengths say how many outputs are real?"
        ),
        ("optimizer.zero_grad()", "pass"): "Gradients add up from step to step.",
        ("nn.utils.clip_grad_norm_(model.parameters(), clip)", "pass"): "The gradients are not clipped.",
    },
    hint="Print the shapes that F.ctc_loss gets, and whether every length is that of real outputs. Then check the "
    "order: gradients, clipping, step.",
    explanation="The step is the same with any padding, so the model does not train on it.",
    variants=(_cleared_last,),
)

# %% guess-overfit-prose [markdown]
"""
Before any long run, ask: can the model learn a few utterances by heart? If not, there is a fault. Take eight utterances, without dropout and masks. **At which step is the loss first below 0.1?** After a few steps most outputs are blanks, and the letters come late.
"""

# %% guess-overfit
guess("20.overfit_step", 100, "steps")

# %% by-heart
from dataclasses import replace

torch.manual_seed(seed)
plain = labkit.models.SpeechModel(replace(config, dropout=0.0, mask_bins=0, mask_frames=0), block=MyBlock)
adam, eight = torch.optim.Adam(plain.parameters(), lr=4e-3), voices.batch(range(8))
losses = [train_step(plain, eight, adam, clip=5.0) for _ in range(10 if profile == "smoke" else 60)]
reveal("20.overfit_step", next((step for step, loss in enumerate(losses) if loss < 0.1), None))
print(f"{losses[0]:.1f} at first, {losses[-1]:.3f} after {len(losses)} steps")

# %% loop-prose [markdown]
"""
The loop is given. `transcribe` reads with your `greedy`, without dropout and gradients.
"""


# %% transcribe
def transcribe(model, batches):
    said, read = [], []
    model.eval()
    with torch.inference_mode():
        for batch in batches:
            said += batch.texts
            ids = greedy(*model(batch.features, batch.feature_lengths))
            read += ["".join(characters[one - 1] for one in each) for each in ids]
    model.train()
    return said, read


# %% loop
def cer_of(model, split):
    return labkit.data.speech.speech_metrics(*transcribe(model, labkit.data.speech.ByLength(split, 64)))["cer"]


def train(run, model, optimizer, batches, epochs):
    for _ in run.epochs(epochs):
        for batch in run.batches(batches):
            run.step(train_step(model, batch, optimizer, clip=5.0), samples=len(batch.texts))
            if run.due:
                run.evaluate(cer=cer_of(model, voices))


# %% guess-time-prose [markdown]
"""
The target of this corpus is a CER of 0.05 on the validation voices. One pass over the training split is evaluated three times. **After how many seconds will the run reach it?** A run that does not reach it before `limit_s` is censored.
"""

# %% guess-time
limit_s = {"smoke": 1, "standard": 180, "full": 600}[profile]
guess("20.time_to_target", 60.0, "s")

# %% guess-share-prose [markdown]
"""
Features could be computed each time that an utterance comes up, or once and kept. **If they were computed each time, which share of the time for features and training would they take?** An utterance has 1.7 s of sound on average. Training takes about as long as three forward passes, and you counted the operations of one.
"""

# %% guess-share
guess("20.features_share", 20, "%")

# %% run-prose [markdown]
"""
The test split has other voices again. It decides nothing. It is scored once, at the end, with the weights that were best on the validation voices.
"""

# %% run
from pathlib import Path

torch.manual_seed(seed)
model, training = labkit.models.SpeechModel(config, block=MyBlock), speech.split("train")
few = [voices.batch(range(0, len(voices), len(voices) // 4))]
settings = {"runs_dir": Path(runs_dir) / "notebooks", "seed": seed, "evaluate_every": len(training) // 3}
with labkit.Run("speech", target="cer <= 0.05", max_seconds=limit_s, **settings) as run:
    run.keep(model=model)
    batches = labkit.data.speech.BucketedBatches(training, 32, seed)
    train(run, model, torch.optim.Adam(model.parameters(), lr=4e-3), batches, epochs=12)
    if run.load_best():
        run.test(cer=cer_of(model, speech.split("test")))

# %% curve-prose [markdown]
"""
The error axis is logarithmic: from 10 % to 5 % is as far as from 100 % to 50 %. The cell after it measures what features would cost if they were computed again for each utterance.
"""

# %% curve
reveal("20.time_to_target", run.result["time_to_target_s"])
print(f"{run.result['steps']} steps, {run.result['samples_per_s']:.0f} utterances/s; over by: {run.result['reason']}")
table, evaluations = labkit.tta.run_table([run.folder]), labkit.tta.curves([run.folder])
crossed = labkit.tta.crossings(evaluations, table, 0.05)
labkit.plots.show(labkit.plots.figure_time_to_accuracy(evaluations, 0.05, crossings=crossed))

# %% share
some = [torch.from_numpy(each) for each in sound.waves[:: len(sound) // 10]]
ways = {"features": lambda: [log_energies(each, filters) for each in some]}
features_ms = 1000 * paired_times(ways, rounds, one_thread=False)["features"].median() / len(some)
step_ms = 1000 * run.result["train_s"] / run.result["samples"]
reveal("20.features_share", 100 * features_ms / (features_ms + step_ms))
print(f"features {features_ms:.2f} ms per utterance, training {step_ms:.2f} ms (measured)")

# %% voices-prose [markdown]
"""
labkit computes features once and keeps them, in half the bytes of the sound. The price is that a run can change only the features (their speed, noise on them), and no longer the sound itself.

The next cell scores the voices that the training never used, and shows which words the model still gets wrong.
"""

# %% test-voices
found = {}
for name in ("validation", "test"):
    split = speech.split(name)
    rates = labkit.data.speech.speech_metrics(*transcribe(model, labkit.data.speech.ByLength(split, 64)))
    found[name] = {"voices": len(set(split.speakers)), "CER (%)": 100 * rates["cer"], "WER (%)": 100 * rates["wer"]}
labkit.plots.show(pd.DataFrame(found).T)
for said, read in zip(*transcribe(model, few), strict=True):
    print(f"said {said!r}, read {read!r}")

# %% why-voices-prose [markdown]
"""
In two or three sentences: what are the rates on both kinds of voices, and why do they differ? Why is WER larger than CER? What can so few voices in a split show?
"""

# %% explain 20.why_voices points=2 grade_id="20-why-voices"
### BEGIN SOLUTION
answer = model_answer("20.why_voices")
### END SOLUTION
explain("20.why_voices", answer)

# %% checks
EXERCISES["20.why_voices"] = Explanation(
    "numbers: the error rates on validation and test voices, and of words against characters",
    "why: which choice was made by looking at the validation voices, and why one letter makes a word wrong",
    "trade-off: what few voices in a split cost, and what more of them would",
    model="On the validation voices 4.5 % of the characters and 16 % of the words are wrong, on the test voices 10.5 % "
    "and 27 %. Training ended when the validation voices were read well enough, so theirs is the best of twelve looks, "
    "while the test voices chose nothing. A word is wrong if any of its letters is, so WER is three to four times CER. "
    "With four and five voices a split, one odd voice moves the rate a lot; more voices held out would say it better, "
    "and leave fewer to train on.",
    half="The CER is 4.5 % on the validation voices and 10.5 % on the test voices, because training stopped when the "
    "validation voices were read well enough.",
)

# %% say-prose [markdown]
"""
## Say it yourself

This section is extra, and not in the stated time. Record some numbers, or a command such as `show accuracy of run sixty four`, or choose an audio file. Then run the cell below the next paragraph. The sound goes to this notebook's kernel and nowhere else. Without a recording, a voice of the test split speaks.
"""

# %% say-record
import labkit_course.apparatus

recorder = labkit_course.apparatus.Recorder()
recorder

# %% say-hear-prose [markdown]
"""
The voices in training came from *one* synthesiser, without breath, room or accent, so the model will mishear you more often than the test voices. The cell cuts silence at both ends, because mean and deviation are now those of this one utterance.
"""

# %% say-hear
spoken = recorder.wave
if spoken is None:
    spoken = labkit.data.speech.WaveformUtterances(data, "test").waves[0]
    print("Nothing was recorded, so this is a voice of the test split.")
loud = np.flatnonzero(np.abs(spoken) > 0.05 * np.abs(spoken).max())
spoken = spoken[max(loud[0] - 1600, 0) : loud[-1] + 1600]
(heard,) = map(torch.from_numpy, labkit.data.speech.features_of([spoken], "log-mel"))
heard = (heard - heard.mean(0)) / heard.std(0).clamp(min=0.1)  # (T, 80)
with torch.inference_mode():
    (ids,) = greedy(*model.eval()(heard[None], torch.tensor([len(heard)])))
print("Your model reads:", "".join(characters[one - 1] for one in ids))

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import results, score_notebook

score_notebook()

# %% results tags=["results"]
results(
    times_as_long=(times_as_long, 10, 2000),
    overfit_end_over_start=(losses[-1] / losses[0], 0, 0.95),
    time_to_target_s=(run.result["time_to_target_s"], 1, 600),
    test_cer=(run.result["metrics"].get("cer"), 0, 1.5),
)

# %% assistant times_as_long below=200 [markdown]
"""
Large products keep a core busier than small ones. So with 235 times the operations, the forward pass of the paper's model takes less than 200 times as long as that of this lab's.
"""

# %% recap [markdown]
"""
## Recap

- CTC merges repeats, then drops blanks. Its loss sums all alignments, by one pass over outputs and states.
- Only real outputs count, in the loss and in reading.
- You can count parameters and operations before anything is built. The time also depends on what has to wait for what.
- A model that cannot learn eight utterances by heart has a fault.
- Held-out *voices*, not held-out sentences, show whether the model learnt to hear.

**Next:** the same on platforms of two sizes: [Speech recognition on budgets](21_speech_on_budgets.ipynb)
"""
