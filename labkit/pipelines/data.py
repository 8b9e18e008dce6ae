"""Data of the pipelines: each generator writes CSV files in chunks, so that any scale fits into memory.

The same scale and seed make the same files. They are made once, in a process of its own that no budget counts, and
stay in the cache of prepared data.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from labkit import UserError, hardware, tracking
from labkit.data import store

VERSION = 1
"""Version of the generators: another one makes other files"""
DEPARTMENTS, TYPES = 12, 5
EPOCH_S = 1_767_225_600
"""The moment at which all data begins: 1 January 2026, in seconds of Unix time"""
Table = dict[str, np.ndarray]
Chunk = dict[str, Table]
"""Tables by file name"""


def trips(random: np.random.Generator, first: int, count: int) -> Chunk:
    """Shopping trips of 1 to 12 lines each, day after day; a trip's type decides what is bought, and when."""
    mixes = np.random.default_rng(7).dirichlet(np.full(DEPARTMENTS, 0.5), TYPES)
    kind = random.integers(0, TYPES, count)
    hour = np.clip(random.normal(8 + 2.5 * kind, 2.0), 0, 23.99)
    when = EPOCH_S + (first + np.arange(count)) // 400 * 86_400 + (hour * 3600).astype(np.int64)
    lines = 1 + random.poisson(5.4, count)
    of = np.repeat(np.arange(count), lines)
    drawn = random.random(len(of))
    department = (mixes.cumsum(1)[kind[of]] < drawn[:, None]).sum(1).clip(max=DEPARTMENTS - 1)
    quantity = 1 + random.poisson(0.7, len(of))
    quantity[random.random(len(of)) < 0.04] *= -1  # returned
    quantity[random.random(len(of)) < 0.01] = 0  # a line that should not be there
    price = (random.lognormal(1.0 + department / 8, 0.6) * 100).round() / 100
    lines_table = {"trip": first + of, "department": department, "quantity": quantity, "price": price}
    return {"lines.csv": lines_table, "trips.csv": {"trip": first + np.arange(count), "time_s": when, "type": kind}}


WORDS = np.array(
    [f"{a}{b}{c}" for a in ("ba", "ko", "ri", "su", "te", "mi") for b in ("lan", "rot", "ven", "dus", "gim")
     for c in ("", "a", "er", "ing", "ok", "ul", "ne", "st", "y", "om")]
)  # fmt: skip


