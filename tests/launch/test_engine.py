"""Launches of a round start together, are followed to their ends, and are ended in time; a list goes in its order."""

import sys

import pytest
from launcher import run_round, together

from labkit.jobs import DlrmJob, ScriptJob
from labkit.launch import Launch, PlannedJob, engine, shared_with
from labkit.runs import read_metrics, read_run
from labkit.sharing.rounds import with_share
from labkit.sharing.shares import Share
from labkit.tracking import ScriptCommand, StopRequest


@pytest.fixture
def jobs(light, monkeypatch):
    monkeypatch.setattr(engine, "WORKER", "light_job")


def followed(folder, launches, asks_to_stop=lambda happened: False, **ways):
    """The launches in their order, what happened, and the list."""
    happened, stop = [], StopRequest()

    def hear(part, event):
        kind = "Over" if event["kind"] == "State" and part.has_ended else event["kind"]
        happened.append((part.name, kind))
        if asks_to_stop(happened):
            stop.request("SIGINT")

    made = run_round(folder, launches, on_event=hear, stop=stop, **ways)
    return list(made.parts.values()), happened, made


def test_no_job_goes_before_all_are_ready(tmp_path, jobs):
    parts, happened, made = followed(tmp_path, together(*[""] * 16))
    go = happened.index(("job-0", "Go"))
    assert [happened[:go].count((f"job-{n}", "Ready")) for n in range(16)] == [1] * 16
    assert all(kind != "Ended" for _, kind in happened[:go])
    assert {part.status for part in parts} == {"done"}
    assert made.head.status == "done" and all(part.go_at for part in parts)


def test_launches_come_one_after_another_however_they_end(tmp_path, jobs):
    launches = [Launch(name, ScriptCommand("light", (how,))) for name, how in (("a", "fails"), ("b", ""), ("c", ""))]
    parts, happened, _ = followed(tmp_path, launches)
    started = ("State", "Over")  # the first state of a launch is that it runs
    assert [name for name, kind in happened if kind in started] == ["a", "a", "b", "b", "c", "c"]
    assert [part.status for part in parts] == ["failed", "done", "done"]


def test_where_one_cannot_be_built_none_is_let_go(tmp_path, jobs):
    parts, happened, made = followed(tmp_path, together("fails", "stays"))
    assert ("job-0", "Go") not in happened
    assert [part.status for part in parts] == ["failed", "stopped"]
    assert parts[1].reason == "not started, because job-0 ended before the start"
    assert made.head.status == "failed"


def test_a_job_that_dies_is_reported_its_neighbours_go_on_and_a_stop_ends_even_the_deaf(tmp_path, jobs):
    def others_are_over(happened):
        return [kind for _, kind in happened].count("Over") == 2

    parts, _, made = followed(tmp_path, together("stays deaf breeds", "dies", ""), others_are_over)
    assert [part.status for part in parts] == ["stopped", "failed", "done"]
    assert [part.reason for part in parts[:2]] == ["stopped by SIGINT", "its process was ended by SIGKILL"]
    assert made.head.status == "stopped"


# a supervisor for which SIGKILL does nothing, as where a driver keeps a process in state D
POWERLESS = """#!{python}
import os, sys, psutil
from labkit.process import child, containment, supervisor
containment.GONE_S = child.TERM_S = supervisor.TIDY_S = 0.2
os.kill = os.killpg = psutil.Process.kill = lambda *of: None
psutil.Process.status = lambda process: psutil.STATUS_DISK_SLEEP
supervisor._Supervisor().run()
os._exit(0)
"""


def test_a_job_that_sigkill_cannot_end_is_named_and_not_waited_for(tmp_path, jobs, monkeypatch):
    (tmp_path / "python").write_text(POWERLESS.format(python=sys.executable))
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    parts, _, made = followed(tmp_path, together("stays deaf", "", limit_s=6.0))
    assert [part.status for part in parts] == ["timed_out", "done"]
    assert made.head.status == "failed"
    assert parts[0].reason.startswith("not done 6 s after it was started; process ")
    assert "still exists after SIGKILL, in state disk-sleep: it waits" in parts[0].reason


def launch_of(job: PlannedJob, folder, **share) -> Launch:
    """A job of a mix as it is started, in a round with the others."""
    shared = {"group": folder.name, "job": job.name, "log": f"{job.name}.log"} | shared_with("cpu-shared", [job])
    command = with_share(job.command(), Share("some cores", **share), folder, shared)
    return Launch(job.name, command, together="w")


