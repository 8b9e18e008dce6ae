"""Synthetic click logs with a planted teacher, so that there is something to learn and its limit is known.

A teacher, drawn from the seed, gives every category a first-order effect and a few tables (and the dense
features together) a short latent vector; a row's logit is the sum of the effects and of the dot products of
all pairs of latent vectors, which is what a factorisation machine or a DLRM's dot interaction can express.
Its scale is set so that even the teacher's own probabilities reach only `bayes_auc`; the rest is noise.

Categories follow Zipf's law. The effects of rare categories are damped: nobody can learn them from few rows.
Shapes: n rows of a block, D dense features, F tables, L lookups a bag, K latent width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from labkit.errors import UserError, with_flag

BLOCK_ROWS = 8192
"""Every block has its own random stream, so row i is the same however many rows are made."""

CALIBRATION_ROWS = 32_768
LATENT_WIDTH = 2
PAIR_TABLES = 3
"""How many tables meet in pairs: the smallest ones, whose categories are frequent enough to be learnt."""

VARIANCE_SHARES = {"dense": 0.35, "categorical": 0.45, "pairs": 0.2}
"""Of the logit. With these and `RARE`, a DLRM of width 16 is 0.02 short of the Bayes AUC after 400,000
rows, and the teacher without its pairs 0.035 short, so the interaction is worth having."""

RARE = 1 / 10
"""A category this frequent keeps half of its effect."""

MISSING_RATES = (0.45, 0.0, 0.2, 0.2, 0.05, 0.2, 0.05, 0.0, 0.05, 0.45, 0.05, 0.75, 0.2)
"""Missing dense values by feature, repeated: of the order seen in the public Criteo sample."""

CRITEO_LIKE_TABLES = tuple(int(200 * 150 ** (index / 25)) for index in range(26))
"""Rows of 26 tables, from 200 to 30,000."""


@dataclass(frozen=True)
class GeneratorConfig:
    """What to generate; the same config gives the same rows everywhere."""

    train_rows: int = 500_000
    validation_rows: int = 60_000
    test_rows: int = 60_000
    dense_dim: int = 13
    """Number of dense features."""
    num_rows: tuple[int, ...] = CRITEO_LIKE_TABLES
    """Rows of each table; row 0 stands for a missing category."""
    zipf_exponent: float = 1.05
    """Skew of the categories: the r-th most frequent one has a share proportional to r to the minus this."""
    pooling_factor: int = 1
    """Lookups a bag."""
    bayes_auc: float = 0.80
    """The AUC that the true probabilities reach, as far as it can be set; the reached one is reported."""
    base_rate: float = 0.25
    """Share of clicks."""
    seed: int = 0

    def __post_init__(self):
        object.__setattr__(self, "num_rows", tuple(self.num_rows))
        for name in ("train_rows", "validation_rows", "test_rows", "dense_dim", "pooling_factor"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}, and must be 1 or more.")
        if self.seed < 0:
            raise UserError(f"seed is {self.seed}, and must be 0 or more.")
        if not self.num_rows or min(self.num_rows) < 2:
            raise UserError(f"{with_flag('num_rows')} is {self.num_rows}: give one or more tables of at least 2 rows.")
        if self.zipf_exponent < 0:
            raise UserError(f"{with_flag('zipf_exponent')} is {self.zipf_exponent}: give 0 (uniform) or more (skewed).")
        for name, low, high in (("bayes_auc", 0.5, 0.99), ("base_rate", 0.0, 1.0)):
            if not low < getattr(self, name) < high:
                raise UserError(f"{with_flag(name)} is {getattr(self, name)}, and must lie between {low} and {high}.")


@dataclass(frozen=True)
class ClickBlock:
    """A block of generated rows, both as a log would hold them and as a model takes them."""

    counts: np.ndarray
    """float32 (n, D): the dense features as the whole numbers of a log"""
    missing: np.ndarray
    """bool (n, D)"""
    dense: np.ndarray
    """float32 (n, D): signed logarithm of the counts, standardised; 0 where missing"""
    categorical: np.ndarray
    """int32 (n, F, L): table rows"""
    label: np.ndarray
    """uint8 (n,)"""
    probability: np.ndarray
    """float64 (n,): the true probability of a click"""


def signed_log(values: np.ndarray) -> np.ndarray:
    """sign(x)·log(1 + |x|): tames long tails and keeps negative integers apart from zero, in order.

    >>> signed_log(np.array([-1.0, 0.0, 1.0])).round(3).tolist()
    [-0.693, 0.0, 0.693]
    """
    return np.copysign(np.log1p(np.abs(values)), values)


class ClickGenerator:
    """The teacher and its rows. The teacher depends on the config only; each split has rows of its own."""

    def __init__(self, config: GeneratorConfig):
        self.config = config
        dims = config.dense_dim
        rng = _stream(config.seed, 0)
        self._log_mean = rng.uniform(0.5, 4.0, dims).astype(np.float32)
        self._log_sd = rng.uniform(0.7, 1.4, dims).astype(np.float32)
        self._missing_rate = np.resize(MISSING_RATES, dims).astype(np.float32)
        # As in Criteo's second feature, some counts go below zero.
        self._shift = np.where(np.arange(dims) % 6 == 1, 2, 0).astype(np.float32)
        self._slope, self._kink = rng.standard_normal((2, dims), dtype=np.float32)
        self._dense_latent = rng.standard_normal((dims, LATENT_WIDTH), dtype=np.float32)
        self._samplers, self._effects, self._latents = [], [], []
        smallest = set(np.argsort(config.num_rows, kind="stable")[:PAIR_TABLES].tolist())
        for table, rows in enumerate(config.num_rows):
            missing_rate = 0.02 if table % 3 == 0 and rows > 2 else 0.0
            sampler = ZipfSampler(rows, config.zipf_exponent, missing_rate, rng)
            self._samplers.append(sampler)
            self._effects.append(_draw_effects(sampler.probability, 1, rng) * rng.uniform(0.5, 1.5))
            self._latents.append(_draw_effects(sampler.probability, LATENT_WIDTH, rng) if table in smallest else None)
        self._calibrate(_stream(config.seed, 1))

    def blocks(self, split: str, rows: int) -> Iterator[ClickBlock]:
        """The first `rows` rows of a split ("train", "validation" or "test"), in blocks."""
        stream = {"train": 2, "validation": 3, "test": 4}[split]
        for index, start in enumerate(range(0, rows, BLOCK_ROWS)):
            yield self._block(_stream(self.config.seed, stream, index), min(BLOCK_ROWS, rows - start))

    def _block(self, rng: np.random.Generator, rows: int) -> ClickBlock:
        # A whole block is drawn and then cut, so that a shorter log is the beginning of a longer one.
        counts, missing = self._draw_counts(rng, BLOCK_ROWS)
        dense = self._standardise(counts, missing)
        categorical = self._draw_categorical(rng, BLOCK_ROWS)
        terms = self._terms(dense, categorical)
        logit = np.full(BLOCK_ROWS, self._bias)
        for name, scale in self._scales.items():
            logit += scale * terms[name]
        probability = 1 / (1 + np.exp(-logit))
        label = (rng.random(BLOCK_ROWS) < probability).astype(np.uint8)
        return ClickBlock(*(part[:rows] for part in (counts, missing, dense, categorical, label, probability)))

    def _draw_counts(self, rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Whole numbers float32 (rows, D) of log-normal shape, and which of them are missing."""
        counts = rng.standard_normal((rows, self.config.dense_dim), dtype=np.float32)
        missing = rng.random(counts.shape, dtype=np.float32) < self._missing_rate
        counts *= self._log_sd
        counts += self._log_mean
        np.floor(np.exp(counts, out=counts), out=counts)
        counts -= self._shift
        return counts, missing

    def _standardise(self, counts: np.ndarray, missing: np.ndarray) -> np.ndarray:
        dense = (signed_log(counts) - self._dense_mean) / self._dense_sd
        dense[missing] = 0
        return dense

    def _draw_categorical(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        """Table rows, int32 (rows, F, L)."""
        pooling = self.config.pooling_factor
        categorical = np.empty((rows, len(self._samplers), pooling), dtype=np.int32)
        for table, sampler in enumerate(self._samplers):
            categorical[:, table] = sampler.draw(rng, rows * pooling).reshape(rows, pooling)
        return categorical

    def _terms(self, dense: np.ndarray, categorical: np.ndarray) -> dict[str, np.ndarray]:
        """The three parts of the logit before scaling, float32 (n,) each."""
        # einsum without `optimize` never calls BLAS: its sums would depend on the number of threads.
        linear = np.einsum("nd,d->n", dense, self._slope) + np.einsum("nd,d->n", np.abs(dense), self._kink)
        latent = np.einsum("nd,dk->nk", dense, self._dense_latent * self._latent_scale)  # (n, K)
        total, squares = latent.copy(), latent * latent
        first_order = np.zeros(len(dense), dtype=np.float32)
        for table, effect in enumerate(self._effects):
            rows = categorical[:, table]  # (n, L)
            first_order += effect[:, 0].take(rows).sum(1)
            if self._latents[table] is not None:
                latent = self._latents[table].take(rows, axis=0).sum(1)  # (n, K)
                total += latent
                squares += latent * latent
        # The sum over all pairs of dot products (Rendle, ICDM 2010, eq. 5).
        return {"dense": linear, "categorical": first_order, "pairs": 0.5 * (total * total - squares).sum(1)}

    def _calibrate(self, rng: np.random.Generator) -> None:
        """Set the features' mean and spread, and the scale and bias of the logit, on rows of their own."""
        counts, missing = self._draw_counts(rng, CALIBRATION_ROWS)
        logs = np.ma.masked_array(signed_log(counts), missing)
        self._dense_mean = logs.mean(0).data.astype(np.float32)
        self._dense_sd = logs.std(0).data.astype(np.float32)
        dense = self._standardise(counts, missing)
        # The dense features together weigh as much in the pairs as one table: a latent variance of 1.
        self._latent_scale = np.float32(1 / np.sqrt(self.config.dense_dim * dense.var()))
        terms = self._terms(dense, self._draw_categorical(rng, CALIBRATION_ROWS))
        spread = {name: float(np.sqrt(VARIANCE_SHARES[name]) / term.std()) for name, term in terms.items()}
        logit = np.sort(sum(spread[name] * term.astype(np.float64) for name, term in terms.items()))

        def bias_of(scale: float) -> float:
            def too_few(bias: float) -> bool:
                logits = np.clip(scale * logit + bias, -500, 500)
                return (1 / (1 + np.exp(-logits))).mean() < self.config.base_rate

            return _bisect(too_few, -100.0, 100.0)

        def too_uncertain(scale: float) -> bool:  # more scale means more certainty and a higher AUC
            return expected_auc(1 / (1 + np.exp(-(scale * logit + bias_of(scale))))) < self.config.bayes_auc

        scale = _bisect(too_uncertain, 0.0, 30.0)
        self._bias, self._scales = bias_of(scale), {name: scale * part for name, part in spread.items()}


def _bisect(too_low: Callable[[float], bool], low: float, high: float) -> float:
    """About the lowest number that is not too low."""
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return middle


def expected_auc(probability: np.ndarray) -> float:
    """The AUC of ranking by the true probabilities, over all labels they may draw; ascending `probability`
    (N,)."""
    negatives = np.cumsum(1 - probability) - (1 - probability)
    return float((probability * negatives).sum() / (probability.sum() * (1 - probability).sum()))


def _draw_effects(probability: np.ndarray, width: int, rng: np.random.Generator) -> np.ndarray:
    """Effects float32 (R, width) with mean 0 and variance 1 over the table's own distribution; rare rows
    damped."""
    effects = rng.standard_normal((len(probability), width)) * (probability / (probability + RARE))[:, None]
    effects -= probability @ effects
    spread = np.sqrt(probability @ effects**2)
    # A table with a single row in use has nothing to tell.
    return (effects / np.where(spread > 0, spread, 1)).astype(np.float32)


def _stream(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))


class ZipfSampler:
    """Draws rows of one table: the r-th most frequent has a share proportional to r to the minus `exponent`.

    Row 0 stands for a missing category and has the share `missing_rate`. The frequent rows lie scattered
    over the table, as hashing or the order of arrival leaves them.
    """

    def __init__(self, num_rows: int, exponent: float, missing_rate: float, rng: np.random.Generator):
        share = np.arange(1, num_rows, dtype=np.float64) ** -exponent
        by_rank = np.concatenate([share * ((1 - missing_rate) / share.sum()), [missing_rate]])
        row_of = np.concatenate([1 + rng.permutation(num_rows - 1), [0]]).astype(np.int32)
        self.probability = np.empty(num_rows)
        """(num_rows,): the chance of each row"""
        self.probability[row_of] = by_rank
        cumulative = np.cumsum(by_rank)
        self._row_of, self._cumulative = row_of, cumulative / cumulative[-1]

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Rows, int32 (size,)."""
        return self._row_of.take(np.searchsorted(self._cumulative, rng.random(size), side="right"))