def mails(random: np.random.Generator, first: int, count: int) -> Chunk:
    """Mails with markup, in words of Zipf frequencies; in spam some of the rare words are more frequent."""
    weights = 1 / np.arange(1, len(WORDS) + 1)
    shifted = weights * np.where(np.arange(len(WORDS)) % 9 == 4, 1.9, 1.0)
    is_spam = random.random(count) < 0.4
    lengths = 20 + random.poisson(60, count)
    ends = lengths.cumsum()
    of = np.repeat(is_spam, lengths)
    drawn = random.random(len(of))
    ordinary, spam = (np.searchsorted(each.cumsum() / each.sum(), drawn) for each in (weights, shifted))
    words = WORDS[np.where(of, spam, ordinary).clip(max=len(WORDS) - 1)].astype(object)
    words[random.random(len(of)) < 0.05] = "<b>now</b>"
    texts = [" ".join(words[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
    texts = [f"<html><p>{text}</p></html>" for text in texts]
    return {"mails.csv": {"mail": first + np.arange(count), "is_spam": is_spam.astype(int), "text": np.array(texts)}}


def purchases(random: np.random.Generator, first: int, count: int) -> Chunk:
    """Purchases of customers of four kinds, who differ in how often they buy, how much, and what they return."""
    customers = count // 20 or 1
    customer = first // 20 + random.integers(0, customers, count)
    kind = customer * 2_654_435_761 % 4
    amount = random.lognormal(2.0 + 0.7 * kind, 0.5).round(2)
    day = (random.beta(1 + kind, 2.0) * 365).astype(np.int64)
    is_returned = (random.random(count) < 0.02 + 0.08 * (kind == 1)).astype(np.int64)
    return {"purchases.csv": {"customer": customer, "day": day, "amount": amount, "is_returned": is_returned}}


DAYS = 60
"""Days of each disk"""


def disks(random: np.random.Generator, first: int, count: int) -> Chunk:
    """Daily readings of disks, each `DAYS` long; the counters of one that fails climb in the two weeks before."""
    fails = random.random(count) < 0.1
    day = np.tile(np.arange(DAYS), count)
    of = np.repeat(np.arange(count), DAYS)
    last = np.where(fails, random.integers(25, DAYS, count), DAYS + 99)
    left = last[of] - day
    climb = np.where(left < 14, 14 - left, 0) * random.gamma(2.0, 0.5, count)[of]
    temperature = (random.normal(34, 3, count)[of] + random.normal(0, 1.5, len(of)) + 0.3 * climb).round(1)
    sectors = random.poisson(0.1 + 0.8 * climb)
    seconds = random.normal(8, 1.5, len(of)).clip(1).round(3)
    keep = left >= 0
    table = {"disk": first + of, "day": day, "temperature": temperature, "sectors": sectors, "seek_ms": seconds}
    table["fails_within_7_days"] = (left < 7).astype(int)
    return {"disks.csv": {name: column[keep] for name, column in table.items()}}


GENERATORS: dict[str, tuple[Callable[[np.random.Generator, int, int], Chunk], int, int]] = {
    "trips": (trips, 20_000, 2_500_000),
    "spam": (mails, 20_000, 13_500_000),
    "segments": (purchases, 700_000, 13_000_000),
    "failures": (disks, 2_000, 2_800_000),
}
"""Of each pipeline: its generator, items at scale 1, and bytes at scale 1, rounded up"""
CHUNK = 20_000
"""Items that are made at once"""


def ensure(name: str, scale: float, seed: int = 0) -> Path:
    """The folder with a pipeline's data, made if it is not there yet.

    Raises:
        UserError: the disk has no room for it.
    """
    folder = store.prepared_root() / "pipelines" / f"{name}-{scale:g}-{seed}-v{VERSION}"
    if folder.is_dir():
        return folder
    needs, room = scale * GENERATORS[name][2], 0.9 * store.free_disk_bytes(folder)
    if needs > room:
        raise UserError(
            f"scale (--scale) is {scale:g}: the data of {name!r} would take {needs / 1e9:,.1f} GB, and {folder.parent} "
            f"has {room / 0.9e9:,.1f} GB free: give at most --scale {room / GENERATORS[name][2]:.3g}, or set "
            "LABKIT_CACHE to a folder on a larger disk.",
            field="scale",
        )
    tracking.tell_preparing(0.0, f"making the data of {name} at scale {scale:g}")
    made = subprocess.Popen([sys.executable, "-m", "labkit.pipelines.data", name, str(scale), str(seed), str(folder)])
    hardware.leave_out(made.pid)  # what it holds is not the pipeline's
    try:
        status = made.wait()
    except BaseException:
        made.kill()
        made.wait()
        raise
    if status:
        raise UserError(f"the data of {name!r} could not be made in {folder.parent}: its error is printed above.")
    tracking.tell_preparing(1.0, "")
    return folder


def generate(name: str, scale: float, seed: int, folder: Path) -> None:
    """Write a pipeline's files; the folder appears once they are complete."""
    make, at_scale_1, _ = GENERATORS[name]
    items = max(10, round(at_scale_1 * scale))

    def build(new: Path) -> None:
        writers: dict[str, pa.csv.CSVWriter] = {}
        with contextlib.ExitStack() as files:
            for number, first in enumerate(range(0, items, CHUNK)):
                chunk = make(np.random.default_rng([seed, number]), first, min(CHUNK, items - first))
                for file, table in chunk.items():
                    batch = pa.table(table)
                    if file not in writers:
                        writers[file] = files.enter_context(pa.csv.CSVWriter(new / file, batch.schema))
                    writers[file].write_table(batch)

    store.prepare_once(folder, build)


if __name__ == "__main__":
    os.nice(5)
    try:
        generate(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    except UserError as error:
        sys.exit(str(error))
