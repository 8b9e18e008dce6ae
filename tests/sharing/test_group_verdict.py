"""Groups made by hand, whose every number follows from the courses of the two jobs; and the mode that is advised."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from made_up import new_run, write_samples

from labkit.jobs import DlrmJob, ScriptJob, SpeechJob
from labkit.json_data import to_json
from labkit.launch import Launch, Launches, Mix, Part, PlannedJob, Workload
from labkit.launch.launches import Head
from labkit.launch.mix import job_text
from labkit.sharing.mix_tables import job_table
from labkit.sharing.verdicts import (
    ALL,
    OWN_HARDWARE,
    ROUND_COLUMNS,
    Verdict,
    advise,
    mode_table,
    not_attributed,
    verdict,
)

CPU, GPU = {"torch_name": "cpu"}, {"torch_name": "cuda:0", "kind": "gpu", "uuid": "GPU-1"}


@dataclass(frozen=True)
class Course:
    """What happened to one job in one round; all seconds since the barrier."""

    progress: Sequence[tuple[int, float]] = ()
    """(step, second) of its metric rows; the last is the end of its training"""
    ends_s: float | None = None
    reached_s: float | None = None
    evaluated_s: float = 0.0
    """Its last evaluation"""
    status: str = "done"
    watts: float | None = None
    """Of the machine's processors while it trained; None where there is no counter"""
    has_run: bool = True
    counters: Sequence[tuple] = ()
    """(device, scope, counter, value, unit, note) sampled once, a second after the barrier"""


class HandMadeGroup:
    """A group's folder in the making."""

    def __init__(self, folder, workloads: Sequence[Workload], *, repeats: int = 1, device: dict = CPU):
        folder.mkdir()
        self.folder, self.device, self.now = folder, device, 1_700_000_000
        self.jobs = {(work.name, work.mode, job.name): job for work in workloads for job in work.jobs}
        plan = Mix("mix", tuple(workloads), repeats=repeats)
        head = Head(kind="mix", id=folder.name, content={"mix": to_json(plan)}, status="done")
        self.launches, self.count = Launches(folder, head), 0

    def round(self, workload: str, mode: str, repeat: int, course: dict[str, Course]) -> None:
        """Add a round that is over."""
        go_at, self.count = datetime.fromtimestamp(self.now, UTC).isoformat(timespec="milliseconds"), self.count + 1
        for name, each in course.items():
            job = self.jobs[workload, mode, name]
            run = self.run(job, each) if each.has_run else None
            about = {"workload": workload, "repeat": repeat, "job": name, "job_key": job_text(job.job)}
            how = {"label": job.label, "mode": mode, "together": str(self.count), "about": about}
            launch = Launch(f"{self.count}-{name}", job.command(), **how)
            part = Part(launch=launch, status=each.status, run=run, wall_s=each.ends_s, go_at=go_at)
            self.launches.parts[launch.name] = part
        self.now += 1000

    def save(self):
        self.launches.write()
        return self.folder

    def run(self, job: PlannedJob, course: Course) -> str:
        target = {"target": 0.8, "target_metric": "auc"} if not isinstance(job.job, ScriptJob) else {}
        about = {"config": {"job": "job", "train": target}, "budget": {"name": "t", **self.device}}
        writer = new_run(self.folder, "job", devices=[self.device], **about)
        counted = "steps" if isinstance(job.job, ScriptJob) else "loss"
        points = [(step, second, counted, 1.0) for step, second in course.progress]
        if course.evaluated_s:
            step = max(step for step, second in course.progress if second <= course.evaluated_s)
            points.append((step, course.evaluated_s, "auc", 0.7))
        for step, second, name, value in points:
            writer.metric(step=step, wall_s=second, train_s=second, samples=0, name=name, value=value)
        steps, wall_s = course.progress[-1]
        for device, scope, counter, value, unit, note in course.counters:
            how = {"scope": scope, "unit": unit, "note": note, "source": "the driver", "begin_s": self.now}
            write_samples(writer.folder, device, counter, {1: value}, **how)
        if course.watts is not None:
            joules = {second: 10.0 + course.watts * second for second in range(int(wall_s) + 1)}
            write_samples(writer.folder, "host", "cpu_energy_intel-rapl:0", joules, begin_s=self.now)
        result = {"steps": steps, "wall_s": wall_s, "samples": 10 * steps, "peak_memory_bytes": 2**27}
        result |= {"target_reached": course.reached_s is not None, "time_to_target_s": course.reached_s}
        writer.finish(course.status if course.status in ("done", "stopped") else "failed", result)
        return writer.run_id


