"""`labkit profile`: the answer, the page, the comparison, and what a profiled run does not count for."""

import json
import re
import shutil

import pytest

from labkit.cli import main
from labkit.profiling import read_profile
from labkit.runs import find_run, list_runs, read_run
from labkit.tta import curves, run_table


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """Two profiled runs of a small DLRM, the second with memory, in one folder."""
    runs = tmp_path_factory.mktemp("profiled") / "runs"
    short = ["--data", "synthetic-small", "--skip", "2", "--warmup", "1", "--steps", "3", "--runs-dir", str(runs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_CACHE", str(runs.parent / "cache"))
        assert main(["profile", "dlrm", *short]) == 0
        assert main(["profile", "dlrm", *short, "--batch-size", "256", "--memory"]) == 0
    return runs


def names(runs):
    return [folder.name for folder in sorted(runs.iterdir())]


def test_the_answer_comes_in_words_and_all_of_it_for_programs(profiled, cli):
    show = ["profile", "show", names(profiled)[0], "--runs-dir", str(profiled)]
    said = cli(*show, "--text").out
    assert said.index("A step takes") < said.index("Where the step goes") < said.index("What to try")
    answer = cli(*show, "--json").json
    assert all(row["operator"] in said for row in answer["operators"][:4])
    assert sum(row["time_us"] for row in answer["phases"]) == pytest.approx(answer["step_us"])
    assert sum(row["self_us"] for row in answer["operators"]) == pytest.approx(answer["step_us"])
    (product,) = [row for row in answer["operators"] if row["operator"] == "aten::mm"]
    assert product["gflop_per_s"] > 0 and answer["card"]["fp32_gflops"] > 0


def test_a_profiled_run_counts_for_nothing_else_and_is_not_resumed(profiled, cli):
    runs = list_runs(profiled)
    assert runs["profiled"].all() and not runs["target"].notna().any()
    assert run_table(runs["folder"]).empty and curves(runs["folder"]).empty
    record = read_run(profiled / names(profiled)[0])
    assert record.config["profile"]["tool"] == "torch" and record.result["metrics"] == {}
    assert not (profiled / names(profiled)[0] / "checkpoint" / "latest.pt").exists()
    where = ("--runs-dir", profiled)
    assert cli("runs list", *where).out.count("profiled") >= 2
    assert "2 profiled runs left out" in cli("report", profiled, "--out", profiled / "page.html", status=2).out
    assert "was profiled, so it has no checkpoint" in cli("train dlrm --resume", record.id, *where, status=2).err


def test_the_page_has_every_view_and_needs_no_network(profiled, cli):
    runs = ["--runs-dir", str(profiled), "--no-browser"]
    printed = cli("profile show", names(profiled)[1], *runs)
    page = find_run(names(profiled)[1], profiled) / "trace" / "profile.html"
    assert str(page) in printed.out.replace("\n", "")
    html = page.read_text(encoding="utf-8")
    for title in ("Phases", "Icicle", "Timeline", "Operators", "Roofline", "Memory"):
        assert f">{title}</h2>" in html
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="https?:', html)
    cli("profile show", names(profiled)[0], *runs, "--out", profiled.parent / "one.html")
    assert "profile again with --memory" in (profiled.parent / "one.html").read_text(encoding="utf-8")


def test_two_runs_are_compared_operator_by_operator(profiled, cli):
    first, second = names(profiled)
    found = cli("profile diff", first, second, "--runs-dir", profiled, "--json").json
    total = sum(row["difference_us"] for row in found["operators"])
    assert total == pytest.approx(found["difference_us"])
    said = cli("profile diff", first, second, "--runs-dir", profiled, "--top", "3").out
    assert "the step" in said and "others)" in said


def test_a_trace_file_is_shown_and_compared_without_a_run(tmp_path, cli):
    span = {"ph": "X", "pid": 1, "tid": 1}
    dims = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"]}
    product = span | {"cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 200, "args": dims}
    step = span | {"cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 1000}
    damaged = span | {"cat": "cpu_op", "name": "aten::add", "ts": 300, "dur": -1}
    for name, events in (("a", [step, product, damaged]), ("b", [product, product | {"ts": 300, "dur": 100}])):
        (tmp_path / f"{name}.json").write_text(json.dumps({"traceEvents": events}))
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    said = cli("profile show", a, "--text").text
    assert "A step takes 1 ms (recorded" in said and "not used here: 1 damaged (negative duration)" in said
    answer = cli("profile show", b, "--json").json
    assert (answer["step_us"], answer["card"], answer["unused_events"]) == (390, None, {})
    assert "it has no steps, so it is shown as one" in cli("profile show", b, "--text").text
    assert cli("profile diff", a, b, "--json").json["difference_us"] == -610
    cli("profile show", a, "--no-browser")
    page = (tmp_path / "a.profile.html").read_text(encoding="utf-8")
    assert "does not have its machine" in page and "negative duration" in page
    assert "is a folder of 2 files, and not a run: name one" in cli("profile diff", tmp_path, a, status=2).text
    assert "its steps are not those of a.json" in cli("profile show", tmp_path, status=2).text
    of_gpu = step | {"cat": "gpu_user_annotation", "pid": 0}
    for other, is_said in ((of_gpu, False), (step | {"pid": 2}, True)):
        b.write_text(json.dumps({"traceEvents": [step, product, other]}))
        assert ("has steps of 2 processes" in cli("profile show", b, "--text").text) is is_said


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("profile.json", b"{", "is damaged"),
        ("card.json", None, "profile again"),
        ("kineto.json.gz", b"\x1f\x8bnothing", "its compression is damaged"),
    ],
)
def test_a_damaged_profile_is_told(profiled, tmp_path, cli, file, content, said):
    folder = shutil.copytree(profiled / names(profiled)[0], tmp_path / "runs" / names(profiled)[0])
    (folder / "trace" / file).unlink()
    if content is not None:
        (folder / "trace" / file).write_bytes(content)
    error = cli("profile show", folder, "--text", status=2).err
    assert said in error and file in error


def test_without_shapes_nothing_is_said_of_arithmetic(tmp_path, cli):
    short = "--data synthetic-small --skip 2 --warmup 1 --steps 2"
    assert "unknown without shapes" in cli(f"profile dlrm {short} --no-shapes --runs-dir", tmp_path).text
    assert read_profile(next(tmp_path.iterdir())).operators["gflop_per_s"].isna().all()
