"""Damaged data and checkpoints: each is read as it is, or refused in words; what has sums is not read otherwise."""

import gzip
import hashlib
import json
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
import torch

from labkit.data.clicks import load_clicks
from labkit.data.clicks.generate import GeneratorConfig, write_clicks
from labkit.data.speech import load_speech
from labkit.errors import UserError, refusal
from labkit.tracking import load_checkpoint
from labkit.tracking.log import save_checkpoints

SCHEMA = """\
label = { column = "clicked", positive = ["yes", 1], negative = ["no", "0"] }
dense = ["price", "age"]
categorical = ["city", "device"]
log = ["age"]
bucketise = { price = 4 }
missing = ["?"]
min_count = 1
split = { column = "day", test_values = ["sun"], validation = 0.2 }
"""
COLUMNS = {
    "clicked": ["yes" if row % 3 else "no" for row in range(60)],
    "price": [f"{row * 7 % 11}.5" for row in range(60)],
    "age": ["?" if row % 9 == 4 else f"{row}" for row in range(60)],
    "city": [("Köln", "Århus", '"Bad, Ems"')[row % 3] for row in range(60)],
    "device": [f"d{row % 4}" for row in range(60)],
    "note": [f"n{row}" for row in range(60)],
    "day": ["sun" if row % 5 == 0 else "mon" for row in range(60)],
}
SPLITS = ("train", "train", "validation", "test")
WORDS = ["stop all jobs", "one two", "save it now", "run the batch", "four five six", "what a day", "go on", "we wait"]


def table_text(separator: str) -> bytes:
    rows = [list(COLUMNS), *zip(*COLUMNS.values(), strict=True)]
    return "".join(separator.join(row) + "\n" for row in rows).encode()


def wave(seed: int, rate_hz: int = 16_000) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(rate_hz) * 0.1


def write_tables(folder: Path) -> None:
    """The same table in three formats, of which each case reads one, and prepared from one."""
    (folder / "clicks.csv").write_bytes(table_text(","))
    (folder / "clicks.tsv.gz").write_bytes(gzip.compress(table_text("\t")))
    table = pa.table(COLUMNS | {"price": [float(price) for price in COLUMNS["price"]]})
    pq.write_table(table, folder / "clicks.parquet", write_page_checksum=True)
    (folder / "clicks.toml").write_text(SCHEMA)


def write_prepared(folder: Path) -> None:
    write_tables(folder)
    read_prepared(folder)


def write_criteo(folder: Path) -> None:
    for seed, name in enumerate(("day_0", "day_1.gz")):
        write_clicks(folder / name, 40, GeneratorConfig(seed=seed), "criteo", lambda *_: None)


def write_manifest(folder: Path) -> None:
    lines = []
    for index, text in enumerate(WORDS):
        soundfile.write(folder / f"{index}.wav", wave(index), 16_000)
        row = {"audio_filepath": f"{index}.wav", "text": text, "offset": 0.1, "duration": 0.85, "sample_rate": 16_000}
        lines.append(json.dumps(row | {"speaker": f"s{index}", "split": SPLITS[index % 4]}) + "\n")
    (folder / "manifest.jsonl").write_text("".join(lines))


def write_common_voice(folder: Path) -> None:
    (folder / "clips").mkdir()
    for index in range(len(WORDS)):
        soundfile.write(folder / "clips" / f"{index}.mp3", wave(index, 32_000), 32_000, format="MP3")
    rows = [f"c{index}\t{index}.mp3\t{text.title()}.\ttwenties\n" for index, text in enumerate(WORDS)]
    (folder / "validated.tsv").write_text("client_id\tpath\tsentence\tage\n" + "".join(rows))


def write_librispeech(folder: Path) -> None:
    for index, text in enumerate(WORDS):
        name, chapter = f"{index % 4}-7-{index:04d}", folder / f"{SPLITS[index % 4]}-a" / str(index % 4) / "7"
        chapter.mkdir(parents=True, exist_ok=True)
        soundfile.write(chapter / f"{name}.flac", wave(index), 16_000)
        with (chapter / f"{index % 4}-7.trans.txt").open("a") as file:
            file.write(f"{name} {text.upper()}\n")


def write_checkpoint(folder: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(30, 20)
    kept = {"model": model.state_dict(), "optimizer": torch.optim.AdamW(model.parameters()).state_dict()}
    save_checkpoints({folder / "latest.pt": {"kept": kept, "position": {"step": 7}, "losses": [0.5, 0.25]}})


def prepared(load: Callable[..., Any], data: Path, **options) -> tuple:
    """What `data` is prepared to, as a description and a digest; where it is refused, "skip" is tried, too."""
    with tempfile.TemporaryDirectory() as cache:
        options = {"cache_dir": Path(cache)} | options
        try:
            try:
                found = load(str(data), on_bad_row="error", **options)
            except UserError:
                load(str(data), on_bad_row="skip", **options)
                raise
        except OSError as error:
            raise refusal(error) or error from None  # as the command line does
        files = sorted(path for path in found.folder.iterdir() if path.suffix != ".json")
        numbers = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files))
        return str(found), numbers.hexdigest(), found.info.get("rows")


def read_tables(folder: Path) -> list[tuple]:
    tables = [folder / f"clicks.{ending}" for ending in ("csv", "tsv.gz", "parquet")]
    return [prepared(load_clicks, table, schema=folder / "clicks.toml") for table in tables]


def read_prepared(folder: Path) -> tuple:
    return prepared(load_clicks, folder / "clicks.csv", schema=folder / "clicks.toml", cache_dir=folder / "cache")


def read_checkpoint(folder: Path) -> str:
    content = load_checkpoint(folder / "latest.pt")
    torch.set_printoptions(precision=10, threshold=10_000)
    return repr(content)


CASES: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "tables": (write_tables, read_tables),
    "prepared": (write_prepared, read_prepared),
    "criteo": (write_criteo, partial(prepared, load_clicks)),
    "manifest": (write_manifest, partial(prepared, load_speech)),
    "common voice": (write_common_voice, partial(prepared, load_speech)),
    "librispeech": (write_librispeech, partial(prepared, load_speech)),
    "checkpoint": (write_checkpoint, read_checkpoint),
}
HAS_SUMS = re.compile(r"^cache/|\.(gz|parquet|flac|pt): (?!deleted|.*, inside gzip)")
"""Damage of a data file whose format has sums, so that nothing else may be read from it.

There are none for the rate and length in the header of FLAC, nor for the footer of Parquet: a bit of thousands."""


@pytest.mark.parametrize("case", CASES)
def test_damaged_data_is_refused_or_read_as_it_is(outcomes, case):
    silent = [each for each in outcomes(*CASES[case]) if each.kind == "other" and HAS_SUMS.search(each.damage)]
    assert not silent, "\n".join(f"seed {each.seed}, {each.damage}: read as something else" for each in silent)
