"""`labkit run --nproc`: one run on several processes, and the rank that failed first, whatever happens to any."""

import os
import platform
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from processes import DEADLINE_S, marked_where, wait_for

import labkit
from labkit import UserError
from labkit.cli import main
from labkit.hardware import Budget
from labkit.launch import RankedRun, rank_commands, several_machines
from labkit.runs import (
    HangWatch,
    RankWord,
    exchange_s,
    first_failure,
    late_rank,
    own_process,
    read_metrics,
    read_ranks,
    read_run,
    read_telemetry,
    run_folders,
)
from labkit.tracking import ScriptCommand, StopRequest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes as Linux shows them")
KILLS = 50 if "LABKIT_SOAK" in os.environ else 4
"""`make soak` has more."""
STEPS = 40
"""Steps of an epoch of runs that are killed; two epochs take four seconds"""
SCRIPT = """
import os, signal, sys, time
import torch
import torch.distributed as dist
import labkit
from labkit import hardware, telemetry

class NoSampler:
    failure, untold = None, ()
    __init__ = __enter__ = __exit__ = lambda self, *arguments, **options: None

fault, who, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo")
rank = dist.get_rank()
if who == 1 and fault != "killed":  # a sampler's imports take a second of a core
    telemetry.Sampler = NoSampler
if fault == "refused":
    for differs in ("lr", "data", "torch"):
        other = differs if rank == who else ""
        if other == "torch":
            hardware.package_versions = lambda: {"torch": "2.0"}
        config = {"lr": 1 + (other == "lr"), "data": {"fingerprint": f"a{other == 'data'}"}}
        try:
            with labkit.Run("ranks", config=config):
                pass
        except labkit.UserError as error:
            if differs == "torch":
                raise
            print(error, flush=True)
model = torch.nn.Linear(4, 1)  # without DistributedDataParallel and optimiser, whose imports take seconds

def strike(x):
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "raised":
        raise ValueError("bad data")
    elif fault == "exited":
        sys.exit(3)
    elif fault == "silent":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "hung":
        time.sleep(1000)
    elif fault == "memory":
        raise MemoryError
    elif fault == "nan":
        x[0] = float("nan")

with labkit.Run("ranks", target="max score", config={"steps": steps, "rank": rank}) as run:
    run.keep(model=model)
    for epoch in run.epochs(2):
        for number in run.batches(range(steps)):
            x = torch.full((4 + rank, 4), float(rank))
            if rank == who and run.position.step == 3:
                if fault == "left":
                    break
                strike(x)
            loss = model(x).mean()
            loss.backward()
            dist.all_reduce(model.weight.grad)
            run.step(torch.tensor(float(rank)) + 0 * loss.detach(), samples=len(x))
            time.sleep(0.05 if steps > 5 else 0)
        else:
            run.evaluate(score=epoch + rank)
            continue
        break
"""
MARK = "LABKIT_TEST_OF_RANKS"


class Ended(NamedTuple):
    status: int
    printed: str
    folder: Path

    @property
    def record(self):
        (folder,) = run_folders(self.folder / "runs")
        return read_run(folder)


def limit_s(fault: str) -> float:
    """Where nothing hangs, other ranks may rest long on a busy machine."""
    return 8 if fault in ("silent", "hung") else 60


def script_in(folder: Path) -> Path:
    (folder / "tmp").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    return folder / "train.py"


def start(folder: Path, *arguments: object) -> subprocess.Popen:
    """Start the script as a command does."""
    script_in(folder)
    limit = str(limit_s(arguments[0]))
    command = [sys.executable, "-m", "labkit", "run", "--nproc", "2", "--hang-s", limit]
    command += ["train.py", *map(str, arguments)]
    more = {"TMPDIR": str(folder / "tmp"), MARK: str(folder), "LABKIT_QUIET": "1"}
    with (folder / "printed").open("w") as printed:
        how = {"stdout": printed, "stderr": printed, "start_new_session": True}
        return subprocess.Popen(command, cwd=folder, env=os.environ | more, **how)


