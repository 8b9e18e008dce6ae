"""Every command of the README and docs/ runs, block by block, each in its own folder, in small; and every example."""

import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from made_card import made_card
from processes import warm_server_variables

from labkit.runs import read_run, run_folders

REPOSITORY = Path(__file__).parents[1]
README = REPOSITORY / "README.md"
PAGES = [README, *sorted((REPOSITORY / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
# What makes a command smaller: that it starts, does its work and ends is tested here; where it gets to, elsewhere.
# Where a command runs in another test as it stands, that is named.
SMALLER = [
    # the shipped corpus: tests/launch/test_tour.py
    (r"(labkit train speech(?!.*--data).*)", r"\1 --data utterances.jsonl"),
    (r"(labkit train .*)", r"\1 --max-epochs 1 --max-seconds 1"),
    (r"(labkit pipeline run \w+ --scale) (\d)(.*)", r"\1 0.0\2\3"),
    (r"(labkit transcribe) datasets/speech (.*)", r"\1 utterances.jsonl \2"),  # tests/transcription
    (r"(labkit plan dlrm --tables) \d+x\d+ --memory \d+GiB(.*)", r"\1 4x10000 --memory 1GiB\2"),
    (r"(labkit energy trial) --trials 5 --seconds 60 (.*)", r"\1 --trials 1 --seconds 2 \2"),
    (r"(labkit run .*)--seeds 3(.*)", r"\1--seeds 1\2"),
    (r"(labkit collocate .*)cpu-shared,(cpu-pinned.*)", r"\1\2"),
    (r"(labkit collocate (?!.*--baseline).*)", r"\1 --baseline none"),
    # memory that is given is not measured: tests/sharing
    (r"(labkit collocate --jobs \"dlrm:tour\[data=synthetic-small)(.*)", r"\1,memory=1GiB\2"),
    (r"(labkit collocate --jobs \"train.py)( x2.*)", r"\1[memory=1GiB]\2"),
    (r"(labkit index run .*)", r"\1 --n 2e3 --requests 500 --instrument replay"),  # tests/indexes
    (r"(labkit calibrate)(.*)", r"\1 --seconds 5\2"),
    (r"(labkit profile speech)(.*)", r"\1 --data utterances.jsonl\2"),
    (r"(labkit pipeline ways --scale) 0.1(.*)", r"\1 0.01\2"),
    (r"(labkit pack) (datasets/\S*)/queue_8.yaml (--check)", r"head -5 \2/queue_8.yaml > queue.yaml; \1 queue.yaml \3"),
]
# What runs instead of a command, and why that command itself does not.
INSTEAD = [
    (r"git clone .*", "true", "tests use no network"),
    (r"make tour.*", "{make} tour && labkit tour --help", "takes five minutes; tests/tour runs a small one"),
    (r"make test.*", "{make} test", "is what runs this test"),
    (r"labkit energy trial .*--power-limits.*", "labkit energy trial --help", "needs a GPU and its rights"),
    (r"labkit data recorded fetch .*", "labkit data recorded fetch --help", "tests use no network"),
    (r"labkit sweep .*--executor slurm.*", "labkit sweep --help", "needs a cluster: tests/launch/test_slurm.py"),
    (r"labkit live.*", "labkit live --help", "serves until Ctrl-C: tests/live"),
    (r"labkit sweep runs/register.yaml", "labkit sweep runs/register.yaml --dry-run", "takes minutes: tests/course"),
    (r"labkit course capstone", "labkit course capstone --help", "needs those runs: tests/course/test_capstone.py"),
    (r"make bench.*", "{make} bench bench-peers", "takes half an hour"),
    (r"\.venv/bin/ruff .*", "python -m ruff --version", "tests/test_project.py runs it on the checkout"),
]
# What a reader has before the loop of docs/own-script.md.
BEFORE_THE_LOOP = """
import torch, torch.nn.functional as F
images, labels = torch.randn(640, 8), torch.arange(640) % 2
images[:, 0] += 6 * labels
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=16, shuffle=True)
def score(model):
    return (model(images).argmax(1) == labels).float().mean().item()
"""


def blocks(page: Path, language: str) -> list[str]:
    return [body for found, body in FENCED.findall(page.read_text(encoding="utf-8")) if found == language]


def runnable(command: str) -> str:
    """The command as the test runs it."""
    for pattern, instead, _reason in INSTEAD:
        if re.fullmatch(pattern, command):
            return instead.format(make=f"make --directory '{REPOSITORY}' --dry-run")
    assert command.startswith(("labkit ", "python ")), f"no rule says how to test {command!r}"
    for pattern, smaller in SMALLER:
        command = re.sub(f"^{pattern}$", smaller, command)
    return command


def commands(block: str) -> list[str]:
    """The commands of a block as the test runs them."""
    lines = [line for line in block.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    return [runnable(line.split(" #")[0].strip()) for line in lines]


def write_example_files(folder: Path) -> None:
    """Write the files of their own that readers name: a table and its schema, a Criteo day, a manifest, a script.

    And the checkout's datasets and two notebooks, one with answers, in whose folder a reader of these pages stands.
    """
    (folder / "datasets").symlink_to(REPOSITORY / "datasets")
    for name in ("examples", "league"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / "notebooks").mkdir()
    shutil.copy(REPOSITORY / "notebooks" / "00_start_here.ipynb", folder / "notebooks")
    shutil.copy(REPOSITORY / "notebooks" / "solutions" / "10_train_dlrm.ipynb", folder / "notebooks")
    dice = random.Random(0)
    (schema,) = blocks(README, "toml")
    assert schema.startswith("# clicks.toml\n")
    (folder / "clicks.toml").write_text(schema, encoding="utf-8")
    with (folder / "clicks.csv").open("w", encoding="utf-8") as file:
        file.write("clicked,price,age,city,device\n")
        for _ in range(3000):
            age = dice.randrange(18, 80)
            file.write(f"{int(dice.random() < age / 80)},{dice.random():.2f},{age},{dice.choice('abcd')},x\n")
    with gzip.open(folder / "day_0.gz", "wt", encoding="utf-8") as file:
        for _ in range(2000):
            fields = [dice.randrange(2), *(dice.randrange(-1, 50) for _ in range(13))]
            file.write("\t".join(map(str, [*fields, *(f"{dice.randrange(40):08x}" for _ in range(26))])) + "\n")
    loop = blocks(REPOSITORY / "docs" / "own-script.md", "python")[0]
    (folder / "train.py").write_text(BEFORE_THE_LOOP + loop, encoding="utf-8")
    noise = np.random.default_rng(0)
    with (folder / "utterances.jsonl").open("w", encoding="utf-8") as file:
        for number in range(24):
            soundfile.write(folder / f"{number}.wav", noise.normal(0, 0.1, 16000), 16000)
            split = ("train", "train", "validation", "test")[number % 4]
            line = {"audio_filepath": f"{number}.wav", "text": "one two", "split": split}
            file.write(json.dumps(line) + "\n")


def cases():
    """The commands of each block, unless the ones before it, or a larger one, have all of them."""
    numbered = [(page.name, number, block) for page in PAGES for number, block in enumerate(blocks(page, "bash"))]
    found = {f"{name}-{number}": commands(block) for name, number, block in numbered}
    seen = set()
    for name, block in found.items():
        if not seen.issuperset(block) and not any(set(block) < set(others) for others in found.values()):
            yield pytest.param(block, id=name)
            seen.update(block)


@pytest.fixture(scope="module")
def warm():
    """Variables of a reader, to whom the first `labkit train` leaves a warm server."""
    with warm_server_variables() as own:
        yield own


@pytest.mark.parametrize("block", list(cases()))
def test_commands_run(block, tmp_path, warm):
    write_example_files(tmp_path)
    script = "\n".join(block)
    scripts = Path(sys.executable).parent
    assert shutil.which("labkit", path=str(scripts)), "labkit is not installed beside this Python"
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=os.environ | warm | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_of_the_checkout(page):
    targets = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_first_screen_of_the_readme_has_the_picture_and_the_command():
    start = README.read_text(encoding="utf-8").partition("\n## ")[0]
    assert start.index("](docs/images/report.png)") < start.index("\nmake tour\n")
    assert len(start.splitlines()) <= 40


def test_pinned_torch_is_the_same_with_and_without_make():
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    pinned = re.search(r"^TORCH \?= (\S+)$", makefile, re.MULTILINE)[1]
    without_make = (REPOSITORY / "docs" / "windows.md").read_text(encoding="utf-8")
    assert re.findall(r"pip install (torch\S*)$", without_make, re.MULTILINE) == [pinned, pinned]


EXAMPLES = REPOSITORY / "examples"
SMALL_SWEEP = "script: {script}\nsettings: {{epochs: 1}}\ngrid: {{lr: [5e-3, 1e-2]}}\nseeds: [1]\n"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Run an example in a folder of its own, on one thread per process; what it printed."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(name: str, *arguments: str) -> str:
        command = [sys.executable, str(EXAMPLES / name), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_an_example_has_at_most_40_lines():
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}
    assert len(lengths) == 8 and max(lengths.values()) <= 40


def test_digits_cnn_reaches_its_target(example, tmp_path):
    example("digits_cnn.py", "--seed", "1")
    (record,) = [read_run(folder) for folder in run_folders(tmp_path / "runs")]
    assert (record.seed, record.result["ended_by"]) == (1, "target")
    assert record.config["train"]["lr"] > 0


def test_own_table_reaches_its_target(example, tmp_path):
    assert "train 6,480, validation 720, test 800" in example("own_table.py")
    (record,) = [read_run(folder) for folder in run_folders(tmp_path / "runs")]
    assert record.result["ended_by"] == "target"


def test_two_jobs_share_the_cores_and_say_what_it_cost(example):
    printed = example("two_jobs.py")
    assert "cpu-shared: 2 jobs at once" in printed and "times as long as alone" in printed


def test_predict_step_compares_the_prediction_with_a_run(example, tmp_path):
    made_card().save(tmp_path / "card.json")
    printed = example("predict_step.py", "card.json")
    assert "predicted for made up" in printed and "times the prediction" in printed


def test_learning_rates_makes_a_row_per_rate(example, tmp_path):
    sweep = tmp_path / "small.yaml"
    sweep.write_text(SMALL_SWEEP.format(script=json.dumps(str(EXAMPLES / "digits_cnn.py"))), encoding="utf-8")
    rows = example("learning_rates.py", str(sweep)).splitlines()[-2:]
    assert sorted(row.split()[0] for row in rows) == ["0.005", "0.010"]


def test_the_sweep_of_learning_rates_is_in_order(cli):
    assert "9 cells" in cli("sweep --dry-run", EXAMPLES / "learning_rates.yaml").out


def test_budgets_makes_a_row_per_budget(example):
    row = example("budgets.py", "one-core").splitlines()[-1].split()
    assert row[:4] == ["one-core", "emulated", "1", "1"]