def even(steps: int, seconds: float) -> list[tuple[int, float]]:
    """The steps of a job that takes each in the same time."""
    return [(step, step * seconds / steps) for step in range(1, steps + 1)]


QUICK, SLOW = PlannedJob("quick", DlrmJob()), PlannedJob("slow", SpeechJob())
BOTH = (QUICK, SLOW)
WORKLOADS = (Workload("one by one", "alone", BOTH), Workload("at once", "cpu-shared", BOTH))
MIX = "dlrm:tour + speech:tour"
T_975_2 = 4.302653
"""Student's t of two degrees of freedom, from a table."""

# alone: 10 and 2 steps a second
QUICK_ALONE = Course(even(100, 10.0), ends_s=11.0, reached_s=6.0, watts=20.0)
SLOW_ALONE = Course(even(40, 20.0), ends_s=22.0, reached_s=15.0, watts=20.0)
# at once: 8 and 1, until the quick one is through after 12.5 s; from 14 s on, the slow one takes 2 a second again
QUICK_SHARED = Course(even(100, 12.5), ends_s=13.0, reached_s=7.5, watts=30.0)
SLOW_PROGRESS = [*even(14, 14.0), *[(14 + step, 14 + step / 2) for step in range(1, 27)]]
SLOW_SHARED = Course(SLOW_PROGRESS, ends_s=28.0, reached_s=20.0, watts=30.0)


def alone(group: HandMadeGroup, repeat: int = 0, slow: Course = SLOW_ALONE) -> None:
    group.round("one by one", "alone", repeat, {"quick": QUICK_ALONE})
    group.round("one by one", "alone", repeat, {"slow": slow})


def in_seconds(factor: float, course: Course) -> Course:
    """The same, each moment that many times as late."""
    progress = [(step, factor * second) for step, second in course.progress]
    return Course(progress, factor * course.ends_s, factor * course.reached_s, watts=course.watts)


@pytest.fixture
def pair(tmp_path):
    group = HandMadeGroup(tmp_path / "g", WORKLOADS)
    alone(group)
    group.round("at once", "cpu-shared", 0, {"quick": QUICK_SHARED, "slow": SLOW_SHARED})
    return verdict(group.save())


def row(frame, **wanted):
    for name, value in wanted.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1, frame
    return frame.iloc[0]


def test_speed_gain_and_fairness_count_while_all_jobs_ran(pair):
    slow = row(pair.jobs, mode="cpu-shared", job="slow")
    assert (slow["steps"], slow["window_s"]) == (40, 12.5)
    assert slow["steps_per_s"] == pytest.approx(40 / 27)  # with what it did undisturbed, it would look faster
    shared, one_by_one = row(pair.modes, mode="cpu-shared", mix=MIX), row(pair.modes, mode="alone")
    assert list(pair.slowdowns.query("mode == 'cpu-shared'")["slowdown"]) == pytest.approx([1.25, 2.0])
    measures = ["gain", "slowdown", "worst_slowdown", "fairness"]
    assert list(shared[measures]) == pytest.approx([0.8 + 0.5, 1.625, 2.0, 1.3**2 / (2 * (0.8**2 + 0.5**2))])
    assert np.isnan(shared["gain_low"]), "one repeat has no interval"
    assert list(one_by_one[measures]) == pytest.approx([1, 1, 1, 1])


def test_makespan_and_energy_of_a_shared_device_count_once(pair):
    one_by_one, shared = row(pair.modes, mode="alone"), row(pair.modes, mode="cpu-shared")
    assert (one_by_one["makespan_s"], shared["makespan_s"]) == (33, 28)
    assert shared["makespan_gain"] == pytest.approx(33 / 28)
    assert one_by_one["energy_j"] == pytest.approx(20 * (10 + 20))  # while they trained
    assert shared["energy_j"] == pytest.approx(30 * 27)  # not 30 W × (12 s + 27 s)
    assert shared["energy_ratio"] == pytest.approx(810 / 600)
    assert "sampled for 27 s of the round's 28" in shared["energy_note"]