def end(folder: Path, *arguments: object) -> Ended:
    status = start(folder, *arguments).wait(DEADLINE_S)
    return Ended(status, (folder / "printed").read_text(), folder)


def end_here(folder: Path, *arguments: object) -> Ended:
    """Run the script from this process, which has imported torch; `printed` is what the command would print at last."""
    script = script_in(folder)
    own = ScriptCommand(str(script), tuple(map(str, arguments)), runs_dir=str(folder / "runs"))
    ended = RankedRun(own, 2, stop=StopRequest(), hang_s=limit_s(arguments[0])).run()
    return Ended(ended.exit_status, ended.reason, folder)


def left(folder: Path) -> list[str]:
    return marked_where(lambda process: process.environ().get(MARK) == str(folder))


FAULTS = {
    ("killed", 1): (1, "rank 1 of 2 on {host} (process {pid}): its process was ended by SIGKILL", "killed"),
    ("killed", 0): (1, "rank 0 of 2 on {host} (process {pid}): its process was ended by SIGKILL", "killed"),
    ("raised", 1): (1, "rank 1 of 2 on {host} (process {pid}): ValueError: bad data", "error"),
    ("exited", 1): (3, "rank 1 of 2 on {host} (process {pid}): the script ended by sys.exit(3)", "error"),
    ("memory", 1): (1, "rank 1 of 2 on {host} (process {pid}): This machine ran out of memory", "error"),
    ("silent", 0): (1, "rank 0 of 2 on {host} (process {pid}) has given no sign for", "killed"),
    ("hung", 1): (1, "rank 1 of 2 on {host} (process {pid}) holds up the run", "killed"),
    ("left", 1): (1, "rank 1 of 2 on {host} (process {pid}): it left its loop early, after step 3", "killed"),
    ("nan", 1): (2, "the training loss is nan on rank 1 at step 4", "diverged"),
}


COMMANDS = ("none", "raised", "refused")
"""What the command itself runs"""


@pytest.fixture(scope="module")
def runs_of(tmp_path_factory):
    """How runs ended, by fault and rank; ("none", -1) is one without a fault. Three run at a time."""
    folder, patch = tmp_path_factory.mktemp("ranks"), pytest.MonkeyPatch()
    (folder / "tmp").mkdir()
    with patch.context() as patched, ThreadPoolExecutor(3) as pool:
        for name, value in {MARK: folder, "TMPDIR": folder / "tmp", "LABKIT_QUIET": "1"}.items():
            patched.setenv(name, str(value))
        started = {
            key: pool.submit(end if key[0] in COMMANDS else end_here, folder / "-".join(map(str, key)), *key, 5)
            for key in [("none", -1), ("refused", 1), *FAULTS]
        }
        return {key: each.result() for key, each in started.items()}


def test_one_folder_has_the_mean_loss_the_sum_of_samples_and_every_rank(runs_of, capfd):
    ended = runs_of["none", -1]
    record, result = ended.record, ended.record.result
    assert (ended.status, record.status, result["ended_by"]) == (0, "done", "max_epochs"), ended.printed
    assert (result["steps"], result["samples"]) == (10, 10 * (4 + 5))
    assert result["best_validation"] == 1.0, "rank 0's word counts"
    losses = read_metrics(run_folders(ended.folder / "runs")).query("name == 'loss'")["value"]
    assert list(losses) == pytest.approx([5 / 9] * 10)  # of 4 samples with loss 0, and 5 with loss 1
    assert record.config["ranks"] == 2
    assert record.ran_under.endswith(", 2 processes")
    ranks = result["ranks"]
    assert [(each["rank"], each["host"], each["ended"]) for each in ranks] == [(r, record.host, "done") for r in (0, 1)]
    assert result["peak_memory_bytes"] == sum(each["peak_memory_bytes"] for each in ranks) > 2 * 50e6
    telemetry = read_telemetry(run_folders(ended.folder / "runs"))
    of_ranks = telemetry[telemetry["scope"] == "rank"]
    assert {*of_ranks["device"]} == {"rank 0", "rank 1"}
    assert {*of_ranks["counter"]} == {"cpu_percent", "memory_resident"}
    whole = telemetry[(telemetry["scope"] == "process") & (telemetry["counter"] == "memory_resident")]["value"]
    assert whole.max() > 1.5 * of_ranks["value"].max(), "the job is all of its ranks"
    assert main(["runs", "show", str(run_folders(ended.folder / "runs")[0])]) == 0
    shown = capfd.readouterr().out
    assert "2 processes on 1 host" in shown and str(ranks[1]["pid"]) in shown
    assert not left(ended.folder)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[0]}-{fault[1]}")
