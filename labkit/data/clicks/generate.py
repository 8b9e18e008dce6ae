"""Synthetic click logs with a planted teacher: there is something to learn, and its limit is known.

The teacher is drawn from the seed. It gives each category a first-order effect, and gives a few tables, and the dense
features together, a short latent vector. The logit of a row is the sum of the effects and of the dot products of all
pairs of latent vectors, which a factorisation machine or a DLRM's dot interaction can express. Its scale is set so that
even the teacher's own probabilities reach only `bayes_auc`; the rest is noise.

Categories follow Zipf's law. The effects of rare categories are damped, because few rows are not enough to learn them.

Shapes: n rows of a block, D dense features, F tables, L lookups per bag, K latent width.
"""

import contextlib
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labkit import UserError, errors
from labkit.data.store import Progress

BLOCK_ROWS = 8192
"""Rows of a block, which has its own random stream: row i is the same, whatever the number of rows"""

CALIBRATION_ROWS = 32_768
LATENT_WIDTH = 2
PAIR_TABLES = 3
"""Number of tables with latent vectors: the smallest ones, whose categories are frequent enough to be learnt"""

VARIANCE_SHARES = {"dense": 0.35, "categorical": 0.45, "pairs": 0.2}
"""Shares of the variance of the logit. With these and `RARE`, a DLRM of width 16 is 0.02 below the Bayes AUC after
400,000 rows. The teacher without its pairs is 0.035 below, so the interaction matters."""

RARE = 1 / 10
"""Frequency at which a category keeps half of its effect"""

MISSING_RATES = (0.45, 0.0, 0.2, 0.2, 0.05, 0.2, 0.05, 0.0, 0.05, 0.45, 0.05, 0.75, 0.2)
"""Share of missing values by dense feature, repeated; of the order seen in the public Criteo sample"""

CRITEO_LIKE_TABLES = tuple(int(200 * 150 ** (index / 25)) for index in range(26))
"""Rows of 26 tables, from 200 to 30,000"""


@dataclass(frozen=True)
class GeneratorConfig:
    """What to generate. The same config gives the same rows everywhere."""

    train_rows: int = 500_000
    validation_rows: int = 60_000
    test_rows: int = 60_000
    dense_dim: int = 13
    """Number of dense features"""
    num_rows: tuple[int, ...] = CRITEO_LIKE_TABLES
    """Rows of each table; row 0 stands for a missing category"""
    zipf_exponent: float = 1.05
    """Skew x of the categories: the share of the r-th most frequent one is proportional to r^-x"""
    pooling_factor: int = 1
    """Lookups per bag"""
    bayes_auc: float = 0.80
    """AUC of the true probabilities, as nearly as it can be set; the AUC that is reached is reported"""
    base_rate: float = 0.25
    """Share of clicks"""
    seed: int = 0

    def __post_init__(self):
        object.__setattr__(self, "num_rows", tuple(self.num_rows))
        for name in ("train_rows", "validation_rows", "test_rows", "dense_dim", "pooling_factor", "seed"):
            least = 0 if name == "seed" else 1
            if getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}: give {least} or more.")
        if not self.num_rows or min(self.num_rows) < 2:
            raise errors.wrong_value("num_rows", self.num_rows, "give one or more tables of at least 2 rows.")
        if self.zipf_exponent < 0:
            raise errors.wrong_value("zipf_exponent", self.zipf_exponent, "give 0 (uniform) or more (skewed).")
        for name, low, high in (("bayes_auc", 0.5, 0.99), ("base_rate", 0.0, 1.0)):
            if not low < getattr(self, name) < high:
                raise errors.wrong_value(name, getattr(self, name), f"give a number between {low} and {high}.")

    @property
    def rows(self) -> int:
        """Rows of all splits together."""
        return self.train_rows + self.validation_rows + self.test_rows

    @property
    def prepared_bytes(self) -> int:
        """Bytes of the prepared rows."""
        return self.rows * (4 * self.dense_dim + 4 * len(self.num_rows) * self.pooling_factor + 1)

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """The names of the dense and the categorical features, in Criteo's style."""
        dense, categorical = range(1, self.dense_dim + 1), range(1, len(self.num_rows) + 1)
        return [f"I{number}" for number in dense], [f"C{number}" for number in categorical]


@dataclass(frozen=True)
class ClickBlock:
    """A block of generated rows, as a log stores them and as a model takes them."""

    counts: np.ndarray  # float32 (n, D): the dense features as the whole numbers of a log
    missing: np.ndarray  # bool (n, D)
    dense: np.ndarray  # float32 (n, D): signed logarithm of the counts, standardised; 0 where missing
    categorical: np.ndarray  # int32 (n, F, L): table rows
    label: np.ndarray  # uint8 (n,)
    probability: np.ndarray  # float64 (n,): the true probability of a click