def test_time_to_accuracy_counts_the_place_in_the_queue(pair):
    table = pair.accuracy.pivot(index="mode", columns="job", values="time_s")[["quick", "slow", ALL]]
    assert list(table.loc["alone"]) == [6, 11 + 15, 26]
    assert list(table.loc[OWN_HARDWARE]) == [6, 15, 15]
    assert list(table.loc["cpu-shared"]) == [7.5, 20, 20]
    assert pair.accuracy["reached"].all()


@pytest.mark.parametrize(("status", "time_s"), [("timed_out", 25), ("done", np.inf), ("failed", np.inf)])
def test_a_target_that_was_not_reached_is_censored_or_failed_and_never_dropped(tmp_path, status, time_s):
    group = HandMadeGroup(tmp_path / "g", WORKLOADS)
    alone(group)
    short = Course(SLOW_PROGRESS, ends_s=28.0, evaluated_s=25.0, status=status)
    group.round("at once", "cpu-shared", 0, {"quick": QUICK_SHARED, "slow": short})
    found = verdict(group.save())
    slow = row(found.accuracy, mode="cpu-shared", job="slow")
    assert (slow["reached"], slow["time_s"]) == (False, time_s)
    everybody = row(found.accuracy, mode="cpu-shared", job=ALL)
    assert (everybody["reached"], everybody["time_s"]) == (False, time_s)
    shared = row(found.modes, mode="cpu-shared")  # the sampler of slow saw no counter
    assert np.isnan(shared["energy_j"]) and "12 s of the round's 28, too little" in shared["energy_note"]
    assert np.isinf(row(found.time_to_accuracy, mode="cpu-shared", job=ALL)["median_s"])
    assert row(found.time_to_accuracy, mode="cpu-shared", job="quick")["median_s"] == 7.5


def test_repeats_give_students_interval_each_against_its_own_runs_alone(tmp_path):
    group = HandMadeGroup(tmp_path / "g", WORKLOADS, repeats=3)
    for repeat, factor in enumerate((1.0, 0.8, 1.25)):
        # alone the slow job takes 20, 18 and 24 s for its 40 steps
        alone(group, repeat, Course(even(40, (20.0, 18.0, 24.0)[repeat]), ends_s=25.0, reached_s=15.0))
        course = {"quick": in_seconds(factor, QUICK_SHARED), "slow": in_seconds(factor, SLOW_SHARED)}
        group.round("at once", "cpu-shared", repeat, course)
    found = verdict(group.save())
    gains = np.array([0.8 + 20 / 40, (0.8 + 18 / 40) / 0.8, (0.8 + 24 / 40) / 1.25])
    mean, half = np.log(gains).mean(), T_975_2 * np.log(gains).std(ddof=1) / np.sqrt(3)
    shared = row(found.modes, mode="cpu-shared")
    assert shared["gain"] == pytest.approx(np.exp(mean))
    assert (shared["gain_low"], shared["gain_high"]) == pytest.approx((np.exp(mean - half), np.exp(mean + half)))
    one_by_one = row(found.modes, mode="alone")
    slowed = np.array([1.0, 0.9, 1.2])
    assert one_by_one["gain"] == pytest.approx(np.exp(np.log((1 + 1 / slowed) / 2).mean()))
    assert one_by_one["gain_low"] < 1 < one_by_one["gain_high"]


def test_one_copy_alone_stands_for_all_copies(tmp_path):
    copies = tuple(PlannedJob(f"copy-{number}", DlrmJob(), seed=number) for number in (1, 2, 3))
    other = PlannedJob("copy-1", DlrmJob(batch_size=7))
    workloads = (
        Workload("other", "alone", (other,)),
        Workload("one", "alone", (PlannedJob("only", DlrmJob()),)),
        Workload("three", "cpu-shared", copies),
    )
    group = HandMadeGroup(tmp_path / "g", workloads)
    group.round("other", "alone", 0, {"copy-1": Course(even(100, 1.0), ends_s=1.0)})  # of this name, but another job
    group.round("one", "alone", 0, {"only": QUICK_ALONE})
    group.round("three", "cpu-shared", 0, dict.fromkeys((copy.name for copy in copies), QUICK_SHARED))
    found = verdict(group.save())
    shared = row(found.modes, mode="cpu-shared")
    assert shared["mix"] == "3 × dlrm:tour"
    assert shared["gain"] == pytest.approx(3 * 0.8)
    assert row(found.modes, mode="alone", mix="3 × dlrm:tour")["makespan_s"] == 33
    in_turn = found.accuracy[(found.accuracy["mode"] == "alone") & (found.accuracy["mix"] == "3 × dlrm:tour")]
    assert list(in_turn["time_s"]) == [6, 11 + 6, 22 + 6, 28]


