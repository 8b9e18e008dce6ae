"""Beam search over texts with a character model, both from scratch.

It is the prefix search of Graves and Jaitly (ICML 2014, algorithm 1): a text's score is the sum over all paths that
write it, not its likeliest path's. torchaudio has such a decoder, by a compiled package whose wheels end with Python
3.12; with this character model, in Python, it took four times as long for nearly the same texts.

T' outputs, V alphabet with the blank.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from labkit.data.speech import BLANK, ENGLISH, speech_metrics

BEGIN, END = "<", ">"
"""Of a text; in no alphabet"""
ORDER = 6
"""Characters that the model knows at once, the one it predicts among them"""
MOST_CHARACTERS = 2_000_000
"""Of the texts that a character model counts, so that it stays below a gigabyte"""
LEAST = 1e-3
"""Characters that an output gives less than this are not tried there"""
WEIGHTS = (0.0, 0.15, 0.3, 0.5, 0.7, 1.0)
"""Of the character model's logarithms beside the recogniser's; 0 is without it"""


class CharacterModel:
    """How likely each character is after those before it: an n-gram model with Witten and Bell's smoothing.

    p(c | h) = (n(hc) + d(h) p(c | h')) / (n(h) + d(h)), where n counts, d(h) is how many different characters follow
    h, and h' is h without its first; below the single characters all are equally likely. (Witten and Bell, IEEE
    Transactions on Information Theory 37(4), 1991, method C, interpolated.)
    """

    def __init__(self, texts: Iterable[str], characters: str = ENGLISH, order: int = ORDER):
        """Count texts that have no other characters than these, the first of `MOST_CHARACTERS` together."""
        self.order, self._symbols = order, characters + END
        self._places = {symbol: place for place, symbol in enumerate(self._symbols)}
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._known: dict[str, list[float]] = {}
        self.counted = 0
        """Characters, each text's begin and end among them"""
        for text in texts:
            text = BEGIN + text + END
            for at in range(1, len(text)):
                for begin in range(max(0, at - order + 1), at + 1):
                    self._counts[text[begin:at]][text[at]] += 1
            self.counted += len(text)
            if self.counted > MOST_CHARACTERS:
                break

    def logs(self, before: str) -> list[float]:
        """Natural logarithms for each character, and last for the end, after what stands `before` in a text.

        >>> after_a = CharacterModel(["ab", "ab"], characters="ab", order=2).logs("<a")
        >>> [round(math.exp(log), 3) for log in after_a]
        [0.111, 0.778, 0.111]
        """
        before = before[max(0, len(before) - self.order + 1) :]
        while before not in self._counts and before:
            before = before[1:]
        if before not in self._known:
            after = np.zeros(len(self._places))
            for symbol, count in self._counts[before].items():
                after[self._places[symbol]] = count
            shorter = np.exp(self.logs(before[1:])) if before else np.full(len(after), 1 / len(after))
            distinct = np.count_nonzero(after)
            self._known[before] = np.log((after + distinct * shorter) / (after.sum() + distinct)).tolist()
        return self._known[before]


class _Prefix:
    """The beginning of a text: a node of the tree of all that are looked at, so that each is there once."""

    __slots__ = ("before", "character", "children", "parent", "score")

    def __init__(self, parent: _Prefix | None, character: int, before: str, score: float):
        self.parent, self.character = parent, character
        self.before = before
        """Its last characters, as the character model wants them"""
        self.score = score
        """The character model's part of it"""
        self.children: dict[int, _Prefix] = {}


def beam_search(
    log_probabilities: np.ndarray,
    beam: int,
    model: CharacterModel | None = None,
    weight: float = 0.0,
    *,
    characters: str = ENGLISH,
    least: float = LEAST,
) -> str:
    """The text of the greatest log p(text | audio) + weight * log p(text), of those that a beam comes by.

    Args:
        log_probabilities: float (T', V), of the blank and then of each of `characters`.
        beam: beginnings kept after each output.
        model: gives log p(text); None leaves it out.
        weight: of the model.
        characters: the alphabet.
        least: characters less likely than this are not tried at an output.
    """
    memory = model.order if model else 1
    begin = _Prefix(None, BLANK, BEGIN, 0.0)
    # of each beginning how likely the paths that write it are: those that end with a blank, and with its last character
    kept: dict[_Prefix, tuple[float, float]] = {begin: (1.0, 0.0)}
    probabilities = np.exp(log_probabilities.astype(np.float64))
    for row in probabilities:
        tried = (np.flatnonzero(row[1:] >= least) + 1).tolist()
        row = row.tolist()
        found: defaultdict[_Prefix, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for prefix, (after_blank, after_character) in kept.items():
            both = after_blank + after_character
            same = found[prefix]
            same[0] += both * row[BLANK]
            same[1] += after_character * row[prefix.character]
            for character in tried:
                longer = prefix.children.get(character)
                if longer is None:
                    score = prefix.score
                    if model and weight:
                        score += weight * model.logs(prefix.before)[character - 1]
                    before = (prefix.before + characters[character - 1])[-memory:]
                    longer = prefix.children[character] = _Prefix(prefix, character, before, score)
                found[longer][1] += (after_blank if character == prefix.character else both) * row[character]
        if len(found) > beam:
            ranks = {
                prefix: math.log(total) + prefix.score for prefix, parts in found.items() if (total := sum(parts)) > 0
            }
            found = {prefix: found[prefix] for prefix in heapq.nlargest(beam, ranks, key=ranks.get)}
        most = max(map(sum, found.values()))  # else long recordings would come to numbers too small to be kept
        kept = {prefix: (parts[0] / most, parts[1] / most) for prefix, parts in found.items() if sum(parts) > 0}

    def rank(prefix: _Prefix) -> float:
        end = weight * model.logs(prefix.before)[-1] if model and weight else 0.0
        return math.log(sum(kept[prefix])) + prefix.score + end

    best, written = max(kept, key=rank), []
    while best.parent is not None:
        written.append(characters[best.character - 1])
        best = best.parent
    return "".join(reversed(written))


def chosen_weight(
    heard: Sequence[np.ndarray], texts: Sequence[str], beam: int, model: CharacterModel
) -> tuple[float, float]:
    """The weight of `WEIGHTS` with the lowest character error rate on utterances (T', V) of known texts, and that rate.

    Choose it on a validation split: a weight chosen on the test split has seen it.
    """
    rates = {}
    for weight in WEIGHTS:
        written = [beam_search(each, beam, model, weight) for each in heard]
        rates[weight] = speech_metrics(list(texts), written)["cer"]
    best = min(rates, key=rates.get)
    return best, rates[best]
