"""What students write in 20_train_speech to read a model's output, and to score what was read.

Shapes: B batch, T outputs, V alphabet with the blank (0).
"""

from __future__ import annotations

from itertools import pairwise
from operator import ne

import numpy as np
import torch
from torch import Tensor

from labkit_course.exercise import Exercise
from labkit_course.written import Case, WrittenExercise

# --- decoding


def collapse(path: list[int]) -> list[int]:
    merged = [one for place, one in enumerate(path) if place == 0 or one != path[place - 1]]
    return [one for one in merged if one != 0]


COLLAPSE = WrittenExercise(
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
        lambda path: sorted(set(path) - {0}): "Equal letters further apart are two: merge neighbours alone.",
    },
    hint="First merge equal neighbours, then drop the blanks.",
    explanation="Merge, then drop: the order is what makes `three` possible.",
)


def greedy(log_probabilities: Tensor, lengths: Tensor) -> list[list[int]]:
    best = log_probabilities.argmax(dim=2)  # (B, T)
    return [collapse(path[:length].tolist()) for path, length in zip(best, lengths, strict=True)]


def _outputs() -> tuple[Tensor, Tensor]:
    scores = torch.randn(4, 9, 5, generator=torch.Generator().manual_seed(7))
    return scores.log_softmax(2), torch.tensor([9, 4, 6, 1])


GREEDY = WrittenExercise(
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

# --- error rates


def edit_distance(said: list | str, read: list | str) -> int:
    row = list(range(len(read) + 1))  # from nothing said to the first so many read
    for place, one in enumerate(said, 1):
        diagonal, row[0] = row[0], place
        for other in range(1, len(read) + 1):
            cost = min(row[other] + 1, row[other - 1] + 1, diagonal + (one != read[other - 1]))
            diagonal, row[other] = row[other], cost
    return row[-1]


DISTANCE = WrittenExercise(
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
        ("row[other] + 1, ", ""): "A character that is missing in what was read is an error, too.",
    },
    hint="The distance of the first i and the first j characters is the least of three: one less of either plus one, "
    "or one less of both plus one if they differ. A function that calls itself three times never ends: keep rows of D.",
    explanation="Levenshtein's distance; on words it gives WER, on characters CER.",
)


def character_error_rate(said: list[str], read: list[str]) -> float:
    errors = sum(edit_distance(one, other) for one, other in zip(said, read, strict=True))
    return errors / sum(map(len, said))


SAID, READ = ["four", "set batch size", "nine"], ["for", "set bat size", "five"]
RATE = WrittenExercise(
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
        ("errors / sum(map(len, said))", "min(1.0, errors / sum(map(len, said)))"): (
            "The rate can be above 1, where more was read than said."
        ),
    },
    hint="Count the errors of each utterance by itself; their sum, divided by the characters that were said.",
    explanation="Errors a character, over the whole split.",
)

# --- how many outputs a text needs

PHRASES = ("three seven", "yellow letter", "all books stopped", "start eighteen", "add a summer", "keep all runs")


def _outputs_needed(phrase: str) -> int:
    return len(phrase) + sum(one == other for one, other in pairwise(phrase))


OUTPUTS = Exercise(
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

EXERCISES = {
    "20.collapse": COLLAPSE,
    "20.greedy": GREEDY,
    "20.outputs": OUTPUTS,
    "20.distance": DISTANCE,
    "20.rate": RATE,
}
