"""What runs cost in energy: accounts of runs, and of windows in them."""

import math
import time
from collections import Counter
from pathlib import Path

import pytest
from made_up import new_run, write_samples

from labkit import runs, telemetry
from labkit.runs import read_run
from labkit.tta import cost_usd, energy_account, window_energy, windows_by_name

S, BEGIN = 10**9, 1_700_000_000


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of ten seconds at 30 W on a CPU: 1000 samples, the target reached after four seconds."""

    def make(*, rapl: bool = True, tier: str | None = None):
        now = [BEGIN]
        when = lambda: time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(now[0]))  # noqa: E731
        monkeypatch.setattr("labkit.runs.writer.timestamp", when)
        writer = new_run(tmp_path, tier=tier, devices=[{"torch_name": "cpu"}])
        begin = now[0]
        joules = {second: 30.0 * second for second in range(11)}
        counter, values, note = "cpu_energy_intel-rapl:0", joules, "wraps at 1000 J"
        if not rapl:
            counter, values, note = "cpu_energy", dict.fromkeys(joules), "no RAPL energy counter on this machine"
        write_samples(writer.folder, "host", counter, values, note=note, begin_s=begin)
        now[0] = begin + 4
        writer.event("evaluated", metric="auc", value=0.8, samples=400)
        writer.event("target_reached", kind="first", samples=400)
        now[0] = begin + 10
        writer.event("ended", status="done")
        writer.finish("done", {"samples": 1000})
        return writer.folder

    return make


def test_measured_energy_in_every_unit_and_no_prediction_stands_in_for_it(run):
    folder = run(tier="raspberry-pi-5")
    account = energy_account(folder, grid_g_per_kwh=360)
    assert (account.kind, account.source) == ("measured", "RAPL")
    assert (account.energy_j, account.average_power_w) == (300, 30)
    assert (account.energy_per_sample_j, account.energy_to_target_j) == pytest.approx((0.3, 120))
    assert account.carbon_g == pytest.approx(300 / 3.6e6 * 360)
    assert energy_account(folder, estimate=True, assumed_power_w=500).energy_j == 300


def test_without_counters_there_is_no_number_unless_a_prediction_is_asked_for(run):
    folder = run(rapl=False, tier="raspberry-pi-5")
    unknown = energy_account(folder, grid_g_per_kwh=360)
    assert (unknown.energy_j, unknown.carbon_g) == (None, None)
    assert "no RAPL" in unknown.note
    predicted = energy_account(folder, estimate=True)
    assert (predicted.kind, predicted.energy_j) == ("predicted", 120)
    assert predicted.energy_to_target_j == pytest.approx(48)
    assert "12 W, the power limit of tier raspberry-pi-5" in predicted.source
    assert "not measured" in predicted.note and "no RAPL" in predicted.note
    assert energy_account(folder, assumed_power_w=5).energy_j == 50
    for tier, why in ((None, "in no tier"), ("cloud-cpu-2", "power of tier cloud-cpu-2")):
        account = energy_account(run(rapl=False, tier=tier), estimate=True)
        assert account.energy_j is None and why in account.note and "--power" in account.note


def test_the_command_prints_what_each_number_is(run, cli):
    folder = run(rapl=False)
    out = cli("energy", folder, "--power", "20", "--grid", "100").out
    assert "predicted" in out and "200" in out and "20 W, as given" in out and "g CO2e" in out
    run(rapl=False)
    out = cli("energy --power 20 --runs-dir", folder.parent).out
    assert out.count("20 W, as given") == 1 and "all runs: 20 W" in out
    (account,) = cli("energy", folder, "--json").json
    assert account["run"] == read_run(folder).id and account["energy_j"] is None


@pytest.fixture
def windowed(tmp_path):
    """A run of 20 s on two CPU packages: 30 W, then 90 W, by a sample a second; of `windows`, by name, in seconds."""

    def make(windows, *, values=None):
        writer = new_run(tmp_path, devices=[{"torch_name": "cpu"}])
        values = values or {at: (30.0 * at + 60.0 * max(0, at - 10)) / 2 for at in range(21)}
        unknown = values[0] is None
        for counter in ("cpu_energy_intel-rapl:0", "cpu_energy_intel-rapl:1"):
            told = ("cpu_energy", "no counter here") if unknown else (counter, None)
            write_samples(writer.folder, "host", told[0], values, note=told[1], begin_s=BEGIN)
        for name, spans in windows.items():
            begin_ns, end_ns = ([round((BEGIN + moment) * S) for moment in ends] for ends in zip(*spans, strict=True))
            writer.event("windows", name=name, begin_ns=begin_ns, end_ns=end_ns)
        writer.finish("done", {"samples": 100})
        return writer.folder

    return make


def test_joules_are_interpolated_between_the_samples_and_nested_windows_count_in_both(windowed):
    folder = windowed({"epoch/forward": [(1.5, 4.0), (9.5, 12.25)], "epoch": [(1.5, 12.25)]})
    windows = window_energy(folder)
    assert list(windows["name"]) == ["epoch", "epoch/forward", "epoch/forward"]
    assert list(windows["seconds"]) == list(windows["covered_s"]) == pytest.approx([10.75, 2.5, 2.75])
    assert list(windows["energy_j"]) == pytest.approx([8.5 * 30 + 2.25 * 90, 2.5 * 30, 0.5 * 30 + 2.25 * 90])
    assert set(windows["note"]) == {""}
    sums = windows_by_name(windows).set_index("name")
    assert list(sums["count"]) == [1, 2]
    assert sums.loc["epoch/forward", "average_power_w"] == pytest.approx((75 + 217.5) / 5.25)


def test_short_windows_say_so_and_add_up(windowed):
    """A thousand of 10 ms each have the energy of their ten seconds."""
    sums = windows_by_name(window_energy(windowed({"step": [(at / 100, (at + 1) / 100) for at in range(1000)]})))
    (step,) = sums.to_dict("records")
    assert (step["count"], step["seconds"], step["energy_j"]) == (1000, pytest.approx(10), pytest.approx(300))
    assert "too short for samples every 1 s" in step["note"]


def test_what_no_sample_covers_is_left_out_and_told(windowed):
    folder = windowed({"outside": [(30, 40)], "half": [(15, 25)], "all": [(10, 20)]})
    sums = windows_by_name(window_energy(folder)).set_index("name")
    assert sums.loc["half", "energy_j"] == pytest.approx(5 * 90)
    assert sums.loc["half", "average_power_w"] == pytest.approx(90)
    assert sums.loc["half", "note"] == "samples cover 50% of its time"
    assert sums.loc["all", "note"] == "" and sums["energy_j"].isna().to_dict()["outside"]
    # a counter that begins anew within the window
    folder = windowed({"w": [(0, 20)]}, values={at: 100.0 * (at - 10 * (at >= 10)) for at in range(21)})
    (row,) = windows_by_name(window_energy(folder)).to_dict("records")
    assert row["energy_j"] == pytest.approx(2 * 1900) and row["note"] == "samples cover 95% of its time"


def test_without_a_counter_each_window_says_why_and_a_prediction_is_named_so(windowed, cli):
    folder = windowed({"w": [(0, 5)]}, values={at: None for at in range(21)})
    (row,) = window_energy(folder).to_dict("records")
    assert row["energy_j"] != row["energy_j"] and "no counter here" in row["note"]
    (account,) = cli("energy", folder, "--json").json
    assert account["windows"][0]["energy_j"] is None and account["windows"][0]["seconds"] == 5
    assert "not measured" in window_energy(folder, assumed_power_w=20)["note"][0]


def test_the_command_shows_the_windows_of_a_run(windowed, cli):
    printed = cli("energy", windowed({"forward": [(0, 10), (10, 12)]})).out
    row = next(line.split() for line in printed.splitlines() if line.split()[:1] == ["forward"])
    assert row == ["forward", "2", "12", "480", "40"]
    assert "windows" not in cli("energy", windowed({})).out


@pytest.mark.parametrize("count", [2, 6])
def test_of_many_runs_each_file_is_read_once_and_of_samples_what_energy_needs(tmp_path, monkeypatch, cli, count):
    read = Counter()

    def counts(owner, name, of):
        plain = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, **more: (read.update([of(*given)]), plain(*given, **more))[1])

    for number in range(count):
        writer = new_run(tmp_path, f"job-{number}", devices=[{"torch_name": "cpu"}])
        for counter in ("cpu_energy_intel-rapl:0", "cpu_percent"):
            write_samples(writer.folder, "host", counter, {second: 5.0 * second for second in range(3)})
        writer.event("windows", name="w", begin_ns=[0], end_ns=[S])
        writer.finish("done", {"samples": 10})
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    counts(Path, "open", lambda path, *mode: path.name)
    counts(runs, "read_part", lambda part, schema, columns: ("a part", "source" in columns or "pid" in columns))
    counts(telemetry, "run_energy", lambda run: frozenset(counter for *_, counter in run._series))
    told = cli("energy --json --runs-dir", tmp_path)
    assert [account["energy_j"] for account in told.json] == [10.0] * count and "left out" in told.err
    assert read.pop(frozenset({"cpu_energy_intel-rapl:0"})) == 2 * count, "for the run and for its windows"
    assert read == {"run.json": count + 1, "events.jsonl": count + 1, ("a part", False): 2 * count}


@pytest.mark.parametrize("time_s", [math.inf, math.nan])
def test_a_target_that_was_not_reached_has_no_cost(time_s):
    cost = cost_usd(time_s, "cloud-cpu-1")
    assert (cost.value_usd, cost.note) == (None, "the target was not reached")
