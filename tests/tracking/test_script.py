"""`labkit run`: any script in the one harness, with `Run` in it or without; and how its process is bound."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from folders import losses
from kinds_of_scripts import AND_IN_A_CHILD, COUNTED, LOOP, PLAIN, TRAIN

from labkit import telemetry
from labkit.cli import main
from labkit.hardware import Budget
from labkit.runs import list_runs, read_run, run_folders
from labkit.tracking.ending import StopRequest
from labkit.tracking.harness import ScriptCommand
from labkit.tracking.worker import WAIT_POLICY, bind_process

WITH_RUN = f"""{LOOP}
import labkit
with labkit.Run("own", target="score >= 0.9", config={{"lr": 0.1}}) as run:
    run.keep(model=model, optimizer=optimizer)
    for epoch in run.epochs(4):
        for _ in run.batches(range(5)):
            run.step(step(), samples=4)
        run.evaluate(score=epoch / 10)
"""


@pytest.fixture
def script(runs, monkeypatch, capfd):
    """Runs the text of a script by `labkit run` in an empty folder; (exit status, record, what it printed)."""
    runs.parent.mkdir(exist_ok=True)
    monkeypatch.chdir(runs.parent)

    def run(text: str, *flags: str):
        Path("train.py").write_text(text)
        status = main(["run", *flags, "train.py", "--lr", "0.1"])
        (folder,) = list_runs(runs)["folder"]
        return status, read_run(folder), capfd.readouterr()

    return run


def test_a_script_without_run_has_its_steps_counted_and_cannot_be_gone_on_with(script, cli, capfd):
    status, record, said = script(PLAIN)
    assert (status, record.status, record.name) == (0, "done", "train")
    assert (record.result["steps"], record.result["ended_by"]) == (5, "script")
    assert record.result["target_reached"] is None
    assert "hello from __main__ ['--lr', '0.1']" in said.out
    assert record.config["arguments"] == ["--lr", "0.1"]
    assert "the script keeps nothing" in cli("run --resume", record.id, status=2).err
    with pytest.raises(SystemExit):
        cli("run --resume", record.id, "--max-seconds", "2")
    assert "--max-seconds; a script's own flags stand behind `--resume RUN --`" in capfd.readouterr().err


def test_a_script_may_close_its_output_and_clear_its_environment(script):
    own = 'import os\nos.environ.clear()\nsys.stdout = open("log", "w")\nprint("a")\nsys.stdout.close()'
    with patch.dict(os.environ, dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_RANK"), "")):
        status, record, said = script(f"{PLAIN}\n{own}")
    assert (status, record.status, record.result["steps"]) == (0, "done", 5)
    assert "run folder" in said.out and Path("log").read_text() == "a\n"


def test_a_script_with_run_writes_one_folder_where_the_harness_wants_it(script, runs):
    status, record, said = script(WITH_RUN, "--json", "--runs-dir", str(runs))
    assert status == 0
    answer = json.loads(said.out.splitlines()[-1])
    assert answer["run"] == record.id and len(said.out.splitlines()) == 1
    assert (answer["status"], answer["result"]["ended_by"], answer["result"]["steps"]) == ("done", "max_epochs", 20)
    assert record.config["script"] == str(runs.parent / "train.py")
    assert record.config["train"]["lr"] == 0.1


def test_a_module_runs_as_python_m_does(runs, monkeypatch, cli):
    package = runs.parent / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("WORD = 'imported'")
    (package / "train.py").write_text(f"from package.words import WORD\n{PLAIN}\nprint(WORD, __package__)")
    monkeypatch.chdir(runs.parent)
    assert "imported package" in cli("run -m package.train").out
    (name,) = list_runs(runs)["folder"]
    assert read_run(name).name == "package.train"
    (runs.parent / "folder").mkdir()  # without an __init__.py
    (runs.parent / "folder" / "__main__.py").write_text(f"{PLAIN}\nprint('runs', __package__)")
    assert "runs folder" in cli("run -m folder").out


@pytest.mark.parametrize("kind", COUNTED)
def test_every_step_of_every_optimiser_counts_and_turns_count_once(script, kind):
    steps, text = COUNTED[kind]
    status, record, said = script(f"{LOOP}\n{text}")
    assert (status, record.result["steps"]) == (0, steps), said.err


FORK = "pid = os.fork()\nif pid == 0: step(); os._exit(0)\nos.waitpid(pid, 0)"
ELSEWHERE = {
    "a fork": (0, FORK),
    "a fork that the script joins in training": (3, f"{FORK}\n{TRAIN}"),
    "a command": (0, AND_IN_A_CHILD),
    "a command after its own steps": (3, f"{TRAIN}\n{AND_IN_A_CHILD}"),
    "another torch's time": (0, "import subprocess; subprocess.run([sys.executable, '-c', 'import torch'])"),
    "spawned": (
        3,
        f"""
import torch.multiprocessing as mp
def main(rank=0):
    {TRAIN}
