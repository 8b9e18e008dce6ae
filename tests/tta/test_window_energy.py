"""Joules of the windows of a run, from made-up samples."""

import json

import pytest

from labkit.cli import main
from labkit.runs import TELEMETRY, Provenance, RunWriter
from labkit.runs.parts import PartWriter
from labkit.tta import window_energy, windows_by_name

S, BEGIN = 10**9, 1_700_000_000
POWER_W = {10: 30.0, 20: 90.0}
"""Until these seconds"""


@pytest.fixture
def run(tmp_path):
    """A run of 20 s on two CPU packages: 30 W, then 90 W, by a sample a second; of `windows`, by name, in seconds."""

    def make(windows, *, values=None):
        writer = RunWriter.create(
            tmp_path, "t", config={}, budget={"torch_name": "cpu"}, tier=None, devices=[{"torch_name": "cpu"}], seed=0,
            provenance=Provenance.now("measured"), software={},
        )  # fmt: skip
        samples = PartWriter(writer.folder / "telemetry", TELEMETRY)
        values = values or {at: (30.0 * at + 60.0 * max(0, at - 10)) / 2 for at in range(21)}
        for package, (second, value) in ((package, each) for package in (0, 1) for each in values.items()):
            row = {"time_ns": (BEGIN + second) * S, "device": "host", "scope": "host", "pid": 1, "unit": "J"}
            row |= {"counter": f"cpu_energy_intel-rapl:{package}", "value": value, "source": "RAPL", "note": None}
            samples.append(row if value is not None else row | {"counter": "cpu_energy", "note": "no counter here"})
        samples.flush()
        for name, spans in windows.items():
            begin_ns, end_ns = ([round((BEGIN + moment) * S) for moment in ends] for ends in zip(*spans, strict=True))
            writer.event("windows", name=name, begin_ns=begin_ns, end_ns=end_ns)
        writer.finish("done", {"samples": 100})
        return writer.folder

    return make


def test_joules_are_interpolated_between_the_samples_and_nested_windows_count_in_both(run):
    folder = run({"epoch/forward": [(1.5, 4.0), (9.5, 12.25)], "epoch": [(1.5, 12.25)]})
    windows = window_energy(folder)
    assert list(windows["name"]) == ["epoch", "epoch/forward", "epoch/forward"]
    assert list(windows["seconds"]) == list(windows["covered_s"]) == pytest.approx([10.75, 2.5, 2.75])
    assert list(windows["energy_j"]) == pytest.approx([8.5 * 30 + 2.25 * 90, 2.5 * 30, 0.5 * 30 + 2.25 * 90])
    assert set(windows["note"]) == {""}
    sums = windows_by_name(windows).set_index("name")
    assert list(sums["count"]) == [1, 2]
    assert sums.loc["epoch/forward", "average_power_w"] == pytest.approx((75 + 217.5) / 5.25)


def test_short_windows_say_so_and_add_up(run):
    """A thousand of 10 ms each have the energy of their ten seconds."""
    sums = windows_by_name(window_energy(run({"step": [(at / 100, (at + 1) / 100) for at in range(1000)]})))
    (step,) = sums.to_dict("records")
    assert (step["count"], step["seconds"], step["energy_j"]) == (1000, pytest.approx(10), pytest.approx(300))
    assert "too short for samples every 1 s" in step["note"]


def test_what_no_sample_covers_is_left_out_and_told(run):
    folder = run({"outside": [(30, 40)], "half": [(15, 25)], "all": [(10, 20)]})
    sums = windows_by_name(window_energy(folder)).set_index("name")
    assert sums.loc["half", "energy_j"] == pytest.approx(5 * 90)
    assert sums.loc["half", "average_power_w"] == pytest.approx(90)
    assert sums.loc["half", "note"] == "samples cover 50% of its time"
    assert sums.loc["all", "note"] == "" and sums["energy_j"].isna().to_dict()["outside"]
    # a counter that begins anew within the window
    folder = run({"w": [(0, 20)]}, values={at: 100.0 * (at - 10 * (at >= 10)) for at in range(21)})
    (row,) = windows_by_name(window_energy(folder)).to_dict("records")
    assert row["energy_j"] == pytest.approx(2 * 1900) and row["note"] == "samples cover 95% of its time"


def test_without_a_counter_each_window_says_why_and_a_prediction_is_named_so(run, capsys):
    folder = run({"w": [(0, 5)]}, values={at: None for at in range(21)})
    (row,) = window_energy(folder).to_dict("records")
    assert row["energy_j"] != row["energy_j"] and "no counter here" in row["note"]
    assert main(["energy", str(folder), "--json"]) == 0
    (account,) = json.loads(capsys.readouterr().out)
    assert account["windows"][0]["energy_j"] is None and account["windows"][0]["seconds"] == 5
    assert "not measured" in window_energy(folder, assumed_power_w=20)["note"][0]


def test_the_command_shows_the_windows_of_a_run(run, capsys):
    assert main(["energy", str(run({"forward": [(0, 10), (10, 12)]}))]) == 0
    row = next(line.split() for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["forward"])
    assert row == ["forward", "2", "12", "480", "40"]
    assert main(["energy", str(run({}))]) == 0
    assert "windows" not in capsys.readouterr().out
