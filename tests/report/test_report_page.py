"""The page from frames: its text and its data; test_report_in_browser.py has what its script does."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from made_up import arriving, made_up, together

from labkit.cli.console import Console, print_frame
from labkit.errors import UserError
from labkit.report.page import build_page, target_grid
from labkit.report.summary_text import headline, notes, summary_cells, target_cells, terminal_frames
from labkit.tracking import METRICS, crossing
from labkit.tta import summary

INF = np.inf
SLOW = [1.6, 1.7, 1.7]


def two_budgets(fast=(3.0, 3.0), slow=(4.8, 4.8), **of_slow):
    return together(arriving(fast), arriving(slow, budget="one-core", **of_slow))


def says(runs):
    return headline(summary(*runs))


def jobs_of(html):
    return json.loads(re.search(r'id="report-data">(.*?)</script>', html, re.DOTALL).group(1))["jobs"]


def test_the_headline_says_how_much_sooner_only_of_three_seeds_whose_interval_excludes_one():
    assert says(two_budgets()) == (
        "DLRM reached AUC 0.7 in 3.0 s (median of 2 runs) on all cores and 4.8 s on one core: how much sooner is not "
        "claimed, which takes three seeds of each that all reach it."
    )
    fast = [1.0, 1.1, 1.05]
    assert says(two_budgets(fast, SLOW)).endswith("on one core: 1.6× sooner (95 % CI 1.50 – 1.69×, 3 seeds).")
    unsure = says(two_budgets(fast, [0.9, 1.7, 1.1]))
    assert "no difference that could not be chance (95 % CI" in unsure and "sooner" not in unsure
    assert "not claimed" in says(two_budgets([*fast, INF], SLOW))
    curves, runs = two_budgets(fast, SLOW)
    runs.loc[1, "disturbed"] = "other programs took 40% of its cores"
    disturbed = headline(summary(curves, runs))
    assert disturbed.endswith("how much sooner is not claimed, because other programs disturbed these runs.")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (two_budgets(slow=[INF]), "on all cores; not by half of the runs on one core."),
        (arriving([INF, INF]), "DLRM did not reach AUC 0.7: 0 of 2 runs got there."),
        (arriving([3.0, INF]), "DLRM reached AUC 0.7 in half of its runs or fewer: 1 of 2 runs got there."),
        (arriving([10, 11, 12, -15, -15, -15, -15]), "was cut off too often to say how long AUC 0.7 takes: 3 of 7"),
        (arriving([1.0], target=np.nan), "(a value that its runs share; none was trained to it)"),
    ],
)
def test_the_headline_says_who_did_not_reach_the_target_and_when_nobody_set_it(runs, said):
    assert said in says(runs)
    assert ("cut off" in said) == (target_cells(summary(*runs).iloc[0])[1].value == "not known")


def test_what_differs_in_two_things_at_once_is_said_and_each_reason_once():
    one = {"budget": "all-cores", "batch_size": 64, "precision": "fp32"}
    single = one | {"batch_size": 512}
    fast = arriving([1.0, 1.1, 1.05], settings=one)
    table = summary(*together(fast, arriving(SLOW, budget="big", settings=single | {"precision": "bf16"})))
    (line,) = (line for line in notes(table) if "differs" in line)
    assert line.startswith("DLRM, big differs from the fastest, all-cores, in batch_size and precision: which of")
    assert "3 seeds; they differ in batch_size and precision)" in headline(table)
    lines = notes(summary(*together(fast, arriving(SLOW, budget="b", settings=single))))
    assert not any("differs" in line for line in lines)
    assert lines[0] == "Energy: no counter here." and sum("no tier" in line for line in lines) == 1


def test_the_page_needs_no_network_and_has_its_table_before_the_script_runs():
    html = build_page(*two_budgets(), {})
    head, _, rest = html.partition('id="report-data"')
    shell = head + rest.rpartition("</script>")[2]
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", shell)
    assert "@import" not in head and "url(" not in head
    assert html.count("plotly.js v") == 1
    assert re.search(r"<caption>What <span[^>]*>AUC 0.7</span> took", html)
    assert '<th scope="row">' in html and "3.0 s" in html and "2 of 2" in html


def test_strings_from_runs_are_escaped_everywhere():
    evil = "</script><img src=x onerror=alert(1)>"
    curves, runs = made_up([[0.6, 0.8]], job=evil, budget=evil, energy_note=evil)
    assert "<img" not in build_page(curves, runs, {evil: evil})


def test_what_runs_reached_is_found_once_for_all_that_shows_it(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "labkit.tracking.crossing", lambda *given, **more: calls.append(given) or crossing(*given, **more)
    )
    build_page(*two_budgets(), {})
    assert len(calls) == 2, "first crossings and confirmed ones"


@pytest.mark.parametrize("budget", ["a · b", "one (slow) core", "a · b (c)"])
def test_a_budget_with_any_name_is_grouped_and_printed_as_it_is(budget):
    split = {"budget": "a", "setting": "b"}  # whose label is the name of the other budget
    curves, runs = together(arriving([1.0, 2.0], budget=budget), arriving([5.0], job="dlrm", **split))
    runs["run"], curves["run"] = runs["run"] + runs["setting"], curves["run"] + curves["setting"]
    table = summary(curves, runs)
    assert table["runs"].tolist() == [2, 1] and table["budget"].tolist() == [budget, "a"]
    assert str(summary_cells(table.iloc[0])[0]) == budget
    ((_, frame),) = terminal_frames(table)
    assert frame["Budget"].tolist() == [f"{budget}\nmeasured", "a · b\nmeasured"]
    html = build_page(curves, runs, {})
    assert f"</span>{budget}</th>" in html and f'<td class="words">{budget}</td>' in html
    figure = jobs_of(html)[0]["axes"][0]["curves"]
    names = [trace["name"] for trace in figure["data"] if trace["meta"]["kind"] == "run"]
    assert names == [f"{budget} · measured", "a · b · measured"]


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (
            made_up([[0.6, 0.65], [0.8]], status=["interrupted", "done"], unreached="censored", every_s=1.0),
            ['<span class="mark">interrupted</span>', "censored at 2.0 s", "<strong>Censored</strong> means"],
        ),
        # three times 3 s and 2 s in vain
        (arriving([3.0, 3.0, 3.0, INF]), ["failed after 3.0 s", "3 of 4", "4.0 s <small>(95 % CI"]),
        (made_up([[]], status="interrupted"), ["was interrupted before the first evaluation", "0 of 1"]),
    ],
)
def test_the_page_says_what_became_of_each_run(runs, words):
    html = build_page(*runs, {})
    assert all(each in html for each in words)
    assert ("failed after" in html) != ("censored at" in html) or "before the first" in html


def test_a_page_of_runs_that_were_never_evaluated_draws_nothing_and_gaps_are_no_numbers():
    assert jobs_of(build_page(*made_up([[], []]), {}))[0]["axes"] == []
    (job,) = jobs_of(build_page(*made_up([[np.nan, 0.5, np.inf, 0.8]]), {}))
    (line,) = (trace for trace in job["axes"][0]["curves"]["data"] if trace["meta"]["kind"] == "run")
    assert line["y"] == [None, 0.5, None, 0.8]


def test_the_terminal_table_holds_the_same_words_as_the_page():
    table = summary(*two_budgets())
    console = Console(width=80, file=io.StringIO(), force_terminal=True, color_system=None)
    for title, frame in terminal_frames(table):
        print_frame(console, frame, title)
        assert title == "DLRM, AUC 0.7" and max(map(len, console.file.getvalue().splitlines())) <= 80
        shown = frame.to_string()
    assert all(word in shown for cell in summary_cells(table.iloc[0])[:5] for word in cell)


@pytest.mark.parametrize(
    ("values", "target", "metric"),
    [([0.5, 0.7, 0.783], 0.78, "auc"), ([1.0, 0.3, 0.04], 0.05, "cer"), ([0.7], 0.7, "auc")],
)
def test_the_slider_has_the_target_itself_and_goes_beyond_the_best_value(values, target, metric):
    grid, up = target_grid(pd.Series(values), [target], METRICS[metric]), metric == "auc"
    assert target in grid and grid == sorted(set(grid)) and len(grid) < 300
    assert grid[-1] > max(values) if up else 0 < grid[0] < min(*values, target)


@pytest.mark.parametrize(
    ("metric", "values", "target"),
    [
        *(("accuracy", [0.5, 0.9, best], 0.9) for best in (0.997, 0.9985, 0.99999, 1.0)),
        ("auc", [1.0, 1.0], 1.0),
        ("cer", [1.0237, 1.02, 0.996], 0.05),  # of a recogniser that writes too much
        ("cer", [0.9, 0.002, 0.001], 0.002),
        ("wer", [0.4, 0.0], 0.0),
        ("log_loss", [0.7, 0.0], 0.001),
    ],
)
def test_the_slider_ends_at_the_best_value_that_a_metric_can_take(metric, values, target):
    curves, runs = made_up([values], metric=metric, target=target)
    (job,) = jobs_of(build_page(curves, runs, {}))
    assert target in job["grid"] and len(job["grid"]) > 1
    assert min(0, *values) <= job["grid"][0] and job["grid"][-1] <= max(1, *values)


def test_a_run_whose_target_cannot_be_takes_no_page_from_the_others():
    beside = together(made_up([[0.6, 0.8]]), made_up([[0.6, 0.8]], budget="one-core", target=78.0))
    (job,) = jobs_of(build_page(*beside, {}))
    assert job["grid"][-1] <= 1
    others = together(made_up([[0.6, 0.8]]), made_up([[0.6, 0.8]], job="odd", target=78.0))
    with pytest.warns(UserWarning, match="left out: odd: the target 78 is beyond any AUC"):
        html = build_page(*others, {"Left out": "a run."})
    assert len(jobs_of(html)) == 1 and "a run. odd: the target 78 is beyond any AUC" in html
    with pytest.raises(UserError, match=r"write 0\.78"):
        build_page(*made_up([[0.6, 0.8]], target=78.0), {})
    rates = [made_up([[0.6, 0.3]], metric="cer", target=each, budget=f"{n}") for n, each in enumerate((0.3, 0.3, 0.0))]
    (job,) = jobs_of(build_page(*together(*rates), {}))
    assert job["grid"][0] > 0, "an error rate's axis is logarithmic"


def test_at_every_target_of_the_slider_the_page_has_the_numbers_of_the_table():
    curves, runs = together(
        made_up([[0.5, 0.6, 0.69, 0.71, 0.73]] * 3, every_s=[1.0, 1.3, 1.1]),
        made_up([[0.61, 0.69], [0.5]], budget="one-core", unreached=["censored", "failed"], target=0.6812345),
    )
    (job,) = jobs_of(build_page(curves, runs, {}))
    assert {0.7, 0.6812345} < set(job["grid"]) and job["grid"][job["start"]] == 0.7, "and that of every run"
    for at in range(0, len(job["grid"]), 7):
        table = summary(curves, runs, job["grid"][at])
        cells = [[re.sub("</?small>", "", cell) for cell in row] for row in job["cells"]["wall_s"][at]]
        assert cells == [[str(summary_cells(row)[place]) for place in (2, 3, 4, 5, 9)] for _, row in table.iterrows()]
        medians = [None if np.isinf(median) else median for median in table["time_median_s"]]
        assert [median for median, _ in job["axes"][0]["medians"][at]] == medians
        reached = [sum(point >= 0 for point in points) for points in job["first"][at]]
        assert reached == table["reached"].tolist()
