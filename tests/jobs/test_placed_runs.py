"""Runs of the DLRM job whose tables are elsewhere: resumed, tested, and refused where a flag makes no sense."""

from pathlib import Path

import pytest
import torch

from labkit.runs import read_events, read_metrics, read_run
from labkit.tracking import Notice, Progress, StopRequest, load_checkpoint

SETTINGS = {"optimiser": "rowwise-adagrad", "lr": 0.01, "max_epochs": 2}
PLACES = {
    "cached": {"placement": "cached", "cache_rows": "30%"},
    "disk": {"placement": "disk", "memory_cap": "1MiB"},
    "remote": {"placement": "remote"},
}
_unbroken: list[dict[int, float]] = []


def losses(answer) -> dict[int, float]:
    rows = read_metrics([answer["folder"]]).query("name == 'loss'")
    return dict(zip(rows["step"], rows["value"], strict=True))


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_resumed_run_ends_with_the_losses_of_one_in_memory(train, place):
    if not _unbroken:
        _unbroken.append(losses(train("dlrm", placement="host", **SETTINGS)))
    stop, told = StopRequest(), []

    def hear(event):
        told.append(event)
        if isinstance(event, Progress) and event.point.step >= 7:
            stop.request("the test")

    broken = train("dlrm", hear, stop, **SETTINGS, **place)
    assert broken["status"] == "stopped" and 7 <= len(losses(broken)) < len(_unbroken[0])
    again = train("dlrm", resume=broken["folder"], **SETTINGS, **place)
    assert losses(again) == _unbroken[0]
    said = [event.text for event in told if isinstance(event, Notice)]
    assert any("the last weights will be tested" in text for text in said) is (place["placement"] != "cached")
    tested = next(event for event in read_events(again["folder"]) if event["event"] == "tested")
    if place["placement"] != "cached":
        assert tested["best_step"] == max(losses(again))  # what was tested are the last weights
    metrics = set(read_metrics([again["folder"]])["name"])
    assert {"placement_waited_s", "placement_read_bytes"} <= metrics
    assert ("placement_hit_rate" in metrics) is (place["placement"] == "cached")
    assert read_run(again["folder"]).config["train"]["placement"] == place["placement"]


def test_a_checkpoint_of_cached_tables_has_the_weights_of_one_on_the_device(train):
    kept = []
    for placement in ("device", "cached"):
        answer = train("dlrm", placement=placement, **SETTINGS | {"max_epochs": 1})
        kept.append(
            load_checkpoint(Path(answer["folder"], "checkpoint", "latest.pt"))["kept"]["model"]["tables.weight"]
        )
    # gradients of equal rows are summed in another order, in the 5 or so steps of an epoch
    torch.testing.assert_close(kept[0], kept[1], rtol=1e-3, atol=1e-5)