def test_a_round_that_broke_has_no_gain_and_is_not_forgotten(tmp_path):
    group = HandMadeGroup(tmp_path / "g", WORKLOADS, repeats=3)
    for repeat in range(3):
        alone(group, repeat)
    group.round("at once", "cpu-shared", 0, {"quick": QUICK_SHARED, "slow": SLOW_SHARED})
    at_once = Course(ends_s=0.5, status="out_of_memory", has_run=False)
    later = Course(even(4, 2.0), ends_s=2.5, status="out_of_memory")
    for repeat, full in ((1, at_once), (2, later)):
        group.round("at once", "cpu-shared", repeat, {"quick": QUICK_ALONE, "slow": full})
    found = verdict(group.save())
    shared = row(found.modes, mode="cpu-shared")
    assert (shared["repeats"], shared["complete"], shared["measured"]) == (3, 1, 1)
    assert shared["gain"] == pytest.approx(1.3), "not the speed that quick had for itself"
    broken = row(found.accuracy, mode="cpu-shared", repeat=1, job="slow")
    assert (broken["reached"], broken["time_s"], broken["target"]) == (False, np.inf, 0.8)
    (advice,) = advise(found)
    assert advice.mode is None and "slow ran out of memory" in advice.reason
    assert "2 of 3 rounds" in advice.reason


def test_scripts_have_speed_and_no_target_and_a_round_that_waits_is_none_yet(tmp_path):
    script = (PlannedJob("s", ScriptJob("/x/train.py")),)
    pinned, found = {"ran": Course([(10, 4.0)], ends_s=4.5), "waits": Course(status="waiting", has_run=False)}, {}
    for name, course in pinned.items():
        group = HandMadeGroup(tmp_path / name, (Workload("w", "alone", script), Workload("w", "cpu-pinned", script)))
        group.round("w", "alone", 0, {"s": Course([(5, 1.0), (10, 2.0)], ends_s=2.5)})
        group.round("w", "cpu-pinned", 0, {"s": course})
        found[name] = verdict(group.save())
    assert row(found["ran"].modes, mode="cpu-pinned")["gain"] == pytest.approx(0.5)
    assert found["ran"].accuracy.empty and found["ran"].time_to_accuracy.empty
    found = found["waits"]
    assert len(found.jobs) == 2 and list(found.modes["mode"]) == ["alone"], "a round that waits is none yet"


def test_a_counter_that_no_job_has_for_itself_is_named_and_not_divided(tmp_path):
    jobs = (PlannedJob("a", DlrmJob()), PlannedJob("b", DlrmJob()))
    counters = [
        ("GPU-1", "process", "sm_utilisation", None, "%", "not supported on this GPU"),
        ("GPU-1", "process", "memory_used", 2e9, "bytes", None),
        ("GPU-1", "device", "memory_used", 4e9, "bytes", None),
        ("GPU-1", "device", "sm_utilisation", 60.0, "%", None),
        ("GPU-1", "device", "power", 300.0, "W", None),
    ]
    of_slice = ("MIG-1", "mig", "sm_utilisation", 70.0, "%", None)
    for mode, own, said in (("naive", [], "power, sm_utilisation"), ("mig", [of_slice], "power")):
        group = HandMadeGroup(tmp_path / mode, (Workload("w", mode, jobs),), device=GPU)
        course = {job.name: Course(even(10, 10.0), ends_s=10.0, counters=counters + own) for job in jobs}
        group.round("w", mode, 0, course)
        assert not_attributed(job_table(group.save())) == (
            f"In mode {mode}, no job's own, but of all that the device did: {said}."
        )


