"""Beam search over texts with a character model, both from scratch, their fit to a recogniser, and the time of each
character.

It is the prefix search of Graves and Jaitly (ICML 2014, algorithm 1): a text's score is the sum over all paths that
write it, not that of its likeliest path. torchaudio has such a decoder in a compiled package without wheels for Python
3.13; with this character model, in Python, it took four times as long for nearly the same texts.

T' outputs, V alphabet with the blank, S characters.
"""

import contextlib
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd

from labkit import UserError, errors, runs
from labkit.data import BadRows, speech
from labkit.transcription.recogniser import Recogniser

Decoder = Callable[[np.ndarray], str]
"""Log-probabilities (T', V) to a text"""
BEGIN, END = "<", ">"
"""Symbols for the begin and the end of a text, in no alphabet"""
ORDER = 6
"""Number of characters that the model sees at once, including the predicted one"""
MOST_CHARACTERS = 2_000_000
"""Largest number of characters that a model counts, which keeps it below a gigabyte"""
LEAST = 1e-3
"""Least probability of a character that is tried at an output"""
WEIGHTS = (0.0, 0.15, 0.3, 0.5, 0.7, 1.0)
"""Weights of the character model's logarithms relative to the recogniser's; 0 is without the model"""


class CharacterModel:
    """How likely each character is after those before it: an n-gram model with Witten and Bell's smoothing.

    p(c | h) = (n(hc) + d(h) p(c | h')) / (n(h) + d(h)), where n counts, d(h) is how many different characters follow
    h, and h' is h without its first; below the single characters all are equally likely. (Witten and Bell, IEEE
    Transactions on Information Theory 37(4), 1991, method C, interpolated.)
    """

    def __init__(self, texts: Iterable[str], characters: str = speech.ENGLISH, order: int = ORDER):
        """Count texts in these characters, up to `MOST_CHARACTERS` in total."""
        self.order, self.characters = order, characters
        self._places = {symbol: place for place, symbol in enumerate(characters + END)}
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._known: dict[str, list[float]] = {}
        self.counted = 0
        """Number of characters, including each text's begin and end"""
        for text in texts:
            text = BEGIN + text + END
            for at in range(1, len(text)):
                for begin in range(max(0, at - order + 1), at + 1):
                    self._counts[text[begin:at]][text[at]] += 1
            self.counted += len(text)
            if self.counted > MOST_CHARACTERS:
                break

    def logs(self, before: str) -> list[float]:
        """Natural logarithms of the probability of each character, and last of the end, after the text `before`.

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


@dataclass(slots=True, eq=False)
class _Prefix:
    """The beginning of a text: a node of the tree of all beginnings, which holds each once."""

    parent: "_Prefix | None"
    character: int
    before: str
    """Its last characters, as many as the character model needs"""
    score: float
    """The character model's part of its score"""
    children: dict[int, "_Prefix"] = field(default_factory=dict)