def test_the_guilty_rank_is_named_and_nothing_is_left(runs_of, fault):
    ended, (status, said, ended_by) = runs_of[fault], FAULTS[fault]
    record = ended.record
    (word,) = [word for word in read_ranks(next(iter(run_folders(ended.folder / "runs")))) if word.rank == fault[1]]
    said = said.format(host=word.host, pid=word.pid)
    assert (record.status, record.result["ended_by"]) == ("failed", ended_by), ended.printed
    assert said in record.result["reason"]
    assert said in ended.printed
    assert ended.status == status
    if fault[0] in ("hung", "left"):
        assert "rank 0 stands at train.py:" in record.result["reason"]
    for folder in (ended.folder, ended.folder.parent):  # of the command, and of this process
        wait_for(lambda folder=folder: not left(folder))
        assert not [*(folder / "tmp").iterdir()]


def test_ranks_that_differ_in_settings_data_or_versions_are_refused_before_there_is_a_run(runs_of):
    ended = runs_of["refused", 1]
    assert ended.status == 2
    for said in ("train.lr 2, but", "data.fingerprint 'aTrue', but", "torch '2.0', but"):
        assert re.search(rf"rank 1 of 2 on {platform.node()} has {said} rank 0 on {platform.node()} has", ended.printed)
    assert run_folders(ended.folder / "runs") == []


def begun(folder: Path) -> list[RankWord]:
    """The words of ranks that have taken a step."""
    words = [word for run in run_folders(folder / "runs") for word in read_ranks(run)]
    return [word for word in words if word.step]


@pytest.fixture
def training(tmp_path) -> tuple[Path, subprocess.Popen]:
    """The folder of a launcher whose ranks have taken a step, and its process."""
    launcher = start(folder := tmp_path / "a", "none", -1, 100)
    wait_for(lambda: len(begun(folder)) == 2, (folder / "printed").read_text)
    return folder, launcher


def test_a_killed_launcher_leaves_a_stopped_run_that_goes_on_with_as_many_ranks(training, monkeypatch, capfd):
    folder, launcher = training
    launcher.kill()
    wait_for(lambda: not left(folder))
    ((run,),) = [run_folders(folder / "runs")]
    assert read_run(run).status == "stopped"
    steps = read_run(run).result["steps"]
    assert 0 < steps < 200
    monkeypatch.chdir(folder)
    assert main(["run", "--nproc", "1", "--resume", str(run)]) == 2
    said = capfd.readouterr().err
    assert "this run had 2 processes, but here it has 1" in said and "resume it with --nproc 2" in said


def test_ctrl_c_stops_all_ranks_after_the_same_step(training):
    folder, launcher = training
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(DEADLINE_S) == 130
    (run,) = run_folders(folder / "runs")
    assert read_run(run).status == "stopped"
    assert (run / "checkpoint" / "latest.pt").exists()
    assert len({word.step for word in read_ranks(run)}) == 1
    wait_for(lambda: not left(folder))


