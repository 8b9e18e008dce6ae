"""Jobs of a round start together, are followed to their ends, and are ended in time."""

from __future__ import annotations

import sys

from launcher import run_round
from light_job import processes_of

from labkit.hardware import THREAD_VARIABLES
from labkit.process import JobProcess
from labkit.runs import read_metrics, read_run
from labkit.sharing.launching.job import worker_process
from labkit.sharing.modes.place import Share
from labkit.sharing.plan.planned_job import PlannedJob, told_of_mix
from labkit.tracking import StopRequest


def followed(processes, asks_to_stop=lambda happened: False, **ways):
    """The outcomes in their order, what happened, and the round's record."""
    happened, stop = [], StopRequest()

    def hear(event):
        happened.append((event.job, event.event["kind"]))
        if asks_to_stop(happened):
            stop.request("SIGINT")

    record = run_round(processes, on_event=hear, stop=stop, **ways)
    return record.jobs, happened, record


def test_no_job_goes_before_all_are_ready(tmp_path):
    outcomes, happened, record = followed(processes_of(tmp_path, *[""] * 16))
    go = happened.index(("", "Go"))
    assert [happened[:go].count((f"job-{n}", "Ready")) for n in range(16)] == [1] * 16
    assert all(kind != "Ended" for _, kind in happened[:go])
    assert {outcome.status for outcome in outcomes} == {"done"}
    assert (record.status, record.go_at is None) == ("done", False)


def test_where_one_cannot_be_built_none_is_let_go(tmp_path):
    outcomes, happened, record = followed(processes_of(tmp_path, "fails", "stays"))
    assert ("", "Go") not in happened
    assert [outcome.status for outcome in outcomes] == ["failed", "stopped"]
    assert outcomes[1].reason == "not started, because job-0 ended before the start"
    assert record.status == "stopped"


def test_a_job_that_dies_is_told_its_neighbours_go_on_and_a_request_to_stop_ends_even_the_deaf(tmp_path):
    def others_are_over(happened):
        return [kind for _, kind in happened].count("Over") == 2

    outcomes, _, record = followed(processes_of(tmp_path, "stays deaf breeds", "dies", ""), others_are_over)
    assert [outcome.status for outcome in outcomes] == ["stopped", "failed", "done"]
    assert [outcome.reason for outcome in outcomes[:2]] == ["stopped by SIGINT", "its process was ended by SIGKILL"]
    assert record.status == "stopped"


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


def test_a_job_that_sigkill_cannot_end_is_named_and_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "python").write_text(POWERLESS.format(python=sys.executable))
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    outcomes, _, record = followed(processes_of(tmp_path, "stays deaf", ""), timeout_s=6.0)
    assert [outcome.status for outcome in outcomes] == ["timed_out", "done"]
    assert record.status == "failed" and record.left
    assert outcomes[0].reason.startswith("not done 6 s after it was started; process ")
    for pid in record.left:
        assert f"process {pid} still exists after SIGKILL, in state disk-sleep: it waits" in outcomes[0].reason


def process_of(job: PlannedJob, folder, **share) -> JobProcess:
    told = told_of_mix("cpu-shared", [job])
    return worker_process(job, Share("some cores", **share), folder, f"{job.name}.log", told)


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
        PlannedJob("script", str(script), arguments),
        PlannedJob("clicks", "dlrm", ("--data", "synthetic-small", "--max-epochs", "1", "--precision", "fp32")),
    ]
    share = {"cores": (0,), "memory_bytes": 3 * 2**30, "environment": dict.fromkeys(THREAD_VARIABLES, "1")}
    processes = [process_of(jobs[0], tmp_path, **share), process_of(jobs[1], tmp_path)]
    (of_script, of_clicks), happened, record = followed(processes, grace_s=5)
    assert record.status == "done", record
    assert (tmp_path / "seen").read_text() == repr((list(arguments), "__main__", str(script), "", ([0], 1)))
    run = read_run(tmp_path / of_script.run)
    assert (run.status, run.result["steps"], run.result["reason"]) == ("done", 30, "the script ended")
    assert list(read_metrics([tmp_path / run.id])["name"].unique()) == ["steps"]
    alone = {"group": tmp_path.name, "job": "script", "log": "script.log"}
    assert alone.items() <= run.config["collocation"].items()
    assert "printed by the script" in (tmp_path / "script.log").read_text()
    clicks = read_run(tmp_path / of_clicks.run)
    assert (clicks.status, clicks.result["wall_s"]) == ("done", of_clicks.wall_s)
    assert happened.index(("", "Go")) > happened.index(("script", "Ready"))


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
    jobs = [PlannedJob(name, str(tmp_path / f"{name}.py")) for name in ("idle", "steps")]
    outcomes, happened, _ = followed([process_of(job, tmp_path) for job in jobs], grace_s=20)
    assert ("", "Go") not in happened
    assert [outcome.status for outcome in outcomes] == ["done", "stopped"]
    assert outcomes[1].reason == "not started, because idle ended before the start without a step"


def test_scripts_end_as_they_say_or_as_by_ctrl_c(tmp_path):
    greedy, saved = "torch.ones(2**32)", tmp_path / "saved"
    waits = f"try:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    open({str(saved)!r}, 'w').close()\n    raise"
    endings = {"sys.exit(3)": "failed", "sys.exit(0)": "done", greedy: "out_of_memory"}
    endings[waits] = "stopped"
    processes = []
    for number, ending in enumerate(endings):
        script = tmp_path / f"ends-{number}.py"
        script.write_text(f"{STEP}{ending}\n")
        share = {"memory_bytes": 2 * 2**30} if ending == greedy else {}
        processes.append(process_of(PlannedJob(script.stem, str(script)), tmp_path, **share))

    def is_alone(happened):
        return ("ends-3", "Progress") in happened and [kind for _, kind in happened].count("Over") == 3

    outcomes, _, _ = followed(processes, is_alone, grace_s=20)
    assert [outcome.status for outcome in outcomes] == list(endings.values())
    runs = [read_run(tmp_path / outcome.run).status for outcome in outcomes]
    assert runs[:2] == ["failed", "done"] and runs[3] == "stopped"
    assert saved.exists()
    assert "more memory than its budget 'memory=2048MiB' allows" in outcomes[2].reason
