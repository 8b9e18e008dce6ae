import json
import time

import pytest

from labkit.cli import main
from labkit.runs import TELEMETRY, Provenance, RunWriter, read_run
from labkit.runs.parts import PartWriter
from labkit.tta import energy_account

S = 10**9


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of ten seconds at 30 W on a CPU: 1000 samples, the target reached after four seconds."""

    def make(*, rapl: bool = True, tier: str | None = None):
        now = [1_700_000_000]
        when = lambda: time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(now[0]))  # noqa: E731
        monkeypatch.setattr("labkit.runs.writer.timestamp", when)
        writer = RunWriter.create(
            tmp_path, "t", config={}, budget={"torch_name": "cpu"}, tier=tier, devices=[{"torch_name": "cpu"}], seed=0,
            provenance=Provenance.now("measured"), software={},
        )  # fmt: skip
        begin = now[0]
        samples = PartWriter(writer.folder / "telemetry", TELEMETRY)
        for second in range(11):
            row = {"time_ns": (begin + second) * S, "device": "host", "scope": "host", "pid": 1, "unit": "J"}
            if rapl:
                row |= {"counter": "cpu_energy_intel-rapl:0", "value": 30.0 * second, "note": "wraps at 1000 J"}
            else:
                row |= {"counter": "cpu_energy", "value": None, "note": "no RAPL energy counter on this machine"}
            samples.append(row | {"source": "RAPL"})
        samples.flush()
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


def test_the_command_prints_what_each_number_is(run, capsys):
    folder = run(rapl=False)
    assert main(["energy", str(folder), "--power", "20", "--grid", "100"]) == 0
    out = capsys.readouterr().out
    assert "predicted" in out and "200" in out and "20 W, as given" in out
    assert main(["energy", str(folder), "--json"]) == 0
    (account,) = json.loads(capsys.readouterr().out)
    assert account["run"] == read_run(folder).id and account["energy_j"] is None