def test_random_kills_of_any_process_leave_nothing(tmp_path):
    chance = random.Random(3)

    def kill(number: int) -> None:
        folder = tmp_path / str(number)
        launcher = start(folder, "none", -1, STEPS)
        until = time.monotonic() + DEADLINE_S
        if number % 2:
            while len(begun(folder)) < 2 and launcher.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
        time.sleep(chance.uniform(0, 2))  # the moment is what is drawn
        try:
            ours = [psutil.Process(launcher.pid), *psutil.Process(launcher.pid).children(recursive=True)]
            chance.choice(ours).kill()
        except psutil.Error:
            pass
        launcher.wait(DEADLINE_S)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(kill, range(KILLS)))
    for number in range(KILLS):
        folder = tmp_path / str(number)
        wait_for(lambda folder=folder: not left(folder))
        assert not [*(folder / "tmp").iterdir()]
        for run in run_folders(folder / "runs"):
            record = read_run(run)
            is_whole = record.status == "done" and record.result["steps"] == 2 * STEPS  # its sampler was killed
            assert is_whole or record.status in ("stopped", "failed", "interrupted")


COMMAND = ScriptCommand("train.py", ("--lr", "0.1"))


@pytest.mark.parametrize(
    ("count", "budget", "platform", "said"),
    [
        (0, None, "linux", "--nproc is 0"),
        (10_000, None, "linux", "use at most --nproc "),
        (2, None, "win32", "--nproc needs Linux or macOS"),
        (1, Budget("gpu", None, torch_name="cuda:0"), "linux", "a part of one GPU"),
    ],
)
def test_what_this_machine_cannot_run_is_refused(monkeypatch, count, budget, platform, said):
    monkeypatch.setattr("labkit.launch.ranks.sys.platform", platform)
    with pytest.raises(UserError, match=said):
        rank_commands(replace(COMMAND, budget=budget), count)


def test_ranks_share_threads_and_memory_and_the_record_names_the_whole_budget(monkeypatch):
    monkeypatch.setattr("labkit.telemetry.own_affinity", lambda: [0, 1, 2, 3])
    budget = Budget("own", 4, memory_bytes=2**30)
    ranks = rank_commands(replace(COMMAND, budget=budget), 2)
    assert [environment["RANK"] for _, environment in ranks] == ["0", "1"]
    for command, environment in ranks:
        assert environment["OMP_NUM_THREADS"] == "2"
        assert (command.shared, command.budget.memory_bytes, command.budget.cores) == (budget, 2**29, None)


def test_the_line_for_several_machines_gives_each_its_part(capfd, tmp_path, monkeypatch):
    assert "--nnodes 2 --nproc-per-node 4 " in several_machines(COMMAND, 8, 2)
    assert several_machines(COMMAND, 8, 2).endswith(" train.py --lr 0.1")
    for count, nodes, budget in ((8, 3, None), (8, 2, Budget("one-core", 1))):
        with pytest.raises(UserError):
            several_machines(replace(COMMAND, budget=budget), count, nodes)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    assert main(["run", "--nproc", "8", "--nodes", "2", "--print", "train.py"]) == 0
    assert capfd.readouterr().out.startswith("torchrun --nnodes 2 ")
    assert main(["run", "--nodes", "2", "train.py"]) == 2


# the reader of what ranks wrote


def word(rank: int, **more) -> RankWord:
    pid, started = own_process()
    return RankWord(rank, 3, platform.node(), pid, started, **{"step": 5, "progress": 5} | more)


