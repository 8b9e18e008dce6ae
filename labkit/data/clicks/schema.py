"""The schema of a table: a small TOML file that says what the columns mean. Criteo's layout is built in."""

import dataclasses
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit import UserError, errors, json_data

SCHEMA_EXAMPLE = """\
label = { column = "clicked", positive = ["1"] }
dense = ["price", "age"]
categorical = ["city", "device"]"""
DAY_FILE = re.compile(r"day_(\d+)(\.gz)?$")
"""Name of a day's file in Criteo's Terabyte data; the Kaggle data is one file"""


@dataclass(frozen=True)
class Label:
    """The column to learn."""

    column: str
    positive: tuple[str, ...] = ()
    """Values that count as 1"""
    negative: tuple[str, ...] = ()
    """Values that count as 0; if empty, all other values except missing ones"""
    at_least: float | None = None
    """For a column of numbers, instead of values: the least one that counts as 1; lower ones count as 0"""

    def __post_init__(self):
        if self.at_least is not None and (self.positive or self.negative):
            raise UserError("label.at_least stands for label.positive and label.negative: remove these, or at_least.")
        if self.at_least is None and not self.positive:
            raise UserError(
                f"label.positive is empty: list the values of {self.column!r} that count as 1, or of a number give the "
                "least one as label.at_least."
            )
        if both := sorted({*self.positive} & {*self.negative}):
            raise UserError(f"label.positive and label.negative both have {_listed(both)}: list each value in one.")


@dataclass(frozen=True)
class Split:
    """Which rows are for validation and test. The first setting that is given decides the test rows."""

    column: str | None = None
    """Column that names the split of each row, with the values below"""
    validation_values: tuple[str, ...] = ()
    test_values: tuple[str, ...] = ()
    last_rows: int | None = None
    """Number of rows at the end that are for test"""
    by_time: bool = False
    """Whether the last rows are for test and those before them for validation"""
    test: float | None = None
    """Share of the rows for test; None: 0.1 drawn at random by the seed, or by time half of the last day"""
    validation: float | None = None
    """Share for validation; None: 0.1 of the rest, drawn at random by the seed, or by time half of the last day"""

    def __post_init__(self):
        validation, test = self.validation or 0.0, self.test or 0.0
        if not (0 <= validation < 1 and 0 <= test < 1 and validation + test < 1):
            raise UserError(
                f"validation is {validation} and test is {test}: give shares between 0 and 1 whose sum is below 1, so "
                "that rows to train on are left."
            )
        if self.column is not None and not self.test_values:
            raise UserError(f"split.column is {self.column!r}: list the values that mean test in split.test_values.")


