"""The small TOML file that says what the columns of a table mean; Criteo's layout is one that is known."""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from labkit.errors import UserError

SCHEMA_EXAMPLE = """\
label = { column = "clicked", positive = ["1"] }
dense = ["price", "age"]
categorical = ["city", "device"]"""
DAY_FILE = re.compile(r"day_(\d+)(\.gz)?$")
"""A day of Criteo's Terabyte data; the Kaggle data is one file."""


@dataclass(frozen=True)
class Label:
    """The column that is learnt."""

    column: str
    positive: tuple[str, ...]
    """Values that count as 1."""
    negative: tuple[str, ...] = ()
    """Values that count as 0; empty: every other value but a missing one."""

    def __post_init__(self):
        if not self.positive:
            raise UserError(f"label.positive is empty: list the values of {self.column!r} that count as 1.")
        if both := sorted({*self.positive} & {*self.negative}):
            raise UserError(f"label.positive and label.negative both have {_listed(both)}: a value is in one of them.")


@dataclass(frozen=True)
class Split:
    """Which rows are for validation and test; the first of these that is given decides the test rows."""

    column: str | None = None
    """A column that says it, with the values below."""
    validation_values: tuple[str, ...] = ()
    test_values: tuple[str, ...] = ()
    last_rows: int | None = None
    """The last so many rows are the test rows."""
    by_time: bool = False
    """The last rows are for test, those before them for validation."""
    test: float | None = None
    """Share of the rows for test; None: 0.1 drawn at random by the seed, or by time half of the last day."""
    validation: float | None = None
    """Share for validation; None: 0.1 of what is left drawn at random by the seed, or by time half of the last day."""

    def __post_init__(self):
        validation, test = self.validation or 0.0, self.test or 0.0
        if not (0 <= validation < 1 and 0 <= test < 1 and validation + test < 1):
            raise UserError(
                f"validation is {validation} and test is {test}: give shares between 0 and 1 that together leave "
                "rows to train on."
            )
        if self.column is not None and not self.test_values:
            raise UserError(f"split.column is {self.column!r}: say in split.test_values which values mean test.")


@dataclass(frozen=True)
class TableSchema:
    """What the columns of CSV, TSV or Parquet files mean."""

    label: Label
    dense: tuple[str, ...] = ()
    """Numeric columns."""
    categorical: tuple[str, ...] = ()
    """Columns whose values are names, whatever they look like."""
    log: tuple[str, ...] = ()
    """Dense columns with long tails: their signed logarithm is taken."""
    bucketise: dict[str, int] = field(default_factory=dict)
    """Dense columns that also become a categorical feature of so many buckets with equal numbers of rows."""
    missing: tuple[str, ...] = ()
    """Values that mean missing, besides the empty one."""
    separator: str | None = None
    """Between the fields of a text file; spaces around it are ignored. None: a tab in .tsv, else a comma."""
    names: tuple[str, ...] = ()
    """The columns' names where the text file has no header line."""
    split: Split = field(default_factory=Split)
    vocabulary: str = "frequency"
    """"frequency": frequent values get a row of their own; "hash": every value gets one by its hash."""
    min_count: int = 2
    """With "frequency": a value seen less often in the training rows shares row 0."""
    max_rows_per_table: int = 200_000
    """The most rows of an embedding table, row 0 included."""
    layout: str = "table"
    """"criteo": all below is known, integers and hexadecimal numbers are expected, and nothing is quoted."""

    def __post_init__(self):
        choices = (("layout", ("table", "criteo")), ("vocabulary", ("frequency", "hash")))
        for name, (one, other) in choices:
            if (value := getattr(self, name)) not in (one, other):
                raise UserError(f'{name} is {value!r}: choose "{one}" or "{other}".')
        for name, least in (("min_count", 1), ("max_rows_per_table", 2)):
            if (value := getattr(self, name)) < least:
                raise UserError(f"{name} is {value}, and must be {least} or more.")
        if not self.dense or not self.categorical:
            raise UserError(
                f"The schema names {len(self.dense)} dense and {len(self.categorical)} categorical columns, "
                "and a DLRM needs at least one of each: list them under `dense` and `categorical`."
            )
        if self.separator is not None and not re.fullmatch(r" *[\t !#-~] *", self.separator):
            raise UserError(
                f"`separator` is {self.separator!r}: give a tab, a space or another character of ASCII but a "
                "quote (spaces around it do not count), and convert a file with something else between its fields."
            )
        columns = [self.label.column, *self.dense, *self.categorical]
        if repeated := sorted({column for column in columns if columns.count(column) > 1}):
            raise UserError(f"The schema uses {_listed(repeated)} more than once: give each column one role.")
        for role in ("log", "bucketise"):
            if strangers := [column for column in getattr(self, role) if column not in self.dense]:
                raise UserError(f"`{role}` names {_listed(strangers)}, not listed under `dense`: add it there.")
        if few := [column for column, buckets in self.bucketise.items() if buckets < 2]:
            raise UserError(f"`bucketise` gives {_listed(few)} fewer than 2 buckets: give 2 or more.")

    @property
    def columns(self) -> list[str]:
        """Every column the schema needs, each once, the label first."""
        names = [self.label.column, *self.dense, *self.categorical, self.split.column]
        return [name for name in dict.fromkeys(names) if name is not None]


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))