def beam_search(
    log_probabilities: np.ndarray,
    beam: int,
    model: CharacterModel | None = None,
    weight: float = 0.0,
    *,
    characters: str = speech.ENGLISH,
    least: float = LEAST,
) -> str:
    """The text with the greatest log p(text | audio) + weight * log p(text) among those that the beam visits.

    Args:
        log_probabilities: float (T', V), of the blank and then of each of `characters`.
        beam: number of beginnings kept after each output.
        model: model of log p(text), or None.
    """
    memory, blank = model.order if model else 1, speech.BLANK
    begin = _Prefix(None, blank, BEGIN, 0.0)
    # probability of each beginning's paths: those that end with a blank, and those that end with its last character
    kept: dict[_Prefix, tuple[float, float]] = {begin: (1.0, 0.0)}
    probabilities = np.exp(log_probabilities.astype(np.float64))
    for row in probabilities:
        tried = (np.flatnonzero(row[1:] >= least) + 1).tolist()
        row = row.tolist()
        found: dict[_Prefix, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for prefix, (after_blank, after_character) in kept.items():
            both = after_blank + after_character
            same = found[prefix]
            same[0] += both * row[blank]
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
            ranks = {each: math.log(total) + each.score for each, parts in found.items() if (total := sum(parts)) > 0}
            found = {prefix: found[prefix] for prefix in heapq.nlargest(beam, ranks, key=ranks.__getitem__)}
        most = max(map(sum, found.values()))  # rescaled, because products of many probabilities would underflow
        kept = {prefix: (parts[0] / most, parts[1] / most) for prefix, parts in found.items() if sum(parts) > 0}

    def rank(prefix: _Prefix) -> float:
        end = weight * model.logs(prefix.before)[-1] if model and weight else 0.0
        return math.log(sum(kept[prefix])) + prefix.score + end

    best, written = max(kept, key=rank), []
    while best.parent is not None:
        written.append(characters[best.character - 1])
        best = best.parent
    return "".join(reversed(written))


def chosen_weight(heard: list[np.ndarray], texts: list[str], beam: int, model: CharacterModel) -> tuple[float, float]:
    """The weight of `WEIGHTS` with the lowest character error rate on utterances (T', V) of known texts; and the rate.

    Choose it on a validation split: a weight chosen on the test split has seen that split.
    """
    rates = {}
    for weight in WEIGHTS:
        written = [beam_search(each, beam, model, weight, characters=model.characters) for each in heard]
        rates[weight] = speech.speech_metrics(texts, written)["cer"]
    best = min(rates, key=rates.__getitem__)
    return best, rates[best]


NO_MODEL = "none"
"""Value of --lm for a beam search without a character model"""
TRIED = 100
"""Number of utterances of the validation split for choosing the weight"""


def fitted_beam(recogniser: Recogniser, beam: int, texts: str | None, *, by_file: bool) -> tuple[Decoder, str]:
    """A beam search whose model has the best weight on the validation split; and how it was chosen, as text.

    Args:
        beam: number of texts kept at a time.
        texts: file for the character model with one text per line, or `NO_MODEL`; None: the training transcripts.
        by_file: normalise each recording alone.

    Raises:
        UserError: the run's data, or the file, cannot be read.
    """
    search = partial(beam_search, beam=beam, characters=recogniser.alphabet.characters)
    if texts == NO_MODEL:
        return search, f"beam search, {beam} wide, without a character model"
    utterances = _utterances(errors.certain(recogniser.record))
    if texts is None:
        lines, of = [each.text for each in utterances if each.split == "train"], "the training transcripts"
        Random(0).shuffle(lines)  # a listing is ordered by speaker, and the model may not count all of it
    else:
        lines, of = read_texts(Path(texts), recogniser.alphabet), texts
    model = CharacterModel(lines, recogniser.alphabet.characters)
    if model.counted > MOST_CHARACTERS:
        of = f"{MOST_CHARACTERS:,} characters of {of}"
    if not model.counted:
        raise UserError(f"--lm {texts}: it has no text in the recogniser's letters: name a file of sentences.")
    heard, said = _heard(recogniser, [each for each in utterances if each.split == "validation"], by_file)
    weight, cer = chosen_weight(heard, said, beam, model)
    note = (
        f"beam search, {beam} wide, with an n-gram model (order {model.order}) of {of}; its weight, {weight:g}, has "
        f"the lowest CER on {len(said)} utterances of the validation split: {cer:.4f}"
    )
    return partial(search, model=model, weight=weight), note


def read_texts(path: Path, alphabet: speech.Alphabet) -> Iterator[str]:
    """The lines of a file in lower case; characters outside of the alphabet become spaces.

    Raises:
        UserError: there is no such file, or it is UTF-16.
    """
    characters = set(alphabet.characters)
    try:
        for _, line in speech.read_lines(path):
            line = "".join(c if c in characters else " " for c in speech.in_lower_case(line))
            if words := line.split():
                yield " ".join(words)
    except OSError as error:
        raise UserError(f"--lm {path}: this file cannot be read ({error.strerror}): name a text file.") from None


def _utterances(record: "runs.RunRecord") -> list[speech.Utterance]:
    """The utterances of a run's training data, in the same splits."""
    data = record.config["data"].get("source", record.config["data"]["name"])
    bad = BadRows("skip")
    try:
        return speech.usable_utterances(speech.read_source(data, bad, seed=0), bad)
    except (UserError, OSError) as error:
        raise UserError(
            f"--beam chooses the weight of its character model on the validation split of the run's data, {data!r}, "
            f"which cannot be read here: {error} Restore it, or search without a model: --lm {NO_MODEL}."
        ) from error


def _heard(recogniser: Recogniser, spoken: list[speech.Utterance], by_file: bool) -> tuple[list[np.ndarray], list[str]]:
    """Log-probabilities and texts of `TRIED` utterances, drawn with a fixed seed."""
    order = np.random.default_rng(0).permutation(len(spoken))[:TRIED]
    # an utterance without a speaker is normalised alone, as in training
    voices = ["" if by_file else spoken[index].speaker for index in order]
    chosen = sorted((voice or f"\0{index}", index) for voice, index in zip(voices, order, strict=True))
    heard, said = [], []
    for _, own in groupby(chosen, key=lambda each: each[0]):
        own = [spoken[index] for _, index in own]
        waves = []
        for each in own:
            with contextlib.suppress(UserError):  # training skipped it as well
                waves.append(speech.wave_of(each))
                said.append(each.text)
        heard += [each.log_probabilities for each in recogniser.hear(waves)]
    return heard, said


def align(
    log_probabilities: np.ndarray, text: str, outputs_per_s: float, alphabet: speech.Alphabet | None = None
) -> pd.DataFrame:
    """Start and end of each character of a text on the likeliest path that writes it (Viterbi's algorithm).

    Args:
        log_probabilities: float (T', V).
        text: what was heard or said, in the alphabet's characters.
        outputs_per_s: `Recogniser.outputs_per_s`.
        alphabet: the recogniser's; None is the English one.

    Returns:
        Columns character, start_s, end_s. CTC's characters are short, where the model was sure of them.

    Raises:
        UserError: the text needs more outputs than there are.
    """
    outputs, needed = len(log_probabilities), speech.outputs_needed(text)
    if needed > outputs:
        raise UserError(
            f"the text {text[:60]!r} needs {needed} outputs, and the audio has {outputs}: give the text that is said."
        )
    if not text:
        return pd.DataFrame({"character": [], "start_s": [], "end_s": []})
    ids = (alphabet or speech.Alphabet()).encode(text)
    labels = np.full(2 * len(ids) + 1, speech.BLANK)  # a blank before, between and after the characters
    labels[1::2] = ids
    may_skip = np.zeros(len(labels), bool)  # paths may skip the blank between two different characters
    may_skip[3::2] = ids[1:] != ids[:-1]
    emitted = log_probabilities[:, labels]  # (T', 2 S + 1)
    score = np.full(len(labels), -np.inf)
    score[:2] = emitted[0, :2]
    steps = np.zeros(emitted.shape, np.int8)
    """Number of labels from each output's predecessor to it"""
    for output in range(1, outputs):
        ways = np.full((3, len(labels)), -np.inf)
        ways[0] = score
        ways[1, 1:] = score[:-1]
        ways[2, 2:] = np.where(may_skip[2:], score[:-2], -np.inf)
        steps[output] = ways.argmax(0)
        score = ways.max(0) + emitted[output]
    place = len(labels) - 1 - int(score[-2] > score[-1])
    path = np.empty(outputs, np.int64)
    for output in reversed(range(outputs)):
        path[output] = place
        place -= int(steps[output, place])
    spans = [np.flatnonzero(path == 2 * index + 1)[[0, -1]] for index in range(len(ids))]
    starts, ends = np.array(spans, np.float64).T
    ends += 1
    return pd.DataFrame({"character": list(text), "start_s": starts / outputs_per_s, "end_s": ends / outputs_per_s})