@dataclass(frozen=True)
class TableSchema:
    """The meaning of the columns of CSV, TSV or Parquet files."""

    label: Label
    dense: tuple[str, ...] = ()
    """Numeric columns"""
    categorical: tuple[str, ...] = ()
    """Columns whose values are names, even if they look like numbers"""
    log: tuple[str, ...] = ()
    """Dense columns with long tails, whose signed logarithm is used"""
    bucketise: dict[str, int] = field(default_factory=dict)
    """Dense columns that also become a categorical feature, with the number of buckets (of equal numbers of rows)"""
    missing: tuple[str, ...] = ()
    """Values that mean missing, in addition to an empty field"""
    separator: str | None = None
    """Separator of the fields of a text file; spaces around it are ignored. None: a tab in .tsv, else a comma"""
    quotes: bool | None = None
    """Whether a text in double quotes may hold separators and line breaks. None: yes, but one over lines that look like
    rows is refused"""
    names: tuple[str, ...] = ()
    """Names of the columns if the text file has no header line"""
    split: Split = field(default_factory=Split)
    vocabulary: str = "frequency"
    """"frequency": each frequent value gets its own row; "hash": each value gets the row that its hash selects"""
    min_count: int = 2
    """With "frequency": least number of training rows with a value; a rarer one shares row 0"""
    max_rows_per_table: int = 200_000
    """Most rows of an embedding table, including row 0"""
    layout: str = "table"
    """"table", or "criteo": Criteo's columns, integers and hexadecimal numbers without quotes"""

    def __post_init__(self):
        choices = (("layout", ("table", "criteo")), ("vocabulary", ("frequency", "hash")))
        for name, (one, other) in choices:
            if (value := getattr(self, name)) not in (one, other):
                raise UserError(f'{name} is {value!r}: choose "{one}" or "{other}".')
        for name, least in (("min_count", 1), ("max_rows_per_table", 2)):
            if (value := getattr(self, name)) < least:
                raise UserError(f"{name} is {value}: give {least} or more.")
        if not self.dense and not self.categorical:
            raise UserError("The schema names no column to learn from: list some under `dense` or `categorical`.")
        if self.separator is not None and not re.fullmatch(r" *([\x01\t !#-~]|[!#-/:-@[-`{-~]{2,4}) *", self.separator):
            raise UserError(
                f"`separator` is {self.separator!r}: give a tab, a space, \\u0001 or another ASCII character except a "
                "quote, or several punctuation marks such as :: (spaces around it are ignored). Convert other files."
            )
        if self.quotes and not self.quoted:
            raise UserError(
                'quotes is true, but layout = "criteo" and a separator of several characters have none: remove it.'
            )
        columns = [self.label.column, *self.dense, *self.categorical]
        if repeated := sorted({column for column in columns if columns.count(column) > 1}):
            raise UserError(f"The schema uses {_listed(repeated)} more than once: list each column in one place.")
        for role in ("log", "bucketise"):
            if strangers := [column for column in getattr(self, role) if column not in self.dense]:
                raise UserError(f"`{role}` names {_listed(strangers)}, which `dense` does not: add it there.")
        if few := [column for column, buckets in self.bucketise.items() if buckets < 2]:
            raise UserError(f"`bucketise` gives {_listed(few)} fewer than 2 buckets: give 2 or more.")

    @property
    def quoted(self) -> bool:
        """Whether quotes are read in text files."""
        wide = len((self.separator or "").strip(" ")) > 1
        return self.quotes is not False and self.layout == "table" and not wide

    @property
    def columns(self) -> list[str]:
        """All columns that the schema needs, without repeats, the label first."""
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
"""What `layout = "criteo"` means"""


def read_schema(path: Path) -> TableSchema:
    """Read a schema.

    Raises:
        UserError: there is no such file, it is not TOML, a key is unknown or missing, or a value has the wrong type.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"There is no schema file {path}: check the path given to --schema.") from None
    except (ValueError, RecursionError) as error:  # bad TOML, not UTF-8, numbers of thousands of digits
        raise UserError(f"{path} is not a TOML file: {error}. A schema looks like\n{SCHEMA_EXAMPLE}") from error
    try:
        return schema_of(content)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def schema_of(content: dict) -> TableSchema:
    """The schema that the content of a file describes."""
    content = (CRITEO if content.get("layout") == "criteo" else {}) | _with_texts(content)
    try:
        json_data.check_shape(content, TableSchema, exact=True)
    except ValueError as error:
        raise UserError(f"{error}. A schema looks like\n{SCHEMA_EXAMPLE}") from None
    return json_data.build(content, TableSchema)


def _with_texts(value: Any) -> Any:
    """TOML content whose lists hold text: a label written as a number or truth value is compared with a text file's."""
    if isinstance(value, dict):
        return {name: _with_texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [str(each).lower() if isinstance(each, bool) else str(each) for each in value]
    return value


def override(config, options: dict):
    """A `TableSchema`, or a generator's config, with some fields replaced by options."""
    for name in options:
        if name not in (known := [each.name for each in dataclasses.fields(config)]):
            raise UserError(f"The option {name!r} is unknown: {errors.did_you_mean(name, known)}")
    return dataclasses.replace(config, **options)
