"""`labkit collocate` and `labkit pack`, as their users run them."""

import json
from pathlib import Path

import pytest
from kinds_of_scripts import AND_IN_A_CHILD, COUNTED, LOOP, TRAIN

from labkit.cli import main
from labkit.launch import Launches
from labkit.project import shipped_datasets
from labkit.sharing import tracked_jobs

SCRIPT = """\
import sys, time
import torch
model = torch.nn.Linear(4, 1)
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimiser.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimiser.step()
    time.sleep(float(sys.argv[2]))
"""
WITH_RUN = """\
import sys, time, labkit
with labkit.Run("line", target="error <= 0.05", seed=int(sys.argv[1])) as run:
    for step in range(1000):
        time.sleep(0.01)
        run.step(1 / (step + 1), samples=64)
        if step % 10 == 0 and run.evaluate(error=1 / (step + 1)):
            break
"""
HEADER = "Experiment,Workload,Name,Status,Run,Devices,Collocation,Listeners,File,Params\n"


@pytest.fixture
def script(tmp_path, monkeypatch) -> Path:
    """A script that trains for as many steps as it is told."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def mix_of(tmp_path) -> Launches:
    """The one that was run."""
    (folder,) = Launches.folders(tmp_path / "runs", "mix")
    return Launches.read(folder)


def test_a_mix_is_checked_run_and_judged(tmp_path, script, cli):
    script.write_text(WITH_RUN)
    jobs = f"{script}[memory=1GiB] {{seed}} x2"
    answer = cli("collocate --jobs", jobs, "--mode", "cpu-shared", "--baseline", "one", "--json").json
    assert answer["status"] == "done"
    pair = [mode for mode in answer["modes"] if mode["jobs"] == 2]
    assert [mode["mode"] for mode in pair] == ["alone", "cpu-shared"]
    assert all(mode["gain"] > 0 and mode["makespan_s"] > 0 for mode in pair)
    times = {(row["mode"], row["job"]): row for row in answer["time_to_accuracy"]}
    assert all(times["cpu-shared", job]["median_s"] > 0 for job in ("train-1", "train-2", "all jobs"))
    assert answer["advice"][0]["reason"]  # which mode, or none, is how busy the machine was
    group = Path(answer["folder"])
    assert all((group / job["log"]).is_file() for job in answer["jobs"])

    # the same, asked again of the folder
    shown = cli("collocate --show", answer["group"]).out
    assert "2 × train.py: measured" in shown and "Verdict on 2 × train.py" in shown
    assert "time to target" in shown and "slowdown of each job" in shown and "alone, own hardware" in shown
    odd = tmp_path / "runs" / "20260101-000000-mix-odd-0000"
    odd.mkdir()
    (odd / "launches.jsonl").write_text(json.dumps({"head": {"schema_version": "of elsewhere"}}) + "\n")
    said = cli("collocate --list")
    assert answer["group"] in said.out
    assert "left out: " in said.err and odd.name in said.err

    # its runs are beside all others
    rows = cli("runs list --runs-dir runs --json").json
    shared = [row for row in rows if row["budget"] == "cpu-shared, 2 × train.py"]
    assert sorted((row["seed"], row["target_reached"]) for row in shared) == [(0, True), (1, True)]
    assert (len(rows), {row["group"] for row in rows}) == (3, {group.name})
    assert f"this run is one of the jobs of {group.name}" in cli("run --resume", shared[0]["run"], status=2).err


OF_CHILDREN = """
import subprocess
subprocess.run([sys.executable, "-c", "import torch, time\\nwhile time.process_time() < 2: torch.rand(9)"])
"""
OF_A_RULE = ("an optimiser in another", "clients that keep their optimisers", "turns, one more often")
MATRIX = {kind: COUNTED[kind] for kind in COUNTED if kind not in OF_A_RULE} | {
    "children, too": (3, TRAIN + AND_IN_A_CHILD),
    "children": (0, OF_CHILDREN),
}


@pytest.fixture(scope="module")
def collocated(tmp_path_factory):
    """Kinds of script that shared the CPU for a few steps, three at a time, the last twice: launches by kind."""
    folder = tmp_path_factory.mktemp("kinds")
    jobs = []
    for number, (_, text) in enumerate(MATRIX.values()):
        (folder / f"kind{number}.py").write_text(f"{LOOP}\n{text}")
        jobs.append({"script": f"kind{number}.py", "memory": "1GiB"})
    *jobs, children = jobs
    workloads = [{"jobs": jobs[place : place + 3]} for place in range(0, len(jobs), 3)]
    workloads.append({"jobs": [children | {"copies": 2}]})
    (folder / "mix.yaml").write_text(json.dumps({"mode": "cpu-shared", "workloads": workloads}))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["collocate", "mix.yaml", "--baseline", "none"])
    found = {kind: [] for kind in MATRIX}
    for part in mix_of(folder).parts.values():
        number, _, _ = part.launch.about["job"].removeprefix("kind").partition("-")
        found[list(MATRIX)[int(number)]].append(part)
    return found, mix_of(folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MATRIX)
def test_every_kind_of_script_shares_a_device_with_each_of_its_steps_counted(collocated, kind):
    found, launches = collocated
    steps, parts = MATRIX[kind][0], found[kind]
    if steps:
        counted = [(part.status, launches.record_of(part).result["steps"]) for part in parts]
        assert counted == [("done", steps)], [part.reason for part in parts]
    if "children" in kind:
        # one that is stopped as the other ends has "failed", for it took no step that counts
        assert any("steps in other processes that the script started are not counted" in part.reason for part in parts)


def test_what_cannot_run_is_refused_before_anything_starts(tmp_path, script, cli):
    jobs = f"dlrm:tour[memory=900GiB], {script}[memory=1GiB]"
    said = cli("collocate --jobs", jobs, "--mode", "mps,cpu-pinned", status=2).err
    assert "nothing was started:" in said
    assert "mode mps shares a GPU, and the device is the CPU: use mode cpu-shared, or choose a GPU" in said
    assert "ask for 901 GiB of memory together (dlrm-tour 900 GiB, train 1 GiB)" in said
    jobs = f"{script}[memory=1GiB] 1 0 x2"
    assert "before the start" in cli("collocate --mode cpu-pinned --check --jobs", jobs).out
    assert not (tmp_path / "runs").exists()


def test_a_csv_of_radts_runs_unchanged(tmp_path, script, cli):
    plan = tmp_path / "experiment.csv"
    plan.write_text(f"{HEADER}1,1,one,FINISHED,abc,cpu,-,smi+top,train.py,3 0\n")
    assert "Status is not read, so all rows run" in cli("collocate", plan, "--baseline", "none").out
    (part,) = mix_of(tmp_path).parts.values()
    assert (part.status, part.launch.about["job"]) == ("done", "one")


def test_a_failure_is_told_with_its_reason(tmp_path, script, cli):
    script.write_text("raise ValueError('cannot open [/data/train] for [red]reading')")
    said = cli("collocate --jobs", f"{script}[memory=1GiB]", "--mode", "alone", status=1).out
    assert "train: failed" in said and "ValueError: cannot open [/data/train] for [red]reading" in said
    group = mix_of(tmp_path).folder
    assert "Traceback" in (group / "logs/alone-alone-0-train.log").read_text()
    assert "cannot open [/data/train] for [red]reading" in cli("collocate --show", group, status=1).out


PAIRED = """\
import sys, time
from pathlib import Path
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.02)
"""
QUEUE = """\
jobs:
  - {script: train.py, name: a, arguments: "a b", memory: 1GiB, utilisation: 0.3}
  - {script: train.py, name: b, arguments: "b a", memory: 1GiB, utilisation: 0.3}