DENSE_NAMES = [f"I{number}" for number in range(1, 14)]
CATEGORICAL_NAMES = [f"C{number}" for number in range(1, 27)]
CRITEO = {
    "label": {"column": "label", "positive": ["1"], "negative": ["0"]},
    "dense": DENSE_NAMES,
    "categorical": CATEGORICAL_NAMES,
    "log": DENSE_NAMES,
    "names": ["label", *DENSE_NAMES, *CATEGORICAL_NAMES],
    "separator": "\t",
    "min_count": 4,
    "split": {"by_time": True},
    "layout": "criteo",
}
"""What `layout = "criteo"` stands for."""


def read_schema(path: Path) -> TableSchema:
    """Read a schema.

    Raises:
        UserError: no such file, bad TOML, an unknown or missing key, or a value of the wrong kind.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"There is no schema file {path}: check the path given to --schema.") from None
    except (ValueError, RecursionError) as error:  # bad TOML, no UTF-8, numbers of thousands of digits
        raise UserError(f"{path} is not a TOML file: {error}. Mend it: schemas look like\n{SCHEMA_EXAMPLE}") from error
    try:
        return schema_of(content)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def schema_of(content: dict) -> TableSchema:
    """The schema that a file's content says."""
    return _build(TableSchema, (CRITEO if content.get("layout") == "criteo" else {}) | content)


def _build(kind: type, content: dict, prefix: str = ""):
    """Make one of the dataclasses above from TOML values, checking names and kinds."""
    fields = _known(content, kind, "key", prefix)
    for name, item in fields.items():
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        if required and name not in content:
            raise UserError(f"The key {prefix + name!r} is missing. A schema looks like\n{SCHEMA_EXAMPLE}")
    return kind(**{name: _convert(value, fields[name].type, prefix + name) for name, value in content.items()})


def override(config, options: dict):
    """One of the dataclasses above, or a generator's config, with some fields changed by options."""
    _known(options, config, "option")
    return dataclasses.replace(config, **options)


def _known(given: dict, kind, what: str, prefix: str = "") -> dict[str, dataclasses.Field]:
    """The fields of a dataclass by name, which what is given has to be among."""
    fields = {item.name: item for item in dataclasses.fields(kind)}
    for name in given:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it can be one of {', '.join(fields)}."
            raise UserError(f"The {what} {prefix + name!r} is unknown: {hint}")
    return fields


def _convert(value, annotation: str, name: str):
    """A TOML value as the field of a dataclass takes it."""
    kind, words = KINDS[annotation.partition("[")[0].partition(" ")[0]]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise UserError(f"{name!r} is {value!r}, and must be {words}.")
    if annotation in ("Label", "Split"):
        return _build({"Label": Label, "Split": Split}[annotation], value, f"{name}.")
    if kind is list:  # A label written as a number or a truth value in TOML is compared as it stands in a text file.
        return tuple(str(item).lower() if isinstance(item, bool) else str(item) for item in value)
    if kind is dict:
        return {column: _convert(count, "int", f"{name}.{column}") for column, count in value.items()}
    return value


KINDS = {
    "int": (int, "a whole number"),
    "float": (int | float, "a number"),
    "bool": (bool, "true or false"),
    "str": (str, "a text"),
    "tuple": (list, "a list"),
    **dict.fromkeys(("dict", "Label", "Split"), (dict, "a table")),
}
"""By how a field's annotation begins: what TOML has to give, and its name."""