def test_sm_activity_is_the_mean_of_the_gpu_that_a_job_is_on(tmp_path):
    counters = [(gpu, "device", "sm_active", value, "%", None) for gpu, value in (("GPU-1", 60.0), ("GPU-2", 5.0))]
    group = HandMadeGroup(tmp_path / "gpu", (Workload("w", "naive", (QUICK,)),), device=GPU)
    group.round("w", "naive", 0, {"quick": Course(even(10, 10.0), ends_s=10.0, counters=counters)})
    assert job_table(group.save())["sm_active"].tolist() == [60.0]
    group = HandMadeGroup(tmp_path / "cpu", (Workload("w", "cpu-shared", (QUICK,)),))
    group.round("w", "cpu-shared", 0, {"quick": Course(even(10, 10.0), ends_s=10.0)})
    assert np.isnan(job_table(group.save())["sm_active"].iloc[0])


NAN = float("nan")
ALONE = {"alone": [0.99, 1.0, 1.01]}

# the repeats' gains by mode; the mode that is advised; what is said
CASES = {
    "a clear gain": (
        ALONE | {"cpu-shared": [1.58, 1.6, 1.62], "cpu-pinned": [1.28, 1.3, 1.32]},
        "cpu-shared",
        "Use cpu-shared: it gets 1.60 times (95 % interval 1.55 to 1.65) as much work done",
    ),
    "what it costs": (
        ALONE | {"cpu-shared": [1.58, 1.6, 1.62]},
        "cpu-shared",
        "Each job takes 1.25 times as long as alone, the slowest 1.38 times (fairness 0.90",
    ),
    # each repeat is compared with its own runs alone, so the spread of those is in the interval already
    "alone varies": (
        {"alone": [0.8, 1.0, 1.2], "cpu-shared": [1.2, 1.25, 1.3]},
        "cpu-shared",
        "1.25 times (95 % interval 1.13 to 1.38)",
    ),
    "too few": ({"alone": [1.0] * 3, "cpu-shared": [0.9, 1.1, 1.3]}, "alone", "no gain that 3 repeats can show"),
    "the fairer": (
        ALONE | {"naive": [1.5, 1.6, 1.7], "mps": [1.45, 1.55, 1.65]},
        "mps",
        "Between mps and naive there is no difference that 3 repeats can show.",
    ),
    "a loss": (ALONE | {"mps": [0.78, 0.8, 0.82]}, "alone", "0.75 to 0.85) as much work done: sharing loses."),
    "one repeat": ({"alone": [1.0], "cpu-shared": [1.5]}, None, "One repeat, as of cpu-shared, proves nothing: repeat"),
    "a job broke": (
        ALONE | {"cpu-shared": [1.6, 1.6, NAN], "cpu-pinned": [1.18, 1.2, 1.22]},
        "cpu-pinned",
        "In cpu-shared, 1 of 3 rounds did not come to their end: b ran out of memory.",
    ),
    "nothing alone": ({"cpu-shared": [NAN] * 3}, None, "add mode alone"),
    "nothing shared": (ALONE, None, "Not measured: cpu-shared, cpu-pinned."),
}


@pytest.mark.parametrize("case", CASES)
def test_advice_says_no_more_than_the_repeats_show(case):
    gains, mode, words = CASES[case]
    rows = []
    for name, own in gains.items():
        known = {"mix": "2 × dlrm:tour", "mode": name, "jobs": 2, "on": "gpu" if "mps" in gains else "cpu"}
        known |= {"disturbed": False, "fairness": {"naive": 0.7, "mps": 0.99}.get(name, 0.9)}
        for repeat, gain in enumerate(own):
            slowdown, broke = 1.0 if name == "alone" else 2 / gain, np.isnan(gain)
            measured = {"slowdown": slowdown, "worst_slowdown": 1.1 * slowdown, "makespan_gain": gain, "gain": gain}
            measured |= {"repeat": repeat, "complete": not broke, "note": "b ran out of memory" if broke else ""}
            rows.append(known | measured)
    nothing, table = pd.DataFrame(), pd.DataFrame(rows, columns=ROUND_COLUMNS)
    (advice,) = advise(Verdict(nothing, table, mode_table(table), nothing, nothing, nothing))
    assert advice.mode == mode
    assert words in advice.reason