"""


@pytest.fixture
def queue(tmp_path, monkeypatch) -> Path:
    """Two scripts that end only beside each other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PAIRED)
    path = tmp_path / "queue.yaml"
    path.write_text(QUEUE)
    return path


def test_a_queue_is_checked_run_and_told(queue, cli):
    queue.write_text(QUEUE.replace("0.3}", "0.3, duration: 5}"))
    said = cli("pack", queue, "--check", "--device", "cpu").out
    assert "checking each job" in said and "before the start" in said and "1 GiB" in said and not Path("runs").exists()
    answer = cli("pack", queue, "--device", "cpu", "--json").json
    (ran,), (row,) = answer["queues"], answer["policies"]
    assert (ran["status"], row["policy"], row["provenance"], row["done"]) == ("done", "best-fit", "measured", 2)
    assert row["makespan_s"] > 0 and row["energy_note"] and row["mean_slowdown"] > 0
    for job in tracked_jobs(Launches.read(ran["folder"], "queue")):
        assert (Path(ran["folder"]) / job.attempts[0].run / "run.json").is_file()


def test_a_comparison_runs_exclusive_first_and_a_failure_is_told_with_its_reason(queue, tmp_path, cli):
    (tmp_path / "train.py").write_text("raise ValueError('no such thing')")
    queue.write_text("".join(QUEUE.splitlines(keepends=True)[:2]))
    said = cli("pack", queue, "--device", "cpu", "--compare", status=1).out
    assert said.index("exclusive: 1 jobs") < said.index("best-fit: 1 jobs") and "Energy" in said
    assert said.count("a: failed: ValueError: no such thing") == 2


def test_every_row_that_cannot_run_is_refused_with_its_line_and_nothing_starts(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    path = tmp_path / "queue.yaml"
    path.write_text(
        "jobs:\n"
        "  - {job: dlrm:tour, memory: 900000GiB, utilisation: 0.5}\n"
        "  - {script: train.py}\n"
        "  - {script: train.py, memory: 1GiB, utilisation: 0.1, device: cpu}\n"
        "  - {script: train.py, name: sound, memory: 1GiB, utilisation: 0.1}\n"
    )
    said = cli("pack", path, "--device", "cpu", status=2)
    _, *lines = said.err.splitlines()
    assert [line.split(": ")[0].split(", ")[1] for line in lines] == ["line 2", "line 3", "line 4"]
    assert "make its batch smaller" in lines[0]
    assert "memory and utilisation of train.py are unknown" in lines[1]
    assert "the packer chooses devices" in lines[2]
    assert "sound" in said.out, "the table has a row for each job"
    assert not (tmp_path / "runs").exists()


def test_sixty_jobs_are_replayed_under_every_policy(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    sixty = str(shipped_datasets() / "recorded" / "queue_60.yaml")
    answer = cli("pack", sixty, "--simulate", "--compare", "--memory", "2GiB", "--json").json
    assert answer["provenance"] == "predicted"
    exclusive, *others = answer["policies"]
    assert exclusive["policy"] == "exclusive" and len(others) == 1
    assert {row["jobs"] for row in answer["policies"]} == {60}
    assert min(row["makespan_ratio"] for row in others) < 0.95, "packing is to gain something"
    assert {row["done"] + row["failed"] for row in answer["policies"]} == {60}
    said = cli("pack", sixty, "--simulate", "--policy", "exclusive").out
    assert "predicted from recorded profiles" in said
    assert "Energy is unknown: a simulation knows no power" in said
    assert not (tmp_path / "runs").exists()
