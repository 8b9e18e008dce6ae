"""The page from frames: its text and its data; test_report_in_browser.py has what its script does."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pandas as pd
import pytest

from labkit.report.headline import headline
from labkit.report.lookup import target_grid
from labkit.report.page import build_page, json_for_html
from labkit.report.table import notes, summary_cells, target_cells, terminal_tables
from labkit.tta import summary


def make(runs):
    """Synthetic runs: dictionaries of columns, with `values`, one evaluation every `every_s` seconds."""
    rows, frames = [], []
    for number, given in enumerate(runs):
        given = {"every_s": 1.0, "values": [0.6, 0.7, 0.78, 0.79], **given}
        row = {
            "run": f"run-{number}",
            "folder": "synthetic",
            "job": "dlrm",
            "budget": "all-cores",
            "seed": number,
            "provenance": "measured",
            "tier": None,
            "metric": "auc",
            "higher_is_better": True,
            "target": 0.78,
            "status": "done",
            "disturbed": "",
            "unreached": "failed",
            "confirm": 2,
            "settings": {"budget": given.get("budget", "all-cores")},
            "wall_s": given["every_s"] * len(given["values"]),
            "train_s": given["every_s"] * len(given["values"]),
            "samples": 100.0 * len(given["values"]),
            "samples_per_s": 1000.0,
            "peak_memory_bytes": 2.0**30,
            "peak_gpu_memory_bytes": float("nan"),
            "energy_j": np.nan,
            "energy_note": "no counter",
        } | {name: value for name, value in given.items() if name not in ("every_s", "values")}
        rows.append(row)
        wall_s = given["every_s"] * np.arange(1, len(given["values"]) + 1)
        frame = pd.DataFrame({"wall_s": wall_s, "train_s": wall_s, "samples": wall_s * 100, "value": given["values"]})
        shared = ("run", "job", "budget", "seed", "provenance", "tier", "metric")
        frames.append(frame.assign(**{name: row[name] for name in shared}))
    return pd.concat(frames, ignore_index=True), pd.DataFrame(rows)


def two_budgets():
    return make([{}, {}, {"budget": "one-core", "every_s": 1.6}, {"budget": "one-core", "every_s": 1.6}])


def page_data(html):
    return json.loads(re.search(r'id="report-data">(.*?)</script>', html, re.DOTALL).group(1))


def seeds(every_s, **columns):
    return [{"every_s": each, "seed": seed, **columns} for seed, each in enumerate(every_s)]


def test_the_headline_says_how_much_sooner_only_of_three_seeds_whose_interval_excludes_one():
    two = headline(summary(*two_budgets()))
    assert two == (
        "DLRM reached AUC 0.78 in 3.0 s (median of 2 runs) on all cores and 4.8 s on one core: how much sooner is not "
        "claimed, which takes three seeds of each that all reach it."
    )
    slow = {"budget": "one-core", "settings": {"budget": "one-core"}}
    three = seeds([1.0, 1.1, 1.05])
    sure = headline(summary(*make(three + seeds([1.6, 1.7, 1.7], **slow))))
    assert sure.endswith("on one core: 1.6× sooner (95 % CI 1.50 – 1.69×, 3 seeds).")
    unsure = headline(summary(*make(three + seeds([0.9, 1.7, 1.1], **slow))))
    assert "no difference to tell from chance (95 % CI" in unsure and "sooner" not in unsure
    failing = headline(summary(*make([*three, {"values": [0.6], "seed": 3}, *seeds([1.6, 1.7, 1.7], **slow)])))
    assert "not claimed" in failing
    again = headline(summary(*make([{}, {"seed": 0}, {"seed": 0}, *seeds([1.6, 1.7, 1.7], **slow)])))
    assert "not claimed" in again, "one seed run three times is one seed"
    three[1]["disturbed"] = "other programs took 40% of its cores"
    disturbed = headline(summary(*make(three + seeds([1.6, 1.7, 1.7], **slow))))
    assert disturbed.endswith("how much sooner is not claimed, because other programs disturbed these runs.")


def test_three_that_arrive_and_four_that_are_stopped_later_are_no_failure():
    arrive = [{"seed": seed, "every_s": 10.0 + seed, "values": [0.79, 0.79]} for seed in range(3)]
    stopped = {"status": "stopped", "unreached": "censored", "every_s": 15.0, "values": [0.6]}
    (row,) = summary(*make([*arrive, *({**stopped, "seed": seed} for seed in range(3, 7))])).itertuples()
    assert (row.reached, row.failed, row.censored) == (3, 0, 4)
    table = summary(*make([*arrive, *({**stopped, "seed": seed} for seed in range(3, 7))]))
    assert target_cells(table.iloc[0])[1] == "not known"
    assert headline(table) == "DLRM was cut off too often to say how long AUC 0.78 takes: 3 of 7 runs got there."


def test_what_differs_in_two_things_at_once_is_said():
    both = {"budget": "big", "settings": {"budget": "all-cores", "batch_size": 512, "precision": "bf16"}}
    one = {"settings": {"budget": "all-cores", "batch_size": 64, "precision": "fp32"}}
    table = summary(*make(seeds([1.0, 1.1, 1.05], **one) + seeds([1.6, 1.7, 1.7], **both)))
    (line,) = (line for line in notes(table) if "differs" in line)
    assert line == (
        "DLRM: big differs from the fastest, all-cores, in batch_size and precision, so what comes of which cannot be "
        "told."
    )
    assert "3 seeds; they differ in batch_size and precision)" in headline(table)
    single = both | {"settings": {"budget": "all-cores", "batch_size": 512, "precision": "fp32"}}
    assert not any("differs" in line for line in notes(summary(*make([one, single]))))


def test_the_headline_says_when_a_budget_or_no_budget_reached_the_target():
    short = {"budget": "one-core", "values": [0.6, 0.7]}
    assert headline(summary(*make([{}, short]))).endswith("on all cores; not by half of the runs on one core.")
    assert headline(summary(*make([short, short]))) == "DLRM did not reach AUC 0.78: 0 of 2 runs got there."
    half = headline(summary(*make([{}, {"values": [0.6, 0.7]}])))
    assert half == "DLRM reached AUC 0.78 in half of its runs or fewer: 1 of 2 runs got there."


def test_the_headline_says_when_nobody_set_the_target():
    curves, runs = two_budgets()
    assert "(a value that its runs share; none was trained to it)" in headline(summary(curves, runs, 0.7))
    assert "share" not in headline(summary(curves, runs, 0.78))


def test_the_page_needs_no_network():
    html = build_page(*two_budgets(), {})
    head, _, rest = html.partition('id="report-data"')
    shell = head + rest.rpartition("</script>")[2]
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", shell)
    assert "@import" not in head and "url(" not in head
    assert html.count("plotly.js v") == 1


def test_strings_from_runs_are_escaped_everywhere():
    evil = "</script><img src=x onerror=alert(1)>"
    curves, runs = make([{"run": evil, "budget": evil, "job": evil, "energy_note": evil}])
    html = build_page(curves, runs, {evil: evil})
    assert "<img" not in html
    assert page_data(html)["jobs"][0]["groups"][0]["budget"] == evil


def test_json_for_a_page_holds_no_markup_and_reads_back():
    data = {"a": "</script><!-- & ' \u2028"}
    text = json_for_html(data)
    assert not set("<>&\u2028") & set(text) and json.loads(text) == data


def test_the_table_is_there_before_the_script_runs():
    html = build_page(*two_budgets(), {})
    assert re.search(r"<caption>What <span[^>]*>AUC 0.78</span> took", html)
    assert '<th scope="row">' in html and "3.0 s" in html and "2 of 2" in html


def test_a_run_that_failed_before_its_first_evaluation_is_listed_as_such():
    html = build_page(*make([{}, {"status": "failed", "values": []}]), {})
    assert "failed before the first evaluation" in html and "1 of 2" in html


def test_a_page_of_runs_that_were_never_evaluated_has_their_table():
    html = build_page(*make([{"status": "interrupted", "values": []}]), {})
    assert "was interrupted before the first evaluation" in html and "0 of 1" in html
    assert page_data(html)["jobs"][0]["axes"] == []


def test_an_interrupted_run_is_marked_and_censored_at_its_last_evaluation():
    cut = {"status": "interrupted", "unreached": "censored", "values": [0.6, 0.7]}
    html = build_page(*make([{}, cut]), {})
    assert '<span class="mark">interrupted</span>' in html and "censored at 2.0 s" in html
    assert "<strong>Censored</strong> means" in html


def test_a_page_of_no_runs_says_what_to_do():
    curves, runs = two_budgets()
    assert "labkit train dlrm" in build_page(curves.iloc[:0], runs.iloc[:0], {})


def test_a_run_that_failed_has_failed_and_is_not_censored():
    html = build_page(*make([{}, {}, {}, {"status": "failed", "values": [0.6, 0.7]}]), {})
    assert "failed after 2.0 s" in html and "censored at" not in html
    assert "3 of 4" in html and ">11.0 s" not in html
    # three times 3 s and 2 s in vain
    assert re.search(r"<td>3.7 s <small>\(95 % CI", html)


def test_values_that_are_not_finite_do_not_reach_the_page_as_numbers():
    data = page_data(build_page(*make([{"values": [np.nan, 0.7, np.inf, 0.8]}]), {}))
    assert data["jobs"][0]["groups"][0]["runs"][0]["value"] == [None, 0.7, None, 0.8]


def test_notes_give_each_reason_once():
    lines = notes(summary(*two_budgets()))
    assert lines[0] == "Energy: no counter." and sum("no tier" in line for line in lines) == 1


def test_the_terminal_table_holds_the_same_words_as_the_page():
    from rich.console import Console

    table = summary(*two_budgets())
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(*terminal_tables(table), sep="\n")
    printed = console.export_text()
    assert "DLRM, AUC 0.78" in printed
    for cell in summary_cells(table.iloc[0])[:5]:
        for words in re.split(r" \((?:95 % CI )?", cell.rstrip(")")):
            assert words in printed


@pytest.mark.parametrize(
    ("values", "target", "up"),
    [
        ([0.5, 0.7, 0.783], 0.78, True),
        ([1.0, 0.3, 0.04], 0.05, False),
        ([0.7], 0.7, True),
        ([0.5, 0.48], 0.4512, False),
    ],
)
def test_the_slider_has_the_target_itself_and_goes_beyond_the_best_value(values, target, up):
    grid = target_grid(pd.Series(values), [target], up)
    assert target in grid and grid == sorted(set(grid)) and len(grid) < 300
    assert grid[-1] > max(values) if up else 0 < grid[0] < min(*values, target)


def test_the_slider_has_the_target_of_every_run():
    curves, runs = make([{}, {"target": 0.7512345}])
    (job,) = page_data(build_page(curves, runs, {}))["jobs"]
    assert {0.78, 0.7512345} < set(job["grid"]) and job["grid"][job["start"]] == job["target"]


def test_at_every_target_of_the_slider_the_page_has_the_numbers_of_the_table():
    cut = {"status": "stopped", "unreached": "censored", "values": [0.61, 0.69]}
    curves, runs = make([*seeds([1.0, 1.3, 1.1, 1.2, 0.9, 1.4]), cut, {"values": [0.5]}, {"budget": "one-core"}])
    (job,) = page_data(build_page(curves, runs, {}))["jobs"]
    for at in range(0, len(job["grid"]), 7):
        table = summary(curves, runs, job["grid"][at])
        cells = [[summary_cells(row)[place] for place in (2, 3, 4, 5, 9)] for _, row in table.iterrows()]
        assert job["cells"]["wall_s"][at] == cells
        medians = [None if np.isinf(median) else median for median in table["time_median_s"]]
        assert job["medians"]["wall_s"]["median"][at] == medians
        band = job["bands"]["wall_s"][0]
        assert band is not None