if __name__ == "__main__": (main(), mp.spawn(main))""",
    ),
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_steps_in_other_processes_are_named_as_not_counted(script, kind):
    steps, text = ELSEWHERE[kind]
    _, record, said = script(f"{LOOP}\n{text}")
    assert record.result["steps"] == steps and ("no step was counted" in said.out) == (steps == 0)
    assert "steps in other processes that the script started are not counted" in record.result["reason"]
    assert "open a labkit.Run" in record.result["reason"]


def test_processes_that_load_data_or_look_at_torch_take_no_steps(script):
    text = """
from torch.utils.data import DataLoader
def main():
    for kind in ("fork", "spawn"):
        for _ in DataLoader(torch.rand(8, 2), batch_size=4, num_workers=1, multiprocessing_context=kind): step()
if __name__ == "__main__": main()"""
    _, record, _ = script(f"{LOOP}\n{text}")
    assert (record.result["steps"], record.result["reason"]) == (4, "the script ended")


@pytest.mark.parametrize(
    ("text", "status", "recorded", "words"),
    [
        (f"{PLAIN}\nraise ValueError('oops')", 1, "failed", "ValueError: oops"),
        (f"{PLAIN}\nsys.exit(3)", 3, "failed", "sys.exit(3)"),
        (f"{WITH_RUN}\nsys.exit('no report')", 2, "done", "sys.exit('no report')"),
        (WITH_RUN.replace("run.step(step()", "run.step(step() * torch.nan"), 2, "failed", "the training loss is nan"),
        ("print('nothing to train')", 0, "done", ""),
        (WITH_RUN.replace("epoch / 10", "1 / 0"), 1, "failed", "division by zero"),
        (f"{PLAIN}\nos.kill(os.getpid(), signal.SIGTERM)\nwhile True: step()", 130, "stopped", "stopped"),
        (WITH_RUN.replace("range(5)", "iter(int, 1)").replace("run.step(", "os.kill(os.getpid(), 15), run.step("),
         130, "stopped", "stopped by SIGTERM"),
    ],
    ids=["an error", "exit(3)", "an exit after its run", "a loss that is no number", "no training",
         "an error within its run", "a stop", "a stop of its run"],
)  # fmt: skip
def test_however_a_script_ends_its_record_says_so(script, text, status, recorded, words):
    got, record, said = script(text)
    assert (got, record.status) == (status, recorded)
    assert words in record.result["reason"] or recorded == "done"
    assert words in said.out + said.err
    if got == 1:  # an error is shown as Python would
        assert "labkit/" not in said.err and "train.py" in said.err and "this is a bug in labkit" not in said.err


def test_a_run_is_resumed_with_further_arguments(script, runs, cli):
    text = WITH_RUN.replace("run.epochs(4)", "run.epochs(4 + len(sys.argv))")  # two arguments and the script's name
    _, record, _ = script(text)
    cli("run --resume", record.id, "and", "more")
    after = read_run(runs / record.id)
    assert (record.result["steps"], after.result["steps"]) == (35, 45)
    assert "--budget cannot be given" in cli("run --budget one-core --resume", record.id, status=2).err


KEEPS = WITH_RUN.replace("Linear(2, 1)", "Linear(2, 50_000)")  # whose checkpoint is beyond the limit
SAVES = WITH_RUN.replace(
    "        run.evaluate", "        if epoch: torch.save(torch.rand(10**5), 'own.pt')\n        run.evaluate"
)


@pytest.fixture
def small_files():
    """This process may write no file of more than 128 KiB."""
    resource = pytest.importorskip("resource", reason="Windows has no limits of a process")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (KEEPS, "checkpoint: a file here would be larger than this process may write"),
        (SAVES, "train.py, line 19: the system refused this (File too large)"),
        (
            PLAIN + "open('own.bin', 'wb').write(bytes(10**6))",
            "train.py, line 16: the system refused this (File too large)",
        ),
    ],
    ids=["labkit's checkpoint", "the script's own file", "without a run"],
)
def test_at_the_size_limit_of_a_file_a_run_is_stopped_and_loses_nothing(script, runs, small_files, text, words):
    status, record, said = script(text)
    assert status == 2 and words in said.err and "ulimit -f" in said.err, said.err
    assert "Traceback" not in said.err
    folder = runs / record.id
    assert (record.status, record.result["ended_by"]) == ("stopped", "refused") and words in record.result["reason"]
    assert record.result["steps"] == 5 * (1 + (text is SAVES))
    assert len(losses(folder)) == ("labkit" in text) * record.result["steps"]
    assert not list(folder.rglob(".*.pt.*")) and not list(folder.rglob(".part*"))


def test_a_run_that_could_not_begin_leaves_nothing(runs, monkeypatch, cli):
    monkeypatch.chdir(runs.parent)
    Path("train.py").write_text(WITH_RUN)
    full = OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    monkeypatch.setattr("labkit.runs.safe_files.os.fsync", Mock(side_effect=full))
    assert "a file here would be larger" in cli("run train.py", status=2).err
    assert list(runs.iterdir()) == []


NO_MORE = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.mark.parametrize(
    ("fails", "error"),
    [("subprocess.Popen", NO_MORE), ("threading.Thread.start", RuntimeError("can't start new thread"))],
)
def test_where_no_more_processes_may_be_started_the_error_is_named(runs, monkeypatch, cli, fails, error):
    monkeypatch.chdir(runs.parent)
    monkeypatch.setenv("LABKIT_WARM", "0")
    Path("train.py").write_text(PLAIN)
    monkeypatch.setattr(fails, Mock(side_effect=error))
    said = cli("run --seeds 1 train.py", status=2).err
    assert "start no more processes or threads" in said and "`ulimit -u`" in said and "Traceback" not in said


def test_a_script_that_may_not_fork_is_stopped_with_its_line(script):
    text = (
        PLAIN.replace("import os,", "import errno, os,")
        + "raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))"
    )
    status, record, said = script(text)
    assert (status, record.status, record.result["steps"]) == (2, "stopped", 5)
    assert "train.py, line 16: the system refused this" in said.err and "`ulimit -u`" in said.err


def test_a_script_that_ends_before_its_run_leaves_none(runs, monkeypatch, cli):
    monkeypatch.chdir(runs.parent)
    Path("train.py").write_text("import sys; sys.exit('there is no data.csv')")
    assert "there is no data.csv" in cli("run train.py", status=1).err
    assert not runs.exists()


# in processes of their own


def test_seeds_are_runs_of_their_own(runs, monkeypatch, cli):
    monkeypatch.chdir(runs.parent)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    Path("train.py").write_text(f"{WITH_RUN}\nprint('größer')\nassert sys.argv[1:] == ['--seed', str(run.seed)]")
    told = cli("run --seeds 2 --json train.py --seed {seed}").out.splitlines()
    records = [read_run(json.loads(line)["folder"]) for line in told]
    assert [record.seed for record in records] == [0, 1]
    first, second = (losses(runs / record.id) for record in records)
    assert first.keys() == second.keys() and first != second


def test_two_ranks_write_one_folder_a_run_and_end_together(runs, monkeypatch):
    monkeypatch.chdir(runs.parent)
    begin, say = (
        "import torch.distributed as dist\ndist.init_process_group('gloo')\n",
        "print('rank', run.result['ended_by'])",
    )
    to_target = WITH_RUN.replace("epoch / 10", "1")
    # used up in the first step, after which the ranks agree, as one process ends after it
    in_time = WITH_RUN.partition("import labkit")[2].replace(' 0.9"', ' 0.9", max_seconds=1e-6')
    end = "dist.destroy_process_group()"  # whose threads may abort an exit
    Path("train.py").write_text("\n".join([begin, to_target, say, in_time, say, end]))
    command = ["-m", "labkit", "run", "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = [read_run(folder).result for folder in run_folders(runs)]
    assert sorted((result["ended_by"], result["steps"]) for result in results) == [("max_seconds", 1), ("target", 10)]
    assert [(done.stdout + done.stderr).count(f"rank {word}") for word in ("target", "max_seconds")] == [2, 2]


QUIET = {"cpu_share": 0.02, "largest": None, "on_gpu": [], "disturbed": False}
BUSY = {"cpu_share": 0.5, "largest": "stress (process 7)", "on_gpu": [], "disturbed": True}
WHOLE = Budget("all-cores", 2)


@pytest.mark.parametrize(
    ("budget", "found", "more", "policy", "waits"),
    [
        (WHOLE, QUIET, {}, None, None),
        (None, BUSY, {}, None, "PASSIVE"),
        (WHOLE, BUSY, {}, None, "PASSIVE"),
        (WHOLE, BUSY, {}, "ACTIVE", "ACTIVE"),
        (Budget("one-core", 1), BUSY, {}, None, None),  # one thread waits for nobody
        # who runs jobs side by side chooses for them
        (None, BUSY, {"collocation": {"mode": "cpu-shared"}}, None, None),
    ],
)
def test_beside_other_programs_threads_wait_passively_which_is_told(monkeypatch, budget, found, more, policy, waits):
    told = []
    variables = {name: value for name, value in os.environ.items() if name != WAIT_POLICY}
    monkeypatch.setattr(os, "environ", variables | ({WAIT_POLICY: policy} if policy else {}))
    monkeypatch.setattr(Budget, "take_cores", lambda self, **how: [])
    monkeypatch.setattr(telemetry, "others_now", lambda **what: found)
    bind_process(ScriptCommand("t.py", budget=budget, **more), lambda event: told.append(event.text), StopRequest())
    assert os.environ.get(WAIT_POLICY) == waits
    assert len(told) == (found is BUSY and not more)
    assert all("other programs took 50% of its cores, most of it stress (process 7)" in text for text in told)
    assert all(("its threads wait passively" in text) == (waits == "PASSIVE") for text in told)
