"""Tables and files in Criteo's layout, and preparing them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from labkit.data.clicks import load_clicks
from labkit.data.clicks.generate import GeneratorConfig, write_clicks

SCHEMA = """
dense = ["price", "age"]
categorical = ["city"]
min_count = 1
missing = ["?"]
label = { column = "clicked", positive = ["yes"], negative = ["no"] }
"""


@pytest.fixture
def prepare(tmp_path):
    """Prepare a frame, lines of text, bytes, or with None what is there, with `prepare.schema` and more lines of it."""

    def run(content, more: str = "", schema: str = SCHEMA, name: str = "a.csv", **options):
        path = tmp_path / name
        if isinstance(content, pd.DataFrame):
            content.to_csv(path, index=False)
        elif isinstance(content, list):
            path.write_bytes("".join(f"{line}\n" for line in content).encode("utf-8", "surrogateescape"))
        elif content is not None:
            path.write_bytes(content)
        (tmp_path / "schema.toml").write_text(schema + more)
        return load_clicks(str(path), schema=tmp_path / "schema.toml", cache_dir=tmp_path / "cache", **options)

    run.schema = SCHEMA
    return run


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> Path:
    """3,000 generated rows in Criteo's layout."""
    out = tmp_path_factory.mktemp("criteo") / "train.txt"
    write_clicks(out, 3000, GeneratorConfig(), "criteo", lambda *_: None)
    return out


@pytest.fixture
def frame():
    """`frame(rows)`: a good table as a frame."""

    def make(rows: int = 200) -> pd.DataFrame:
        rng = np.random.default_rng(0)
        return pd.DataFrame(
            {
                "clicked": rng.choice(["yes", "no"], rows),
                "unused": [f'with "quotes", {row}' for row in range(rows)],
                "price": rng.integers(0, 1000, rows).astype(str),
                "age": rng.random(rows).round(3).astype(str),
                "city": rng.choice(["Rome", "Oslo", "Lima"], rows),
            }
        )

    return make
