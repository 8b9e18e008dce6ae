"""What CONTRIBUTING.md says of adding things holds: one of each is added to a copy of the checkout, and works."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
TIER = """
[tiers.shed]
name = "A machine in a shed"
kind = "cpu"
cores = { value = 2, source = "floor" }
"""
COUNTER = """
[[counter]]
name = "room_celsius"
scopes = ["host"]
unit = "°C"
definition = "Temperature of the room."
not_said = "That of the processor."
ceiling = 100
resolution = 0.5
"""
SOURCE = '''"""A thermometer on the wall."""

from labkit.telemetry.counters import Reading


class Thermometer:
    def read(self):
        yield Reading("host", "host", "room_celsius", 21.3, "°C", "wall")
'''
READS_IT = """
from labkit.telemetry.sources.ladder import open_ladder
with open_ladder(None, [], 2.0, lambda kind, what: None) as ladder:
    print([reading.value for reading in ladder.read() if reading.counter == "room_celsius"])
"""
SCHEMA = """
label = { column = "bought", positive = ["1"], negative = ["0"] }
dense = ["price"]
categorical = ["town"]
"""

TWIN = '''

@dataclass(frozen=True)
class TwinJob(DlrmJob):
    """Trains a twin."""

    name: ClassVar[str] = "twin"
    words: ClassVar[str] = "a twin"


JOBS["twin"] = TwinJob
'''


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    copy = tmp_path_factory.mktemp("added") / "labkit"
    for part in ("labkit", "labkit_course", "datasets", "notebooks"):
        shutil.copytree(REPOSITORY / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def run(checkout, tmp_path):
    """Run Python on the copy, in an empty folder; what it printed."""

    def python(*arguments: str) -> str:
        # compiled kernels would be compiled anew for the copy
        environment = os.environ | {"PYTHONPATH": str(checkout), "LABKIT_COMPILED": "0"}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    return python


def insert(path: Path, before: str, text: str) -> None:
    whole = path.read_text(encoding="utf-8")
    assert whole.count(before) == 1, f"{path}: {before!r}"
    path.write_text(whole.replace(before, text + before), encoding="utf-8")


def test_a_tier_is_an_entry_of_the_catalogue(checkout, run):
    with (checkout / "labkit/hardware/tiers.toml").open("a") as catalogue:
        catalogue.write(TIER)
    assert "shed" in run("-m", "labkit", "tiers")


def test_a_source_of_counters_is_its_file_a_line_and_a_counter(checkout, run):
    sources = checkout / "labkit/telemetry/sources"
    (sources / "thermometer.py").write_text(SOURCE, encoding="utf-8")
    new = "from labkit.telemetry.sources.thermometer import Thermometer\n"
    insert(sources / "ladder.py", "from labkit.telemetry.counters", new)
    insert(sources / "ladder.py", "host.RaplCounters()]", "Thermometer(), ")
    with (checkout / "labkit/telemetry/counters.toml").open("a") as counters:
        counters.write(COUNTER)
    assert run("-c", READS_IT) == "[21.5]\n"


def test_a_dataset_of_clicks_is_a_schema(checkout, run, tmp_path):
    (checkout / "datasets/schemas/shop.toml").write_text(SCHEMA, encoding="utf-8")
    rows = [f"{number % 2},{number / 7:.2f},{'abc'[number % 3]}" for number in range(2000)]
    (tmp_path / "shop.csv").write_text("\n".join(["bought,price,town", *rows, ""]), encoding="utf-8")
    assert json.loads(run("-m", "labkit", "train", "dlrm", "--data", "shop.csv", "--max-epochs", "1", "--json"))


def test_a_family_of_models_is_its_script_and_its_presets(checkout, run):
    jobs = checkout / "labkit/jobs"
    script = (jobs / "dlrm.py").read_text(encoding="utf-8").replace('"dlrm"', '"twin"')
    (jobs / "twin.py").write_text(script.replace("DlrmJob", "TwinJob"), encoding="utf-8")
    insert(jobs / "settings.py", "\n\ndef memory_for_tables", TWIN)
    assert "a twin" in run("-m", "labkit", "train", "--help")
    asked = ("--data", "synthetic-small", "--target", "auc >= 0.6", "--json")
    assert json.loads(run("-m", "labkit", "train", "twin", *asked))["result"]["target_reached"]


def test_a_lab_is_its_source(checkout, run):
    labs = checkout / "labkit_course/labs"
    text = (labs / "41_a_queue_and_its_faults.py").read_text(encoding="utf-8").replace("41.", "43.")
    (labs / "43_packing_again.py").write_text(text.replace("41_a_queue_and_its_faults", "43_packing_again"), "utf-8")
    run("-m", "labkit", "course", "build", "--notebooks", str(checkout / "notebooks"))
    assert (checkout / "notebooks/43_packing_again.ipynb").is_file()
    assert "43_packing_again" in run("-m", "labkit", "doctor", "--json")
