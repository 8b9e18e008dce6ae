"""One odd run takes nothing from the others: it becomes a note that names folder, file and reason."""

import json
import shutil
from pathlib import Path

import pytest
from made_up import write_run

from labkit.runs import run_folders
from labkit.tta import curves, run_table


def change(folder: Path, **values) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def zero_a_part(folder: Path) -> None:
    part = folder / "metrics" / "part-00001.parquet"
    part.write_bytes(part.read_bytes()[:60] + bytes(16) + part.read_bytes()[76:])


def add_a_line(folder: Path) -> None:
    (folder / "events.jsonl").write_text("5\n" + (folder / "events.jsonl").read_text())


UNREADABLE = {
    "of-another-program": lambda folder: (folder / "run.json").write_text('{"run": 5}'),
    "paused": lambda folder: change(folder, status="paused"),
    "config-as-text": lambda folder: change(folder, config="lr=0.1"),
    "huge-number": lambda folder: (folder / "run.json").write_text('{"schema_version": 1' + "0" * 5000 + "}"),
}
COPY = "metrics/part-00000 2.parquet"
IN_PART = {
    "odd-line": (add_a_line, "events.jsonl: line 1"),
    "odd-part": (zero_a_part, "part-00001.parquet: this part"),
    "copied-part": (
        lambda folder: shutil.copy(folder / "metrics" / "part-00000.parquet", folder / COPY),
        "part-00000 2.parquet: ",
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    damages = {"good": str} | UNREADABLE | {name: damage for name, (damage, _) in IN_PART.items()}
    for name, damage in damages.items():
        damage(write_run(folder, [0.6, 0.8], target=0.7).rename(folder / name))
    return folder


@pytest.mark.parametrize(
    "command", [["runs", "list", "--runs-dir"], ["energy", "--estimate", "--runs-dir"], ["report"]]
)
def test_the_others_are_shown_and_each_odd_one_is_named(runs, tmp_path, cli, command):
    page = tmp_path / "page.html"
    told = cli(*command, runs, *(["--out", page] if command == ["report"] else []))
    for name in UNREADABLE:
        assert f"left out: {runs / name}/run.json" in told.err.replace(f"{runs / name}: ", "")
    if command == ["report"]:
        html = page.read_text(encoding="utf-8")
        assert "4 runs in" in told.out and all(name in html for name in UNREADABLE)
        assert all(note in told.err and note in html for _, note in IN_PART.values())
    else:
        ids = [json.loads((runs / name / "run.json").read_text())["id"] for name in ("good", *IN_PART)]
        assert all(run in told.out for run in ids)


def test_the_frame_of_many_leaves_out_and_that_of_one_refuses(runs, cli):
    with pytest.warns(UserWarning, match="paused"):
        assert len(run_table(run_folders(runs))) == 4
    with pytest.warns(UserWarning, match="config must be an object with keys, not 'lr=0.1'"):
        assert run_table([runs / "good", runs / "config-as-text"])["run"].tolist() == ["good"]
    for name in UNREADABLE:
        assert f"{runs / name}/run.json: this" in cli("runs show", str(runs / name), status=2).err


def test_a_copy_counts_no_rows_twice_and_a_damaged_part_costs_only_itself(runs):
    with pytest.warns(UserWarning):
        table = run_table([runs / name for name in IN_PART])
        values = curves(table["folder"]).groupby("run")["value"].apply(list).to_dict()
    assert values == {"odd-line": [0.6, 0.8], "odd-part": [0.6], "copied-part": [0.6, 0.8]}
