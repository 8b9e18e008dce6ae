"""A prepared speech set: features in one memory-mapped array and texts next to it; its alphabet and its batches.

    features.f16        float16 (frames of all utterances, F), utterance after utterance, the training split first
    meta.json           name, findings of the preparation, and for each split the utterances' frames, texts, speakers

N utterances, B of a batch, T frames of F features (80 log-mel bins), S characters, V characters and the blank.
"""

import functools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from labkit import UserError
from labkit.data.speech.sources import SPLITS, Utterance
from labkit.data.store import read_meta

FRAMES_PER_S = 100
BLANK = 0
"""The id of CTC's blank."""

ENGLISH = " '" + string.ascii_lowercase

RARE = 1e-4
"""A letter beyond a to z in at most this share of the transcripts is not of the alphabet"""
TAGS = re.compile(r"\[[^\]]*\]|<[^>]*>")
"""Notes of what is heard and not said, such as [laughs] and <noise>"""
MARKS = {"\N{RIGHT SINGLE QUOTATION MARK}": "'", "\N{MODIFIER LETTER APOSTROPHE}": "'", "i\N{COMBINING DOT ABOVE}": "i"}
ADVICE = {"L": "write it in these letters", "N": "write numbers as words (num2words does so)"}
"""What to do about a character outside the alphabet, by its category in Unicode: letter or number"""
UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")
"""The byte order marks of UTF-16, as decoding by UTF-8 with "surrogateescape" leaves them"""
MOST_LEFT_OUT = 0.01
"""Largest share of the training utterances that may be too fast for the outputs they get"""
POOL_BATCHES = 32
"""Batches whose utterances are sorted together: more means less padding, but less randomness in who meets whom"""


