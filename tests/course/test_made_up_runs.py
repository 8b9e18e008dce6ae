"""The sweep that never ran: what was planted is in the counters and nowhere else, and a neighbour is nobody's child."""

import json

import numpy as np
import psutil
import pytest

from labkit.runs import list_runs, query, read_run, read_telemetry, run_folders
from labkit_course.apparatus import make_runs, neighbour, planted
from labkit_course.lab import from_lab

COUNT = 120


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made-up")
    make_runs(folder, COUNT)
    return folder


def test_the_same_runs_are_made_each_time_and_those_that_are_there_stay(made, tmp_path):
    make_runs(tmp_path, 3)
    names = [folder.name for folder in run_folders(tmp_path)]
    assert names == [folder.name for folder in run_folders(made)][:3] == list(planted(3)["run"])
    for name in names:
        for part in ("telemetry", "metrics"):
            file = f"{name}/{part}/part-00000.parquet"
            assert (tmp_path / file).read_bytes() == (made / file).read_bytes()
    (tmp_path / names[0] / "run.json").write_text("mine")
    make_runs(tmp_path, 3)
    assert (tmp_path / names[0] / "run.json").read_text() == "mine"


def test_they_say_that_they_are_made_up_and_not_which_were_disturbed(made):
    runs = list_runs(made).merge(planted(COUNT))
    assert set(runs["provenance"]) == {"emulated"} and len(runs) == COUNT
    marked = runs["disturbed"] != ""
    assert set(runs["kind"][marked]) == {"neighbour"}, "labkit's mark is the mean of a run"
    assert not marked[runs["kind"].isin(["bursts", "memory"])].any()
    for folder in run_folders(made)[:40]:
        record = read_run(folder)
        assert "no program ran" in record.provenance.note
        content = json.loads((folder / "run.json").read_text())
        assert not {"bursts", "memory", "neighbour"} & set(json.dumps(content).replace('"', " ").split())


@pytest.mark.parametrize("count", [COUNT, 2000])
def test_few_runs_have_the_shares_of_many(count):
    kinds = planted(count)["kind"]
    by_optimizer = [(kinds[first::2] != "").mean() for first in range(2)]
    assert by_optimizer == pytest.approx([0.36, 0.09], abs=0.02)
    assert {"", "neighbour", "bursts", "memory"} == set(kinds)


def test_the_labs_query_and_detector_find_what_takes_cpu_time(made):
    sql = from_lab("52", "taken_sql")(2)
    table = query(
        f"WITH samples AS ({sql}) SELECT run, list(taken ORDER BY time_ns) AS taken FROM samples GROUP BY run", made
    )
    series = {run: np.array(taken, float) for run, taken in zip(table["run"], table["taken"], strict=True)}
    truth = planted(COUNT).set_index("run")["kind"]
    found = from_lab("52", "find")(series, 0.5, 2.0, 0.5)
    assert {truth[run] for run in found} == {"neighbour", "bursts"}
    assert len(found) == truth.isin(["neighbour", "bursts"]).sum()
    single = from_lab("52", "find")(series, 0.5, 0.5, 0.5)
    assert any(truth[run] == "" for run in single), "single samples are no proof"


def test_some_samples_are_missing_with_the_reason(made):
    samples = read_telemetry(run_folders(made)[:10])
    missing = samples[samples["value"].isna()]
    assert len(missing) and set(missing["note"]) == {"not read in time"}
    assert samples["note"].isna().sum() == samples["value"].notna().sum()


def test_a_neighbour_is_no_child_and_is_gone_after_the_block():
    before = {each.pid for each in psutil.process_iter()}
    with neighbour(2):
        here = {each.pid for each in psutil.Process().children(recursive=True)}
        loops = [
            each
            for each in psutil.process_iter(["cmdline"])
            if each.pid not in before and "sum(range(10**5))" in " ".join(each.info["cmdline"] or [])
        ]
        assert len(loops) == 2 and not here & {each.pid for each in loops}
    assert psutil.wait_procs(loops, timeout=30)[1] == []