def test_the_first_failure_counts_and_lost_connections_do_not():
    raised = word(2, ended="raised", words="ValueError: x", written_at=10.0)
    words = [word(0, ended="cut_off", written_at=9.0), word(1, ended="exited", words="y", written_at=11.0), raised]
    assert first_failure(words) == (raised, f"{raised.name}: ValueError: x")
    gone = replace(word(1, written_at=8.0), pid=2**22 + 1)  # no process has this number
    found = first_failure([words[0], gone, raised])
    assert found is not None
    assert found[0] is gone
    assert "without a word" in found[1]
    judge = word(2, ended="hung", words="rank 1 has given no sign", written_at=20.0)
    assert first_failure([words[0], gone, judge]) == (judge, judge.words), "it was killed because it hung"
    assert first_failure([words[0], gone, judge], {1: "it was ended by SIGKILL"})[0] is gone
    assert first_failure([word(0), word(1)]) is None
    elsewhere = replace(gone, host="another")  # whose processes this host cannot see
    assert first_failure([words[0], elsewhere]) is None


def looks(folder: Path, watch: HangWatch, at: float, *words: RankWord) -> str:
    for each in words:
        replace(each, written_at=at).save(folder)
    return (watch.look(at) or (None, ""))[1]


def test_a_run_hangs_if_no_rank_steps_or_computes(tmp_path):
    watch, waits, sleeps = HangWatch(tmp_path, 10), word(0, waits=True, place="a.py:3"), word(1, place="a.py:9")
    assert not looks(tmp_path, watch, 0, waits, sleeps)
    assert not looks(tmp_path, watch, 9, waits, sleeps)
    assert "rank 1 of 3" in looks(tmp_path, watch, 11, waits, sleeps)
    stepped = [replace(each, progress=6) for each in (waits, sleeps)]
    assert not looks(tmp_path, watch, 12, *stepped)
    computes = [stepped[0], replace(stepped[1], cpu_s=50.0)]
    assert not looks(tmp_path, watch, 30, *computes), "an evaluation has no steps"
    assert looks(tmp_path, watch, 113, *[replace(each, cpu_s=200.0) for each in computes])


def test_before_the_first_step_nothing_hangs_and_a_rank_that_has_ended_leaves_the_rest_to_others(tmp_path):
    watch = HangWatch(tmp_path, 10)
    for at in (0, 50, 100):
        assert not looks(tmp_path, watch, at, word(0, step=0, progress=0), word(1, step=0, progress=0))
    done = word(1, ended="done", place="a.py:9")
    assert not looks(tmp_path, watch, 101, word(0), done)
    assert not looks(tmp_path, watch, 500, word(0, cpu_s=390.0), done), "rank 0 tests the model"
    watch = HangWatch(tmp_path, 10)
    assert not looks(tmp_path, watch, 0, word(0), done)
    assert "rank 1 of 3" in looks(tmp_path, watch, 11, word(0), done)


def test_the_last_to_arrive_waits_for_none_and_is_the_late_one():
    rows = [
        {"rank": 0, "phases_s": {"forward": [5.0, 0.5], "backward": [9.0, 4.0]}},
        {"rank": 1, "phases_s": {"forward": [5.0, 0.5], "backward": [9.0, 1.0]}},
    ]
    assert exchange_s(rows) == {"forward": (0.5, [0.0, 0.0]), "backward": (1.0, [3.0, 0.0])}
    assert late_rank(rows) == (1, 3.0)
    assert exchange_s([]) == {} and late_rank([]) is None


def test_a_silent_rank_is_found_although_it_cannot_say_so(tmp_path):
    watch = HangWatch(tmp_path, 10)
    assert not looks(tmp_path, watch, 0, word(0), word(1))
    assert not looks(tmp_path, watch, 8, word(0))
    assert "rank 1 of 3" in looks(tmp_path, watch, 11, word(0))


def test_a_refused_start_names_no_rank_if_all_ranks_say_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("from labkit import UserError\nraise UserError('there is no data.')")
    ended = RankedRun(ScriptCommand("train.py"), 2, stop=StopRequest()).run()
    assert (ended.reason, ended.exit_status, ended.answer) == ("there is no data.", 2, {})


def test_ranks_that_do_not_join_each_other_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="each of them would train by itself"), labkit.Run("alone", runs_dir=tmp_path):
        pass
    assert not [*tmp_path.iterdir()]