class Alphabet:
    """A set of characters; id 0 is the blank, character i has id i + 1.

    >>> alphabet = Alphabet()
    >>> alphabet.encode("a b").tolist()
    [3, 1, 4]
    >>> alphabet.decode(np.array([[3, 3, 0, 3, 1, 4]]), np.array([6]))
    ['aa b']
    """

    def __init__(self, characters: str = ENGLISH):
        self.characters = characters
        self._ids = {character: index for index, character in enumerate(characters, BLANK + 1)}
        self._table = np.array(["", *characters])  # (V,)

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Alphabet":
        """The alphabet of transcripts that are tidy: space, apostrophe, a to z, and their other letters, sorted.

        Letters are those of any script, with combining marks, as Unicode defines them. Those in at most one of 10,000
        transcripts are not included: they are of foreign names, and too rare to be learnt. The letters a to z are, for
        every language that writes any of them.

        >>> Alphabet.of(["grüße", "one"]).characters
        " 'abcdefghijklmnopqrstuvwxyzßü"
        """
        counts = Counter(character for text in texts for character in set(text))
        letters = {one for one in counts if unicodedata.category(one)[0] in "LM" and counts[one] > RARE * len(texts)}
        own = "".join(sorted(letters - set(ENGLISH)))
        return cls(ENGLISH + own if not own or letters & set(ENGLISH) else " '" + own)

    def __len__(self) -> int:
        """Size of a model's output: the characters and the blank."""
        return len(self.characters) + 1

    def encode(self, text: str) -> np.ndarray:
        """Ids of the characters of a text: int64 (S,)."""
        try:
            return np.array([self._ids[character] for character in text], dtype=np.int64)
        except KeyError as error:
            raise UserError(
                f"The character {error.args[0]!r} of {text!r} is not in the alphabet: use only {self.characters!r}."
            ) from None

    def outside(self, text: str) -> str:
        """The characters of a text that are not in the alphabet, in order, without repeats."""
        return "".join(dict.fromkeys(character for character in text if character not in self._ids))

    def decode(self, ids: np.ndarray, lengths: np.ndarray) -> list[str]:
        """Texts of a batch by CTC's rule (merge repeats, then drop blanks).

        The likeliest ids (B, T) and their `lengths` (B,) are arrays or CPU tensors.
        """
        ids, lengths = np.asarray(ids), np.asarray(lengths)
        keep = ids != BLANK  # (B, T)
        keep[:, 1:] &= ids[:, 1:] != ids[:, :-1]
        keep &= np.arange(ids.shape[1]) < lengths[:, None]
        written = "".join(self._table[ids[keep]].tolist())
        ends = keep.sum(1).cumsum().tolist()
        return [written[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def outputs_needed(text: str) -> int:
    """Outputs that CTC needs to write a text: one per character, and a blank between equal neighbours.

    >>> outputs_needed("three")
    6
    """
    return sum(2 * len(list(same)) - 1 for _, same in groupby(text))


def in_lower_case(text: str) -> str:
    """A text in lower case, with composed letters (NFC) and the apostrophe of the alphabet."""
    text = unicodedata.normalize("NFC", text.lower())
    for old, new in MARKS.items():
        text = text.replace(old, new)
    return text


def tidy(text: str) -> str:
    """A transcript as the recogniser is to write it: in lower case, with single spaces, without punctuation.

    Tags in square or angle brackets are removed, and invisible signs (Unicode's category Cf).

    >>> tidy("“It’s [um] one,” he said.")
    "it's one he said"
    """
    text = TAGS.sub(" ", in_lower_case(text))
    kinds = {character: unicodedata.category(character) for character in set(text) - {"'"}}
    marks = {ord(one): " " for one, kind in kinds.items() if kind[0] == "P"}
    invisible = {ord(one): None for one, kind in kinds.items() if kind == "Cf"}
    return " ".join(text.translate(marks | invisible).split())


def transcript(utterance: Utterance, alphabet: Alphabet) -> str:
    """The text that the recogniser is to write.

    Raises:
        DataError: the transcript is not UTF-8, is empty, or has characters outside the alphabet.
    """
    text, field = tidy(utterance.text), utterance.text_field or "text"
    try:
        (utterance.text + utterance.speaker).encode("utf-8")
    except UnicodeEncodeError:
        what = f"{utterance.text[:60]!r} by {utterance.speaker[:60]!r} is not UTF-8."
        coding = "latin1"
        if utterance.text.startswith(UTF_16):
            what, coding = "The transcript is UTF-16, not UTF-8.", "utf-16"
        fix = f"Convert the file, for example: iconv -f {coding} -t utf-8 OLD > NEW."
        raise utterance.error(what, fix, field) from None
    if not text:
        raise utterance.error("The transcript is empty.", "Write what is said, or remove the line.", field)
    if outside := alphabet.outside(text):
        which = ", ".join(map(repr, outside))
        what = f"The transcript {text[:60]!r} has {which}, but the alphabet is {alphabet.characters!r}."
        advice = dict.fromkeys(ADVICE.get(unicodedata.category(each)[0], "remove the signs") for each in outside)
        raise utterance.error(what, f"{' and '.join(advice).capitalize()}, or remove the utterance.", field)
    return text


def speech_metrics(references: list[str], hypotheses: list[str]) -> dict[str, float]:
    """Character and word error rate over all utterances together.

    >>> speech_metrics(["one two"], ["one too"])["wer"]
    0.5
    """
    import jiwer

    return {name: float(getattr(jiwer, name)(references, hypotheses)) for name in ("cer", "wer")}


@dataclass(frozen=True)
class Batch:
    """Utterances of one batch, padded to the longest."""

    features: Tensor  # float32 (B, T, F), zero padded
    feature_lengths: Tensor  # int64 (B,) frames
    tokens: Tensor  # int64 (B, S), padded with blanks
    token_lengths: Tensor  # int64 (B,)
    texts: list[str]


@dataclass(frozen=True)
class SpeechSplit:
    """The utterances of one split."""

    lengths: np.ndarray
    """Frames of each utterance: int32 (N,)"""
    texts: list[str]
    speakers: list[str]
    frames: np.ndarray
    """float16 (frames of this split, F), memory-mapped"""
    alphabet: Alphabet = field(default_factory=Alphabet)

    def __len__(self) -> int:
        return len(self.texts)

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.lengths, dtype=np.int64)

    def features(self, index: int) -> np.ndarray:
        """Features of one utterance: float32 (T, F)."""
        return self.frames[self._ends[index] - self.lengths[index] : self._ends[index]].astype(np.float32)

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """The utterances at these indices, in this order."""
        encode = self.alphabet.encode
        return padded([(self.features(index), encode(self.texts[index]), self.texts[index]) for index in indices])


def padded(utterances: Iterable[tuple[np.ndarray, np.ndarray, str]]) -> Batch:
    """Make a batch of the features (T, F), tokens (S,) and text of each utterance, padded to the longest."""
    features, tokens, texts = zip(*utterances, strict=True)
    parts = []
    for arrays in (features, tokens):
        parts.append(pad_sequence([torch.from_numpy(array) for array in arrays], batch_first=True))
        parts.append(torch.tensor([len(array) for array in arrays]))
    return Batch(*parts, list(texts))


class SpeechSet:
    """A prepared speech set, opened without reading its features."""

    def __init__(self, folder: Path):
        self.folder = folder
        meta = read_meta(folder)
        self.name: str = meta["name"]
        self.alphabet = Alphabet(meta["alphabet"])
        self.fingerprint: str = meta["fingerprint"]
        self.bins: int = meta["bins"]
        """Numbers per frame"""
        self.info: dict = meta["info"]
        """Hours of each split, skipped utterances, what was not used, and whether splits were made for want of some"""
        self._splits: dict[str, dict[str, list]] = meta["splits"]

    def split(self, name: str) -> SpeechSplit:
        """The split "train", "validation" or "test"."""
        first = sum(sum(self._splits[before]["frames"]) for before in SPLITS[: SPLITS.index(name)])
        lengths, texts, speakers = (self._splits[name][part] for part in ("frames", "texts", "speakers"))
        frames = np.memmap(self.folder / "features.f16", np.float16, "r").reshape(-1, self.bins)
        own = frames[first : first + sum(lengths)]
        return SpeechSplit(np.array(lengths, np.int32), texts, speakers, own, self.alphabet)

    def __repr__(self) -> str:
        parts = (
            f"{name} {len(self._splits[name]['texts']):,} utterances, {self.info['hours'][name]:.2f} h"
            for name in SPLITS
        )
        return f"SpeechSet({self.name!r}: {'; '.join(parts)}; {len(self.alphabet)} characters with the blank)"


@dataclass(frozen=True)
class Resolution:
    """Strides of a recogniser that fit a training split."""

    strides: tuple[int, ...]
    kept: np.ndarray
    """Indices of the utterances that can be learnt from: int64 (N,)"""
    words: str
    """Differences from the wanted strides, as text; empty if there are none"""


def fitting_resolution(split: SpeechSplit, wanted: tuple[int, ...]) -> Resolution:
    """The wanted strides, or the next finer ones with which nearly all utterances can be learnt from.

    CTC writes at most one character per output, and needs a blank between equal ones (Graves et al., 2006, section 3).
    Evaluation uses all utterances: what a model cannot write counts as errors.
    """
    frames = np.asarray(split.lengths)
    needed = np.array([outputs_needed(text) for text in split.texts])
    strides = list(wanted)
    while (fits := -(-frames // int(np.prod(strides))) >= needed).mean() < 1 - MOST_LEFT_OUT and max(strides) > 1:
        last = max(place for place, stride in enumerate(strides) if stride > 1)
        strides[last] -= 1
    words, many = [], len(split)
    ms, wanted_ms = (1000 * int(np.prod(each)) // FRAMES_PER_S for each in (strides, wanted))
    if ms != wanted_ms:
        words.append(f"The speech is too fast for an output every {wanted_ms} ms: the model has one every {ms} ms.")
    if not fits.all():
        words.append(
            f"{many - fits.sum():,} of {many:,} training utterances are still too fast, and are not used for training."
        )
    return Resolution(tuple(strides), np.flatnonzero(fits), " ".join(words))


class BucketedBatches:
    """A loader that can start anywhere, for `run.batches`."""

    def __init__(self, split: SpeechSplit, batch_size: int, seed: int, kept: np.ndarray | None = None):
        """Batches of the utterances of a split, or only of those at the indices `kept`."""
        self.split, self.batch_size, self.seed = split, batch_size, seed
        self._kept = np.arange(len(split.lengths)) if kept is None else kept
        self._epoch = -1

    def __len__(self) -> int:
        return len(self.rows(0))

    def __iter__(self) -> Iterator[Batch]:
        """The next epoch."""
        return self.at(self._epoch + 1, 0)

    def at(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from number `start` on."""
        self._epoch = epoch
        return map(self.split.batch, self.rows(epoch)[start:])

    def rows(self, epoch: int) -> list[np.ndarray]:
        """The indices (B,) of the batches of an epoch; seed and epoch fix the order.

        A random order is cut into pools of 32 batches. Each pool is sorted by length and cut into batches. All batches
        are shuffled.
        """
        rng, lengths, size = np.random.default_rng((self.seed, epoch)), np.asarray(self.split.lengths), self.batch_size
        order, batches = rng.permutation(self._kept), []
        for start in range(0, len(order), size * POOL_BATCHES):
            pool = order[start : start + size * POOL_BATCHES]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            batches += [pool[first : first + size] for first in range(0, len(pool), size)]
        return [batches[index] for index in rng.permutation(len(batches))]


class ByLength:
    """The utterances of a split, shortest first, in every iteration."""

    def __init__(self, split: SpeechSplit, batch_size: int):
        self.split, self.batch_size = split, batch_size

    def __iter__(self) -> Iterator[Batch]:
        order = np.argsort(np.asarray(self.split.lengths), kind="stable")
        for start in range(0, len(order), self.batch_size):
            yield self.split.batch(order[start : start + self.batch_size])
