"""What no command can do is refused in one line with what to do, status 2, and before anything starts."""

import os
from pathlib import Path

import pytest
import torch
from made_card import made_card
from made_recogniser import write_speech_run

ONE_OF = "name one of: a file, --jobs, --resume MIX, --show MIX, or --list"
SECONDS = "give a number of seconds above 0"
# what is typed, and words of the answer
REFUSED = {
    "collocate": ONE_OF,
    "collocate plan.yaml --jobs dlrm": ONE_OF,
    "collocate --show a --list": ONE_OF,
    "pack": "name one of: a queue's file, --resume QUEUE, or --show QUEUE",
    "pack queue.yaml --devices 2": "--devices is for --simulate",
    "pack --show x --runs-dir .": "queue 'x': . holds no queue: name another folder",
    "pack nowhere.yaml": "nowhere.yaml",
    "pack queue.yaml --device cpu --memory 512MiB": "a needs 1 GiB of memory",
    "pack queue.yaml --simulate --memory much": "--memory 'much' is not a size",
    "pack queue.yaml --simulate": "has no duration",
    "predict dlrm --card none.json": "labkit calibrate --out none.json",
    "predict dlrm --batch-size 0": "batch-size",
    "predict dlrm --data synthetic-small --target auc=0.7": "no run here has measured auc with these settings",
    "calibrate --seconds 1": "--seconds is 1: give 5",
    "calibrate --out nowhere/card.json": "there is no folder nowhere",
    "whatif run train.py --change faster": "put it before",
    "whatif run --change faster train.py": "not NAME=VALUE",
    "whatif run --change bandwidth=much train.py": "takes a number",
    "whatif run --change tier=a,card=b train.py": "two machines",
    "whatif run --change bandwith=2 train.py": "did you mean bandwidth",
    "data make clicks --rows 0 --out made.tsv": "--rows is 0",
    "data prepare adult": "UCI Adult",
    "data prepare criteo": "train.txt",
    "data prepare fsdd": "does not ship with labkit",
    "data prepare tables": "here: adult.csv",
    "data prepare nothing-of-the-kind": "is not a file, a folder",
    "data recorded fetch pmdlt-a100": "has no files to download: see its source, https",
    "energy trial --trials 0 train.py": "--trials is 0: give a number above zero",
    "energy trial --seconds 0 train.py": "--seconds is 0: give a number above zero",
    "energy trial --seconds nan train.py": "--seconds is nan: give a number above zero",
    "energy trial --cool-down -1 train.py": "--cool-down is -1: give a number above zero",
    "energy trial --power-limits 100,x train.py": "--power-limits is '100,x': give watts with commas between",
    "energy trial --power-limits '' train.py": "--power-limits is '': give watts with commas between",
    "energy trial --power-limits -5 train.py": "--power-limits is -5: give a number above zero",
    "monitor --hz 500": "--hz is 500",
    "monitor 9999999": "there is no process 9999999",
    "monitor nothing-like-it": "there is no run 'nothing-like-it'",
    **{f"monitor --seconds {seconds}": SECONDS for seconds in ("nan", "0", "-1", "inf")},
    f"monitor --replay {os.devnull}": "this recording is empty",
    f"monitor --replay {os.devnull} --record x": "cannot be combined",
    "plan dlrm --tables 26xmany": "no number of rows",
    "plan dlrm --tables 0": "no number of rows",
    "plan dlrm --tables 10 --memory much": "--memory is 'much'",
    "plan dlrm --preset tour": "has no published tables: choose one of kaggle",
    "plan dlrm --tables 10 --embedding-dim -1": "(--embedding-dim) is -1",
    "plan dlrm --tables 10 --zipf -1": "(--zipf) is -1.0: give 0",
    "plan dlrm --tables 10 --table-dir nowhere": "there is no folder nowhere",
    "profile dlrm --steps 0": "steps (--steps) is 0",
    "profile dlrm --skip 1": "skip (--skip) is 1",
    "profile dlrm --preset nope": "nope",
    "report --only batch_size=32": "--recorded",
    "report --recorded mlperf-rcp": "figure_batch_size",
    "report --recorded zeus-nsdi23": "too many for a page",
    "report --recorded zeus-nsdi23 --only x": "write NAME=VALUES",
    "run": "name the script to run",
    "run no-such.py": "no-such.py does not exist",
    "run queue.yaml": "queue.yaml is not a Python script: give a .py file",
    "run -m no.such.module": "there is no module 'no.such.module' here",
    "run --seeds 0 train.py": "--seeds is 0",
    "run --seeds 2 --resume run": "omit --seeds",
    "run --resume run train.py": "omit train.py",
    "run --budget everything train.py": "everything",
    "run --budget cores=4096 train.py": "4096 cores",
    "run --sample-hz 0 train.py": "a number of samples per second from 0.1 to 100",
    "transcribe a.wav": "labkit train speech",
    "transcribe a.wav --stream --beam 4": "choose one",
    "transcribe a.wav --beam 0": "above zero",
    "transcribe a.wav b.wav --align a.html": "name one audio file",
    "transcribe a.wav --run nothing": "there is no run",
    "transcribe a.wav --lm nothing.txt --runs-dir heard": "--lm nothing.txt",
    "transcribe a.wav - - --runs-dir heard": "give it once",
    "transcribe a.wav - --split test --runs-dir heard": "which has no splits",
}
QUEUE = "jobs:\n  - {script: train.py, name: a, memory: 1GiB, utilisation: 0.3}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A script that would leave a run, a queue of it, a card, and a recogniser."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / "train.py").write_text("import labkit\nlabkit.Run('started')")
    (folder / "queue.yaml").write_text(QUEUE)
    (folder / "tables").mkdir()
    (folder / "tables" / "adult.csv").write_text("a,b\n")
    made_card(software={"torch": torch.__version__, "labkit": "0"}).save(folder / "card.json")
    write_speech_run(folder / "heard")
    return folder


@pytest.mark.parametrize("typed", REFUSED)
def test_it_is_refused_before_anything_starts(folder, monkeypatch, cli, typed):
    monkeypatch.chdir(folder)
    said = cli(typed, status=2).err
    assert REFUSED[typed] in " ".join(said.split()) and len(said.splitlines()) <= 2
    assert not Path("runs").exists()