SCRIPT = """
import os, sys
from pathlib import Path
import torch
bound = sorted(os.sched_getaffinity(0)), torch.get_num_threads()
Path({out!r}).write_text(repr((sys.argv[1:], __name__, __file__, sys.stdin.read(), bound)))
model, other = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
optimisers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, other)]
for step in range(30):
    for each, optimiser in zip((model, other), optimisers):
        each(torch.randn(8, 4)).square().mean().backward()
        optimiser.step()
print("printed by the script")
"""


def test_an_unchanged_script_in_a_partition_and_a_job_share_a_round(tmp_path):
    script = tmp_path / "my script.py"
    script.write_text(SCRIPT.format(out=str(tmp_path / "seen")))
    arguments = ("--note", "two words", "--path=a b", 'it\'s "quoted"', "")
    jobs = [
        PlannedJob("script", ScriptJob(str(script), arguments)),
        PlannedJob("clicks", DlrmJob(data="synthetic-small", max_epochs=1, precision="fp32")),
    ]
    share = {"cores": (0,), "memory_bytes": 3 * 2**30}
    launches = [launch_of(jobs[0], tmp_path, **share), launch_of(jobs[1], tmp_path)]
    (of_script, of_clicks), happened, made = followed(tmp_path, launches, grace_s=5)
    assert made.head.status == "done", (of_script, of_clicks)
    assert (tmp_path / "seen").read_text() == repr((list(arguments), "__main__", str(script), "", ([0], 1)))
    run = read_run(tmp_path / of_script.run)
    assert (run.status, run.result["steps"], run.result["reason"]) == ("done", 30, "the script ended")
    assert list(read_metrics([tmp_path / run.id])["name"].unique()) == ["steps"]
    alone = {"group": tmp_path.name, "job": "script", "log": "script.log"}
    assert alone.items() <= run.config["collocation"].items()
    assert "printed by the script" in (made.folder / of_script.log).read_text()
    clicks = read_run(tmp_path / of_clicks.run)
    assert (clicks.status, clicks.result["wall_s"]) == ("done", of_clicks.wall_s)
    assert happened.index(("script", "Go")) > happened.index(("script", "Ready"))


STEP = """
import sys, time, torch
model = torch.nn.Linear(4, 1)
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(8, 4)).square().mean().backward()
optimiser.step()
"""


def test_where_one_takes_no_step_none_is_let_go(tmp_path):
    for name, text in (("idle", ""), ("steps", STEP)):
        (tmp_path / f"{name}.py").write_text(text)
    jobs = [PlannedJob(name, ScriptJob(str(tmp_path / f"{name}.py"))) for name in ("idle", "steps")]
    outcomes, happened, _ = followed(tmp_path, [launch_of(job, tmp_path) for job in jobs], grace_s=20)
    assert ("idle", "Go") not in happened
    assert [outcome.status for outcome in outcomes] == ["done", "stopped"]
    assert outcomes[1].reason == "not started, because idle ended before the start without a step (the script ended)"


def test_scripts_end_as_they_say_or_as_by_ctrl_c(tmp_path):
    greedy, saved = "torch.ones(2**32)", tmp_path / "saved"
    waits = f"try:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    open({str(saved)!r}, 'w').close()\n    raise"
    endings = {"sys.exit(3)": "failed", "sys.exit(0)": "done", greedy: "out_of_memory"}
    endings[waits] = "stopped"
    launches = []
    for number, ending in enumerate(endings):
        script = tmp_path / f"ends-{number}.py"
        script.write_text(f"{STEP}{ending}\n")
        share = {"memory_bytes": 2 * 2**30} if ending == greedy else {}
        launches.append(launch_of(PlannedJob(script.stem, ScriptJob(str(script))), tmp_path, **share))

    def is_alone(happened):
        return ("ends-3", "Progress") in happened and [kind for _, kind in happened].count("Over") == 3

    outcomes, _, _ = followed(tmp_path, launches, is_alone, grace_s=20)
    assert [outcome.status for outcome in outcomes] == list(endings.values())
    runs = [read_run(tmp_path / outcome.run).status for outcome in outcomes]
    assert runs[:2] == ["failed", "done"] and runs[3] == "stopped"
    assert saved.exists()
    assert "more memory than its budget 'memory=2048MiB' allows" in outcomes[2].reason
