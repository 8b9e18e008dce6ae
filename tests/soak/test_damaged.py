"""Damaged inputs of every kind: each is read as it is, or refused in words, and never takes others with it."""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
import torch
from campaign import labkit

from labkit.collocation.launching.group_record import new_group
from labkit.collocation.packing.policy import PackingDevice
from labkit.collocation.packing.queue import Attempt, TrackedJob
from labkit.collocation.packing.queue import read_queue as read_queue_file
from labkit.collocation.packing.queue_run import QueueRecord, read_queue_record
from labkit.collocation.plan.csv_plan import read_csv_plan
from labkit.collocation.plan.yaml_plan import read_yaml_plan
from labkit.data.clicks import load_clicks
from labkit.data.speech import load_speech
from labkit.errors import UserError, refusal
from labkit.hardware.calibration import Calibration
from labkit.profiling.profile import FACTS, KINETO, save_card
from labkit.runs import Provenance, RunWriter
from labkit.tracking.checkpoint import load_checkpoint, save_checkpoints

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
WORDS = ["stop all jobs", "one two", "save it now", "run the batch", "four five six", "what a day", "go on", "we wait"]


def table_text(separator: str) -> bytes:
    rows = [list(COLUMNS), *zip(*COLUMNS.values(), strict=True)]
    return "".join(separator.join(row) + "\n" for row in rows).encode()


def wave(seed: int, rate_hz: int = 16_000) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(rate_hz) * 0.1


def write_csv(folder: Path) -> None:
    (folder / "clicks.csv").write_bytes(table_text(","))
    (folder / "clicks.toml").write_text(SCHEMA)


def write_prepared(folder: Path) -> None:
    write_csv(folder)
    read_prepared(folder)


def write_packed_tsv(folder: Path) -> None:
    (folder / "clicks.tsv.gz").write_bytes(gzip.compress(table_text("\t")))
    (folder / "clicks.toml").write_text(SCHEMA)


def write_parquet(folder: Path) -> None:
    table = pa.table(COLUMNS | {"price": [float(price) for price in COLUMNS["price"]]})
    pq.write_table(table, folder / "clicks.parquet", write_page_checksum=True)
    (folder / "clicks.toml").write_text(SCHEMA)


def write_criteo(folder: Path) -> None:
    lines = []
    for row in range(80):
        numbers, categories = (row * k % 13 - 1 for k in range(13)), (f"{row * k % 31:x}" for k in range(26))
        lines.append("\t".join(map(str, [row % 2, *numbers, *categories])))
    (folder / "day_0").write_text("\n".join(lines[:40]) + "\n")
    (folder / "day_1.gz").write_bytes(gzip.compress(("\n".join(lines[40:]) + "\n").encode()))


def write_manifest(folder: Path) -> None:
    lines = []
    for index, text in enumerate(WORDS):
        soundfile.write(folder / f"{index}.wav", wave(index), 16_000)
        split = ("train", "train", "dev", "test")[index % 4]
        row = {"audio_filepath": f"{index}.wav", "text": text, "offset": 0.1, "duration": 0.85, "sample_rate": 16_000}
        lines.append(json.dumps(row | {"speaker": f"s{index}", "split": split}) + "\n")
    (folder / "manifest.jsonl").write_text("".join(lines))


def write_common_voice(folder: Path) -> None:
    (folder / "clips").mkdir()
    lines = ["client_id\tpath\tsentence\tage\n"]
    for index, text in enumerate(WORDS):
        soundfile.write(folder / "clips" / f"{index}.mp3", wave(index, 32_000), 32_000, format="MP3")
        lines.append(f"c{index}\t{index}.mp3\t{text.title()}.\ttwenties\n")
    (folder / "validated.tsv").write_text("".join(lines))


def write_librispeech(folder: Path) -> None:
    for speaker, subset in enumerate(("train-a", "train-a", "dev-a", "test-a")):
        chapter = folder / subset / str(speaker) / "7"
        chapter.mkdir(parents=True)
        names = [f"{speaker}-7-{index:04d}" for index in range(2)]
        for index, name in enumerate(names):
            soundfile.write(chapter / f"{name}.flac", wave(2 * speaker + index), 16_000)
        texts = [f"{name} {WORDS[2 * speaker + index].upper()}\n" for index, name in enumerate(names)]
        (chapter / f"{speaker}-7.trans.txt").write_text("".join(texts))


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
                found = load(str(data), **options)
            except UserError:
                load(str(data), on_bad_row="skip", **options)
                raise
        except OSError as error:
            raise refusal(error) or error from None  # as the command line does
        files = sorted(path for path in found.folder.iterdir() if path.suffix != ".json")
        numbers = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files))
        return str(found), numbers.hexdigest(), found.info.get("rows")


def read_csv(folder: Path) -> tuple:
    """As many rows are prepared as Python's own reader of CSV finds."""
    answer = read_table("clicks.csv", folder)
    with (folder / "clicks.csv").open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = list(csv.DictReader(file))
    assert answer[2] == len(rows), (answer, len(rows))
    return answer


def read_table(name: str, folder: Path, **options) -> tuple:
    return prepared(load_clicks, folder / name, schema=folder / "clicks.toml", **options)


def read_prepared(folder: Path) -> tuple:
    return read_table("clicks.csv", folder, cache_dir=folder / "cache")


def read_checkpoint(folder: Path) -> str:
    content = load_checkpoint(folder / "latest.pt")
    torch.set_printoptions(precision=10, threshold=10_000)
    return repr(content)


CSV = """Experiment,Workload,Name,Status,Run,Devices,Collocation,Listeners,File,Params
1,1,first,,,cpu,-,smi+top,train.py,"--lr 0.1 --note 'a, b'"
1,1,,,,cpu,-,,dlrm:tour[batch_size=256],
1,2,,DONE FINISHED,20261121-run,cpu,cpu-shared,,speech,
"""
YAML = """name: pair
mode: [alone, cpu-shared]
repeats: 2
timeout: 60
workloads:
  - name: two
    jobs:
      - job: dlrm:tour
        copies: 2
        cores: 1
        batch_size: 256
      - script: train.py
        arguments: --lr 0.1 --seed {seed}
        memory: 1.5GiB
"""
QUEUE = """jobs:
  - job: dlrm:tour
    copies: 3
    memory: 1.5GiB
    utilisation: 0.3
    duration: 120
  - script: train.py
    arrives: 30
    memory: 2GiB
    utilisation: 0.5
"""


def write_plans(folder: Path) -> None:
    """Plans in both formats and a queue; their script, which no case damages, lies in the folder above."""
    folder.with_name("train.py").write_text("")
    for name, text in (("plan.csv", CSV), ("plan.yaml", YAML), ("queue.yaml", QUEUE)):
        (folder / name).write_text(text.replace("train.py", "../train.py"))


def write_records(folder: Path) -> None:
    """The records of a group and a queue, and guesses of the course."""
    with tempfile.TemporaryDirectory() as other:
        plans = Path(other, "plans")
        plans.mkdir()
        write_plans(plans)
        _, group = new_group(Path(other), read_yaml_plan(plans / "plan.yaml"), {"two/dlrm-tour-1": 2**30})
        jobs = [TrackedJob(queued) for queued in read_queue_file(plans / "queue.yaml")]
    group.rounds[0].jobs[0].status = "done"
    (folder / "group").mkdir()
    group.save(folder / "group")
    jobs[0].attempts.append(Attempt(1, 0, False, 0.0, 1.0, 60.0, "done"))
    queue = QueueRecord(id="q", policy="best-fit", mode="cpu-shared", devices=[PackingDevice("cpu", 2**33)], jobs=jobs)
    (folder / "queue").mkdir()
    queue.save(folder / "queue")
    guesses = [f'{{"time": "now", "name": "0{n}.x", "guess": {n}.5, "truth": 2.0, "unit": "s"}}\n' for n in range(4)]
    (folder / "guesses.jsonl").write_text("".join(guesses))


def _each(*reads) -> list:
    """What each says, or why it refuses: any of the files may be the damaged one."""
    told = []
    for read in reads:
        try:
            told.append(read())
        except UserError as error:
            told.append(str(error))
    return told


def read_plans(folder: Path) -> list:
    return _each(
        lambda: read_csv_plan(folder / "plan.csv").plan,
        lambda: read_yaml_plan(folder / "plan.yaml"),
        lambda: read_queue_file(folder / "queue.yaml"),
    )


def read_records(folder: Path) -> list:
    from labkit.course.guesses import score_course

    os.environ["LABKIT_COURSE"] = str(folder)
    with contextlib.redirect_stdout(io.StringIO()) as scores:
        score_course()
    told = _each(
        lambda: labkit("collocate", "--list", "--runs-dir", folder),
        lambda: labkit("collocate", "--show", folder / "group"),
        lambda: labkit("pack", "--show", folder / "queue"),
        lambda: read_queue_record(folder / "queue").jobs,
    )
    return [scores.getvalue(), *told]


TWO_RUNS = """
import labkit
for seed in (0, 1):
    with labkit.Run("soak", target="accuracy >= 0.8", config={"lr": 0.1, "model": {"width": 3}}, seed=seed) as run:
        for step in range(1, 4):
            run.step(1.0 / step, samples=10)
            run.evaluate(accuracy=step / 4)
        run.test(accuracy=0.7)
"""


def write_runs(folder: Path) -> None:
    """Two finished runs of a script, `first` and `second`."""
    with tempfile.TemporaryDirectory() as other:
        subprocess.run([sys.executable, "-c", TWO_RUNS], cwd=other, check=True, capture_output=True)
        for path, name in zip(sorted(Path(other, "runs").iterdir()), ("first", "second"), strict=True):
            shutil.move(path, folder / name)


def list_all(runs: Path) -> list:
    return [labkit("runs", "list", "--runs-dir", runs), labkit("energy", "--estimate", "--runs-dir", runs)]


def show_each(runs: Path) -> list:
    commands = ("runs show {}", "energy {}", "profile show {} --text")
    told = [command.format(name).split() for name in ("first", "second") for command in commands]
    return _each(*(partial(labkit, *words, "--runs-dir", runs) for words in told))


def frames(runs: Path) -> list:
    from labkit.runs import list_runs, read_telemetry
    from labkit.tta import curves, run_table, summary
    from labkit.widgets.feed import RunFeed

    folders = sorted(runs.iterdir())
    table = run_table(folders)
    for folder in table["folder"]:
        RunFeed(folder).read()
    frame = curves(folders, runs=table)
    telemetry = read_telemetry(folders)
    return [each.to_csv() for each in (list_runs(runs), table, frame, summary(frame, table), telemetry)]


def page(runs: Path) -> str:
    out = runs.parent / "page.html"
    labkit("report", runs, "--out", out)
    return hashlib.sha256(out.read_bytes()).hexdigest()  # it has megabytes of plotly


def explorer(runs: Path) -> str:
    from labkit.widgets import explore

    return explore(runs).words.value


TRACES = Path(__file__).parents[1] / "profiling" / "traces"


def write_profiled(folder: Path) -> None:
    """A profiled run of two steps, with a trace of torch's own."""
    run = RunWriter.create(
        folder, "tiny", config={"job": "tiny", "profile": {}}, tier=None, seed=0,
        budget={"name": "all-cores"}, devices=[], provenance=Provenance.now("measured"), software={},
    )  # fmt: skip
    run.finish("done", {"reason": "profiled"})
    (run.folder / "trace").mkdir()
    shutil.copy(TRACES / "torch-2.13.json.gz", run.folder / "trace" / KINETO)
    phases = [{"forward": [300.0, 280.0], "backward": [500.0, 450.0]}] * 2
    settings = {"skip": 2, "warmup": 1, "steps": 2}
    faults = {"fault_cost_us": 0.1, "unprofiled_faults": [3, 4], "phase_faults": [{"forward": 3}] * 2}
    faults["event_cost_us"] = 0.5
    facts = {"settings": settings, "device": "cpu", "phases_us": phases, "unprofiled_step_us": [900.0, 950.0], **faults}
    (run.folder / "trace" / FACTS).write_text(json.dumps(facts))
    save_card(run.folder, Calibration("A CPU", 2, 100.0, 120.0, 20.0, 1.5, "2026-11-21"))
    for path in run.folder.iterdir():
        path.rename(folder / path.name)
    run.folder.rmdir()


def write_trace(folder: Path) -> None:
    """A small trace, whose every field is likely to be hit."""
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 10, "pid": 1, "tid": 1}
    own = {"External id": 3, "Input Dims": [[2, 3], [3, 5]], "Input type": ["float"] * 2, "Concrete Inputs": [""] * 2}
    events = [
        step,
        step | {"cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5.5, "args": own},
        step | {"cat": "cuda_runtime", "name": "launch", "ts": 2, "dur": 1, "args": {"correlation": 7}},
        step | {"cat": "kernel", "name": "gemm", "ts": 3, "dur": 4, "pid": 0, "tid": 7, "args": {"correlation": 7}},
        {"ph": "i", "name": "[memory]", "ts": 4, "pid": 1, "tid": 1, "args": {"Bytes": 64, "Addr": 9, "Device Id": 0}},
        step | {"name": "ProfilerStep#2", "ts": 10},
    ]
    (folder / "trace.json").write_text(json.dumps({"traceEvents": events}, indent=1))


def read_frames(folder: Path) -> list:
    from labkit.profiling.step_time import step_time
    from labkit.profiling.traces.device_time import device_breakdown
    from labkit.profiling.traces.memory import alive_at_peak
    from labkit.profiling.traces.trace import read_trace
    from labkit.profiling.work import operators_at_work

    trace = read_trace(folder / "trace.json")
    frames = [trace.operators, trace.kernels, operators_at_work(trace), device_breakdown(trace)]
    return [frame.to_csv() for frame in [*frames, alive_at_peak(trace), step_time(trace).phases()]]


def show(run: Path) -> list:
    told = labkit("profile", "show", run, "--text")
    labkit("profile", "show", run, "--no-browser", "--out", run.with_name("page.html"))
    return [told]


CASES: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "csv": (write_csv, read_csv),
    "prepared": (write_prepared, read_prepared),
    "tsv.gz": (write_packed_tsv, partial(read_table, "clicks.tsv.gz")),
    "parquet": (write_parquet, partial(read_table, "clicks.parquet")),
    "criteo": (write_criteo, partial(prepared, load_clicks)),
    "manifest": (write_manifest, partial(prepared, load_speech)),
    "common voice": (write_common_voice, partial(prepared, load_speech)),
    "librispeech": (write_librispeech, partial(prepared, load_speech)),
    "checkpoint": (write_checkpoint, read_checkpoint),
    "plans": (write_plans, read_plans),
    "records": (write_records, read_records),
    "runs, listed": (write_runs, list_all),
    "runs, shown": (write_runs, show_each),
    "runs, frames": (write_runs, frames),
    "runs, page": (write_runs, page),
    "runs, explorer": (write_runs, explorer),
    "trace": (write_trace, read_frames),
    "profiled run": (write_profiled, show),
}
HAS_SUMS = re.compile(r"^cache/|\.(gz|parquet|flac|pt): (?!deleted|.*, inside gzip)")
"""Damage of a data file whose format has sums, so that nothing else may be read from it.

There are none for the rate and length in the header of FLAC, nor for the footer of Parquet: a bit of thousands."""


@pytest.fixture(scope="session")
def originals(tmp_path_factory) -> Callable[[Callable], Path]:
    """The undamaged folder of a writer, made once."""

    @functools.cache
    def original(write: Callable[[Path], None]) -> Path:
        folder = tmp_path_factory.mktemp(write.__name__) / "original"
        folder.mkdir()
        write(folder)
        return folder

    return original


@pytest.mark.parametrize("case", CASES)
def test_damaged_inputs_are_refused_or_read_as_they_are(reader, originals, seeds, case):
    write, read = CASES[case]
    outcomes = campaign.campaign(reader, read, originals(write), seeds)
    if case.startswith("runs"):
        assert not [each for each in outcomes if each.kind == "refused"], "one of the two runs can always be shown"
    elif write is not write_profiled:
        silent = [each for each in outcomes if each.kind == "other" and HAS_SUMS.search(each.damage)]
        assert not silent, "\n".join(f"seed {each.seed}, {each.damage}: read as something else" for each in silent)