def signed_log(values: np.ndarray) -> np.ndarray:
    """sign(x)·log(1 + |x|): compresses long tails, and keeps the order, also of negative numbers.

    >>> signed_log(np.array([-1.0, 0.0, 1.0])).round(3).tolist()
    [-0.693, 0.0, 0.693]
    """
    return np.copysign(np.log1p(np.abs(values)), values)


class ClickGenerator:
    """The teacher and its rows. The teacher depends only on the config; each split has its own rows."""

    def __init__(self, config: GeneratorConfig):
        self.config = config
        dims = config.dense_dim
        rng = _stream(config.seed, 0)
        self._log_mean = rng.uniform(0.5, 4.0, dims).astype(np.float32)
        self._log_sd = rng.uniform(0.7, 1.4, dims).astype(np.float32)
        self._missing_rate = np.resize(MISSING_RATES, dims).astype(np.float32)
        # as in Criteo's second feature, some counts are below zero
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
        # a whole block is drawn and then cut, so that a shorter log is the beginning of a longer one
        counts, missing, categorical = self._draw(rng, BLOCK_ROWS)
        dense = self._standardise(counts, missing)
        terms = self._terms(dense, categorical)
        logit = self._bias + sum(scale * terms[name].astype(np.float64) for name, scale in self._scales.items())
        probability = 1 / (1 + np.exp(-logit))
        label = (rng.random(BLOCK_ROWS) < probability).astype(np.uint8)
        return ClickBlock(*(part[:rows] for part in (counts, missing, dense, categorical, label, probability)))

    def _draw(self, rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw log-normal counts float32 (rows, D), which of them are missing, and table rows int32 (rows, F, L)."""
        counts = rng.standard_normal((rows, self.config.dense_dim), dtype=np.float32)
        missing = rng.random(counts.shape, dtype=np.float32) < self._missing_rate
        counts = np.floor(np.exp(counts * self._log_sd + self._log_mean)) - self._shift
        bags = (rows, self.config.pooling_factor)
        categorical = [sampler.draw(rng, rows * bags[1]).reshape(bags) for sampler in self._samplers]
        return counts, missing, np.stack(categorical, axis=1)

    def _standardise(self, counts: np.ndarray, missing: np.ndarray) -> np.ndarray:
        return np.where(missing, 0, (signed_log(counts) - self._dense_mean) / self._dense_sd)

    def _terms(self, dense: np.ndarray, categorical: np.ndarray) -> dict[str, np.ndarray]:
        """The three parts of the logit before scaling, each float32 (n,)."""
        # einsum without `optimize` never calls BLAS, whose sums would depend on the number of threads
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
        # the sum of the dot products of all pairs (Rendle, ICDM 2010, eq. 5)
        return {"dense": linear, "categorical": first_order, "pairs": 0.5 * (total * total - squares).sum(1)}

    def _calibrate(self, rng: np.random.Generator) -> None:
        """Set the features' mean and deviation, and the scale and bias of the logit, on rows drawn only for this."""
        counts, missing, categorical = self._draw(rng, CALIBRATION_ROWS)
        logs = np.ma.masked_array(signed_log(counts), missing)
        self._dense_mean = logs.mean(0).data.astype(np.float32)
        self._dense_sd = logs.std(0).data.astype(np.float32)
        dense = self._standardise(counts, missing)
        # in the pairs the dense features together weigh as much as one table: a latent variance of 1
        self._latent_scale = np.float32(1 / np.sqrt(self.config.dense_dim * dense.var()))
        terms = self._terms(dense, categorical)
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
    """The lowest number that is not too low, nearly."""
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return middle


def expected_auc(probability: np.ndarray) -> float:
    """The expected AUC of ranking rows by their true, ascending `probability` (N,), over all labels."""
    negatives = np.cumsum(1 - probability) - (1 - probability)
    return float((probability * negatives).sum() / (probability.sum() * (1 - probability).sum()))


def auc(label: np.ndarray, score: np.ndarray) -> float:
    """The share of (positive, negative) pairs that the scores order correctly (Mann–Whitney); ties count half.

    Labels (N,) are 0 or 1. NaN if only one class is present, or if a score (N,) is NaN.

    >>> auc(np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.4, 0.4]))
    0.875
    """
    positives = int((label == 1).sum())
    negatives = len(label) - positives
    if not positives or not negatives or np.isnan(score).any():
        return float("nan")
    # Each score's rank from 1, equal scores share the mean of theirs. Not scipy.stats, which takes a second to import.
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((rank[label == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def _draw_effects(probability: np.ndarray, width: int, rng: np.random.Generator) -> np.ndarray:
    """Effects float32 (R, width) with mean 0 and variance 1 over the table's distribution; damped for rare rows."""
    effects = rng.standard_normal((len(probability), width)) * (probability / (probability + RARE))[:, None]
    effects -= probability @ effects
    spread = np.sqrt(probability @ effects**2)
    # a table of which a single row is used has no effect
    return (effects / np.where(spread > 0, spread, 1)).astype(np.float32)


def _stream(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))


class ZipfSampler:
    """Draws rows of one table: the share of the r-th most frequent is proportional to r to the power of −`exponent`.

    Row 0 stands for a missing category and has the share `missing_rate`. The frequent rows are scattered over the
    table, as after hashing or numbering by arrival.
    """

    def __init__(self, num_rows: int, exponent: float, missing_rate: float, rng: np.random.Generator):
        share = np.arange(1, num_rows, dtype=np.float64) ** -exponent
        by_rank = np.concatenate([share * ((1 - missing_rate) / share.sum()), [missing_rate]])
        row_of = np.concatenate([1 + rng.permutation(num_rows - 1), [0]]).astype(np.int32)
        self.probability = np.empty(num_rows)
        """(num_rows,): the probability of each row"""
        self.probability[row_of] = by_rank
        cumulative = np.cumsum(by_rank)
        self._row_of, self._cumulative = row_of, cumulative / cumulative[-1]

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Rows, int32 (size,)."""
        return self._row_of.take(np.searchsorted(self._cumulative, rng.random(size), side="right"))


SYNTHETIC = {
    "synthetic": GeneratorConfig(),
    "synthetic-small": GeneratorConfig(50_000, 6_000, 6_000, num_rows=tuple(int(50 * 40 ** (k / 7)) for k in range(8))),
    # the shapes of the benchmark preset of the reference DLRM (facebookresearch/dlrm, bench/)
    "synthetic-benchmark": GeneratorConfig(40_960, 8_192, 8_192, 512, (1_000_000,) * 8, pooling_factor=100),
}
"""Generated datasets by name"""


def write_clicks(out: Path, rows: int, config: GeneratorConfig, file_format: str, progress: Progress) -> None:
    """Write generated rows to a file ("criteo", "csv", "parquet"; gzip if it ends in .gz), which appears when complete.

    Raises:
        UserError: the format cannot store rows of this config.
    """
    if config.pooling_factor != 1:
        raise UserError(f"pooling_factor is {config.pooling_factor}, but a file has one category per field: use 1.")
    if file_format == "criteo" and (config.dense_dim, len(config.num_rows)) != (13, 26):
        raise UserError(
            f"Criteo's layout has 13 dense and 26 categorical features, not {config.dense_dim} and "
            f"{len(config.num_rows)}: omit those options, or choose the format csv or parquet."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary, done = out.with_name(f".{out.name}.partial"), 0
    try:
        with contextlib.ExitStack() as stack:
            sink = stack.enter_context(temporary.open("wb"))
            if out.suffix == ".gz":  # mtime=0: the same rows make the same bytes
                sink = stack.enter_context(gzip.GzipFile(fileobj=sink, mode="wb", filename="", mtime=0))
            for batch in table_batches(config, rows):
                if done == 0:
                    writer = stack.enter_context(_open_writer(sink, batch.schema, file_format))
                writer.write(batch)
                done += batch.num_rows
                progress(done / rows, f"{done:,} of {rows:,} rows written")
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _open_writer(sink, schema: pa.Schema, file_format: str) -> pa_csv.CSVWriter | pq.ParquetWriter:
    if file_format == "parquet":
        return pq.ParquetWriter(sink, schema, write_page_checksum=True)
    is_csv = file_format == "csv"
    unquoted = {"quoting_style": "none", "quoting_header": "none"}
    options = pa_csv.WriteOptions(include_header=is_csv, delimiter="," if is_csv else "\t", **unquoted)
    return pa_csv.CSVWriter(sink, schema, write_options=options)


def table_batches(config: GeneratorConfig, rows: int) -> Iterator[pa.Table]:
    """Generated rows as tables with the columns label, I1, I2, … and C1, C2, …; null where missing."""
    dense_names, categorical_names = config.names
    tokens = [category_tokens(table, size) for table, size in enumerate(config.num_rows)]
    for block in ClickGenerator(config).blocks("train", rows):
        counts = block.counts.astype(np.int64)
        columns = [
            pa.array(block.label.astype(np.int64)),
            *(pa.array(counts[:, index], mask=block.missing[:, index]) for index in range(counts.shape[1])),
            *(names.take(pa.array(block.categorical[:, index, 0])) for index, names in enumerate(tokens)),
        ]
        yield pa.table(columns, names=["label", *dense_names, *categorical_names])


def category_tokens(table: int, num_rows: int) -> pa.Array:
    """Names (num_rows,) of the categories of a table: 8 hexadecimal digits, all different; null for row 0."""
    # scrambling is a bijection, so no two categories share a name; the offset separates the tables
    values = scramble(np.arange(num_rows, dtype=np.uint32) + np.uint32(table << 24))
    return pa.array([None, *(f"{value:08x}" for value in values[1:].tolist())])


def scramble(values: np.ndarray) -> np.ndarray:
    """A bijection of 32-bit numbers that looks random: the finaliser of MurmurHash3 (public domain)."""
    mixed = values.astype(np.uint32)
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed
