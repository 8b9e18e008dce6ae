"""What the live page holds of runs that grow, end, resume, are damaged or deleted; and the down-sampling of curves."""

import base64
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_up import new_run, write_run, write_samples

from labkit import UserError
from labkit.hardware import get_tier
from labkit.live.answers import Asked, compare, curves, facts, frames, table_rows
from labkit.live.board import Board
from labkit.live.curves import HIGH, LOW, MEAN, MOST_STRETCHES, Curve, smoothed, within
from labkit.live.machine import Machines
from labkit.live.sections import Sections
from labkit.runs import METRICS, notes_kept, part_path, read_metrics, read_part, write_part
from labkit.runs.parts import groups_within


def unpacked(array):
    return np.frombuffer(base64.b64decode(array["bdata"]), array["dtype"])


def rows_of(values):
    """Rows of a curve: step, wall, train, samples, value."""
    step = np.arange(1.0, len(values) + 1)
    return np.stack([step, 2 * step, step, 100 * step, np.asarray(values, float)], axis=1)


@pytest.fixture
def looked(tmp_path):
    """A board of this test's folder, which has looked until nothing was unread."""

    def look(board=None):
        board = board or Board([tmp_path])
        while True:
            board.look()
            if not board.unread:
                return board

    return look


@pytest.mark.parametrize("piece", [1, 7, 1000, 100_000])
def test_a_long_curve_keeps_its_extremes_and_means_in_bounded_memory_however_it_comes(piece):
    values = np.random.default_rng(0).normal(size=20_000 if piece > 1 else 3_000)
    values[1234], values[77] = 50.0, -40.0
    curve, rows = Curve(5), rows_of(values)
    for start in range(0, len(rows), piece):
        curve.append(rows[start : start + piece])
    held = curve.stretches
    assert len(held) <= MOST_STRETCHES + 1 and curve.count == len(values)
    assert held[:, LOW, -1].min() == -40 and held[:, HIGH, -1].max() == 50
    spike = held[held[:, HIGH, -1] == 50, HIGH]
    assert spike.tolist() == [rows[1234].tolist()], "an extreme stays in its place on every axis"
    whole = held[: len(values) // curve.size]
    np.testing.assert_allclose(
        whole[:, MEAN, -1], values[: len(whole) * curve.size].reshape(len(whole), -1).mean(1), atol=1e-12
    )
    few = curve.rows(100)
    assert len(few) <= 102 and few[:, -1].max() == 50 and (np.diff(few[:, 0]) >= 0).all()


def test_of_a_short_curve_every_row_is_there_and_what_is_no_number_is_a_mark_of_its_own():
    curve = Curve(5)
    curve.append(rows_of([1.0, np.nan, 3.0, np.inf, -np.inf, 2.0]))
    assert curve.rows()[:, -1].tolist() == [1.0, 3.0, 2.0]
    assert curve.odd[:, 0].tolist() == [2, 4, 5] and curve.odd_count == 3
    assert within(curve.stretches, 0, 2.5, 3.5)[:, MEAN, 0].tolist() == [1, 3, 6], "and one more at each side"


def test_smoothing_goes_by_rows_whatever_the_stretches():
    values = np.repeat([0.0, 1.0], 4000)
    long, short = Curve(5), Curve(5)
    long.append(rows_of(values))
    short.append(rows_of(values[::8]))
    assert long.size == 8 and short.size == 1
    by_row = smoothed(long.stretches, 0.999, long.size)
    assert by_row[-1] == pytest.approx(smoothed(short.stretches, 0.999**8, 1)[-1], abs=1e-9)
    assert by_row[-1] == pytest.approx((1 - 0.999**4000) / (1 - 0.999**8000), abs=1e-6)


def test_each_part_is_read_once_and_new_points_are_there(tmp_path, looked, monkeypatch):
    read = []
    monkeypatch.setattr(
        "labkit.runs.parts.read_part", lambda *given, **more: read.append(given[0]) or read_part(*given, **more)
    )
    run = new_run(tmp_path, "growing", config={"job": "own", "train": {"target_metric": "auc", "target": 0.8}})
    at = {"samples": 10, "name": "auc"}
    run.metric(step=1, wall_s=1.0, train_s=1.0, value=0.5, **at)
    run.flush()
    board = looked()
    version = board.since(-1)["version"]
    assert [row["status"] for row in board.since(-1)["rows"]] == ["running"]
    run.metric(step=2, wall_s=2.0, train_s=2.0, value=0.6, **at)
    run.flush()
    looked(board)
    (row,) = board.since(version)["rows"]
    assert (row["value"], row["points"], row["wall_s"]) == (0.6, 2, 2.0)
    assert board.since(row["version"] + 10**6)["rows"] == []
    looked(board)
    assert len(read) == len(set(read)) == 2
    run.finish("done", {})
    looked(board)
    assert board.since(version)["rows"][0]["status"] == "done"
    shutil.rmtree(run.folder)
    looked(board)
    assert board.since(version)["gone"] == [run.folder.name] and not board.feeds


def test_what_a_resume_took_back_is_not_shown(tmp_path, looked):
    run = new_run(tmp_path, "resumed")
    for step in range(1, 11):
        run.metric(step=step, wall_s=step, train_s=step, samples=step, name="loss", value=step)
        run.flush()
    board = looked()
    assert board.feeds[run.folder.name].curves["loss"].count == 10
    run.event("resumed", step=4, parts=10)
    run.metric(step=5, wall_s=5, train_s=5, samples=5, name="loss", value=50.0)
    run.flush()
    looked(board)
    shown = board.feeds[run.folder.name].curves["loss"].rows()[:, -1].tolist()
    assert shown == read_metrics([run.folder])["value"].tolist() == [1, 2, 3, 4, 50]


def test_what_cannot_be_read_is_noted_and_everything_else_is_shown(tmp_path, looked):
    good, damaged, newer = (write_run(tmp_path, [0.6, 0.7], seed=seed) for seed in range(3))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text('{"name": "of another program"}')
    record = json.loads((newer / "run.json").read_text())
    (newer / "run.json").write_text(json.dumps(record | {"schema_version": 99}))
    part = min((damaged / "metrics").iterdir())
    part.write_bytes(part.read_bytes()[:-30])
    (damaged / "events.jsonl").write_bytes(b"\xff{\n" + (damaged / "events.jsonl").read_bytes())
    board = looked()
    assert set(board.feeds) == {good.name, damaged.name}
    notes = " ".join(board.notes)
    for each in ("other", newer.name, part.name, "upgrade labkit", "not an event"):
        assert each in notes
    before = list(board.notes)
    looked(board)
    assert board.notes == before, "each once"


def test_a_long_text_is_cut_and_stays_text(tmp_path, looked):
    record = write_run(tmp_path, [0.6], seed=0, words="long") / "run.json"
    record.write_text(record.read_text().replace("long", "x" * 10**7))
    write_run(tmp_path, [0.7], seed=1, words="<script>")
    board = looked()
    assert len(json.dumps(board.since(-1))) < 20_000
    assert {len(text) < 400 for text in board.varying["words"].values()} == {True}


def test_groups_are_seeds_and_their_band_is_the_range_or_the_interval_of_the_mean(tmp_path, looked):
    names = [
        write_run(tmp_path, [0.5 + 0.01 * seed, 0.7], seed=seed, lr=lr).name for lr in (0.1, 0.2) for seed in range(5)
    ]
    board = looked()
    assert len({row["group"] for row in board.since(-1)["rows"]}) == 2
    assert list(board.varying) == ["lr"] and board.varying["lr"][names[0]] == "0.1" and board.same["job"] == "dlrm"
    answer = curves(board, Asked("auc", [names[:5], names[5:8]], singles=True))
    five, three = answer["groups"]
    assert (five["kind"], three["kind"]) == ("95 % interval of the mean of 5 runs", "range of 3 runs")
    assert unpacked(five["y"])[0] == pytest.approx(0.52) and unpacked(three["low"])[0] == pytest.approx(0.5)
    # Student's t of 4 degrees of freedom, 2.776, times the error of 0.50 … 0.54
    assert unpacked(five["high"])[0] == pytest.approx(
        0.52 + 2.776 * np.std(np.arange(5) / 100, ddof=1) / 5**0.5, abs=1e-4
    )
    assert [each["run"] for each in five["curves"]] == names[:5] and answer["exact"]
    assert five["range"]["low"] == 0.5 and five["range"]["last"] == pytest.approx(0.7)


def test_groups_that_the_page_has_are_not_sent_again_until_a_run_of_them_grows(tmp_path, looked):
    own, other = (new_run(tmp_path, name) for name in ("own", "other"))
    for step, run in ((1, own), (1, other), (2, own)):
        run.metric(step=step, wall_s=step, train_s=step, samples=step, name="loss", value=1.0)
        run.flush()
    board, names = looked(), [[own.folder.name], [other.folder.name]]
    first = curves(board, Asked("loss", names))
    tags = [group["tag"] for group in first["groups"]]
    again = curves(board, Asked("loss", names, known=tags))
    assert again["groups"] == [{"tag": tag} for tag in tags] and again["exact"] == first["exact"]
    assert "x" in curves(board, Asked("loss", names, smooth=0.5, known=tags))["groups"][0], "another question"
    own.metric(step=3, wall_s=3, train_s=3, samples=3, name="loss", value=2.0)
    own.flush()
    looked(board)
    grown, same = curves(board, Asked("loss", names, known=tags))["groups"]
    assert unpacked(grown["y"]).tolist() == [1.0, 1.0, 2.0] and same == {"tag": tags[1]}


def test_a_close_look_reads_the_rows_from_disk(tmp_path, looked):
    run, step = new_run(tmp_path, "long"), 0
    for _ in range(4):
        for _ in range(2000):
            step += 1
            run.metric(step=step, wall_s=step, train_s=step, samples=step, name="loss", value=step % 10)
        run.flush()
    board = looked()
    far, near = (curves(board, Asked("loss", [[run.folder.name]], "step", start=start, end=end))
                 for start, end in ((None, None), (4100, 4200)))  # fmt: skip
    assert not far["exact"] and near["exact"]
    assert unpacked(near["groups"][0]["curves"][0]["x"]).tolist() == list(range(4100, 4201))


def test_of_a_long_part_only_the_rows_near_the_steps_are_read(tmp_path):
    step = np.arange(40_000)
    table = pa.table([step, step / 1, step / 1, step, ["loss"] * len(step), step / 1], schema=METRICS)
    (tmp_path / "metrics").mkdir()
    write_part(table, path := part_path(tmp_path / "metrics", 0))
    assert read_metrics([tmp_path], steps=(20_000, 20_009))["step"].tolist() == [*range(20_000, 20_010)]
    assert groups_within(pq.read_metadata(path), "step", 20_000, 20_009) == [1]
    assert read_metrics([tmp_path], steps=(50_000, 60_000)).empty
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1  # within the first rows
    path.write_bytes(damaged)
    assert len(read_metrics([tmp_path], steps=(20_000, 20_009))) == 10, "of which nothing was read"
    with notes_kept() as notes:
        assert read_metrics([tmp_path]).empty
    assert "damaged" in notes[0]


def test_two_groups_are_compared_by_pairs_of_seeds_and_the_sections_are_those_of_the_report(tmp_path, looked):
    slow, fast = (
        [write_run(tmp_path, [0.5] * (late + seed) + [0.8], seed=seed, lr=late).name for seed in range(3)]
        for late in (8, 2)
    )
    board = looked()
    answer = compare(board, fast, slow, None)
    assert answer["target"] == 0.78 and "A reaches the target" in answer["finding"] and "3 seeds" in answer["finding"]
    assert "3 pairs of seeds" in answer["best"]
    with pytest.raises(UserError, match="in common"):
        compare(board, fast, fast, None)
    sections = Sections(board)
    (section,) = sections.answer(fast + slow)
    assert "lr 2" in section["html"] and section["payload"]["grid"][section["payload"]["start"]] == 0.78
    assert len(frames(board, fast, 1000).curves) == sum(3 + seed for seed in range(3))
    assert sections.answer([]) == []
    lines = "".join(table_rows(board, fast[:1], "auc")).splitlines()
    assert len(lines) == 1 + 3 and lines[1].startswith(fast[0])


def test_telemetry_lies_on_the_clock_of_the_run_with_its_evaluations(tmp_path, looked):
    run = new_run(tmp_path, "sampled")
    began_s = 1_000_000_000
    when = lambda second: f"2001-09-09T01:46:{40 + second:02d}.000+00:00"  # noqa: E731 - 10^9 s since 1970 and later
    write_samples(
        run.folder, "cpu", "cpu_percent", {second: 10.0 * second for second in range(8)}, unit="%", begin_s=began_s
    )
    events = [{"event": "began", "time": when(2), "clock_s": 0.0}]
    events += [{"event": "evaluated", "time": when(6), "wall_s": 4.0, "train_s": 3.0, "metrics": {}}]
    with (run.folder / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    board = looked()
    machines = Machines(board)
    (counter,) = machines.answer(run.folder.name, "", Asked("", []))["counters"]
    answer = machines.answer(run.folder.name, counter, Asked("", []))
    assert unpacked(answer["x"]).tolist() == list(range(-2, 6)) and unpacked(answer["y"])[-1] == 70
    assert answer["spans"] == [{"kind": "evaluation", "from": 3.0, "to": 4.0}]
    assert "evaluated" in facts(board, run.folder.name)["events"][-1]
    with pytest.raises(UserError, match="may have been deleted"):
        machines.answer("no-run", "", Asked("", []))


def test_joules_and_dollars_are_axes_that_say_where_they_are_from(tmp_path, looked):
    when = lambda second: f"2001-09-09T01:46:{40 + second:02d}.000+00:00"  # noqa: E731 - 10^9 s since 1970 and later
    for name, tier in (("counted", "cloud-cpu-2"), ("assumed", "a40"), ("neither", None)):
        run = new_run(tmp_path, name, tier=tier)
        events = [{"event": "began", "time": when(0), "clock_s": 0.0}]
        for second in (4, 8):
            at = {"step": second, "wall_s": float(second), "train_s": float(second), "samples": second}
            run.metric(name="auc", value=np.inf if second == 4 else 0.8, **at)
            run.metric(name="loss", value=1 / second, **at)
            events.append({"event": "evaluated", "time": when(second), "metrics": {}, **at})
        with (run.folder / "events.jsonl").open("w") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)
        if name == "counted":
            joules = {second: 10.0 * second if second < 5 else 40 + 50.0 * (second - 4) for second in range(9)}
            write_samples(run.folder, "host", "cpu_energy_0", joules, begin_s=1_000_000_000)
        run.finish("done", {})
    board = looked()
    names = sorted(board.feeds, key=lambda each: ["counted", "assumed", "neither"].index(each.split("-")[2]))
    answer = curves(board, Asked("loss", [[name] for name in names], "energy_j"))
    counted, assumed, neither = (unpacked(own["x"]).tolist() for own in answer["groups"])
    assert counted == pytest.approx([40, 240], abs=2), "by the counter"
    watts = get_tier("a40").figure("power_w").value
    assert assumed == pytest.approx([4 * watts, 8 * watts], rel=0.01) and neither == []
    assert answer["spent"][0] == "1 run measured: RAPL" and "predicted" in answer["spent"][1]
    assert answer["spent"][2].startswith("1 run not drawn") and len(answer["spent"]) == 3
    dollars = curves(board, Asked("auc", [[name] for name in names], "cost_usd"))
    price = get_tier("a40").rental_price_usd_per_h
    assert unpacked(dollars["groups"][1]["x"]).tolist() == pytest.approx([8 * price / 3600])
    assert dollars["groups"][1]["odd"]["+∞"] == pytest.approx([4 * price / 3600])
    assert "predicted from measured time" in dollars["spent"][0]
    machines = Machines(board)
    (counter,) = machines.answer(names[0], "", Asked("", []))["counters"]
    under = machines.answer(names[0], counter, Asked("", [], "energy_j"))
    assert unpacked(under["x"])[-1] == pytest.approx(240, abs=2)


@pytest.mark.parametrize("wrong", [{"x": "joules"}, {"smooth": 1.0}, {"width": 0}])
def test_a_wrong_question_names_its_field(wrong):
    with pytest.raises(UserError) as error:
        Asked("auc", [], **wrong)
    assert error.value.field == next(iter(wrong))
