"""The HTML of one job's part of the page before its script runs; text from runs is escaped."""

from __future__ import annotations

from html import escape

import pandas as pd

from labkit.plots.theme import encoding
from labkit.plots.words import AXIS_TITLES, metric_label, seconds_text
from labkit.report.table import HEADINGS, NO_METRIC, NO_TARGET, goal_text, job_name, notes, summary_cells
from labkit.tta.thresholds import SERIES

WORDS = ' class="words"'


def header(identifier: str, table: pd.DataFrame, runs: pd.DataFrame, curves: pd.DataFrame) -> str:
    metric = runs["metric"].iloc[0]
    measures = f"{metric_label(metric)} on the validation split" if metric else NO_METRIC
    kinds = ", ".join(dict.fromkeys(runs["provenance"]))
    seeds, budgets = len(runs), runs.groupby(SERIES, dropna=False).ngroups
    unread = len(set(runs["run"]) - set(curves["run"]))
    text = f"{_counted(seeds, 'run')} under {_counted(budgets, 'budget')}; {measures}; provenance: {kinds}."
    if unread and metric:
        text += f" {_counted(unread, 'run')} ended before the first evaluation and cannot be drawn."
    title = escape(job_name(runs["job"].iloc[0]))
    return (
        f'<section class="job" id="{identifier}" aria-labelledby="{identifier}-title">\n'
        f'<header><h2 id="{identifier}-title">{title}</h2><p>{escape(text)}</p></header>'
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def controls(payload: dict) -> str:
    name, grid, label = payload["id"], payload["grid"], payload["metric_label"]
    choices = "".join(
        f'<label><input type="radio" name="{name}-x" value="{axis["key"]}"{" checked" * (not number)}>'
        f"<span>{escape(axis['label'])}</span></label>"
        for number, axis in enumerate(payload["axes"])
    )
    limits = f'min="0" max="{len(grid) - 1}" step="1" value="{payload["start"]}"'  # places in the grid
    shown = f"{escape(label)} {payload['target']:.6g}"
    hardness = ("easier", "harder") if payload["higher_is_better"] else ("harder", "easier")
    return f"""<div class="controls">
<fieldset><legend>Horizontal axis</legend><div class="choices">{choices}</div></fieldset>
<div><div class="target-line"><label class="title" for="{name}-target">Target {escape(label)}</label>
<output id="{name}-output" for="{name}-target">{shown}</output></div>
<div class="target-row"><input type="range" id="{name}-target" {limits} aria-valuetext="{shown}" autocomplete="off">
<button type="button" id="{name}-reset">Back to {payload["target"]:.6g}</button></div>
<div class="ends" aria-hidden="true"><span>{grid[0]:.6g} · {hardness[0]}</span>
<span>{hardness[1]} · {grid[-1]:.6g}</span></div></div>
</div>"""


def figure(payload: dict) -> str:
    name = payload["id"]
    lead, _, _ = payload["description"].rpartition(payload["finding"])
    before, title, after = lead.partition(AXIS_TITLES["wall_s"])
    # the range of the first drawing would be wrong on another axis: name the axis, leave its range out
    _, _, after = after.partition(". ")
    kinds = "; ".join(payload["band_kinds"])
    shade = f" Shaded: {kinds}, by budget." if kinds else ""
    lines = "Dotted drops mark each budget's Kaplan–Meier median, rings each run's first crossing."
    return f"""<figure>
<div class="plot" id="{name}-curves" role="group" aria-label="{escape(payload["description"])}"></div>
<figcaption>One curve a run, a mark an evaluation.{escape(shade)} {lines}
<span id="{name}-description"><span class="hidden">{escape(before)}</span>
<span class="hidden" id="{name}-axis-words">{escape(title)}</span>
<span class="hidden">. {escape(after)}</span>
<span id="{name}-finding">{escape(payload["finding"])}</span></span></figcaption>
</figure>"""


def target_figure(payload: dict) -> str:
    name, description = payload["id"], escape(payload["target_description"])
    return f"""<div class="part"><h3>How much longer for a harder target?</h3>
<p>The median time to target, for every target the slider offers. Where two lines come together, the faster
 budget no longer buys time; where a line ends, half of its runs or more do not get there.</p>
<figure><div class="plot small" id="{name}-targets" role="group" aria-label="{description}"></div>
<figcaption><span class="hidden">{description}</span>Follows the horizontal-axis choice above;
 shaded is the median's 95 % interval, of fewer than five runs their range.</figcaption></figure></div>"""


def results_table(identifier: str, table: pd.DataFrame, payload: dict) -> str:
    body = []
    number_drawn = payload.get("drawn", [])
    for number, (_, row) in enumerate(table.iterrows()):
        cells = summary_cells(row)
        mark = _swatch(number_drawn.index(number)) if number in number_drawn else ""
        rest = "".join(f"<td{WORDS * (place == 0)}>{_cell(text)}</td>" for place, text in enumerate(cells[1:]))
        body.append(f'<tr id="{identifier}-row-{number}"><th scope="row">{mark}{escape(cells[0])}</th>{rest}</tr>')
    heads = "".join(f'<th scope="col"{WORDS * (place < 2)}>{escape(text)}</th>' for place, text in enumerate(HEADINGS))
    listed = "".join(f"<li>{escape(line)}</li>" for line in notes(table))
    goal = goal_text(payload["metric"], table["target"].iloc[0])
    goal = "the training" if goal == NO_TARGET else goal
    return f"""<div class="scroll" role="region" tabindex="0" aria-label="Results by budget">
<table><caption>What <span id="{identifier}-caption-target">{escape(goal)}</span> took, in <span
 id="{identifier}-clock">wall time</span></caption>
<thead><tr>{heads}</tr></thead>
<tbody>
{chr(10).join(body)}
</tbody></table></div>
<ul class="notes"><li>The median is Kaplan–Meier's: a run that failed never arrives, one that was cut off counts until
 then. Expected with restarts is all time spent over the number of successes, where no run was cut off (one that was is
 taken to go on as those did that went on for longer): each run that fails is started anew, and
 paid for. Memory is the highest of the runs; samples/s and energy (whole run) are medians.</li>
{listed}</ul>"""


def _cell(text: str) -> str:
    main, bracket, rest = text.partition(" (")
    return escape(main) + (f" <small>({escape(rest)}</small>" if bracket else "")


_SHAPES = {
    "circle": '<circle cx="15" cy="6" r="4"/>',
    "square": '<rect x="11.5" y="2.5" width="7" height="7"/>',
    "diamond": '<path d="M15 1l5 5-5 5-5-5z"/>',
    "triangle-up": '<path d="M15 1l5 9h-10z"/>',
    "cross": '<path d="M13 1h4v3h3v4h-3v3h-4v-3h-3v-4h3z"/>',
    "x": '<path d="M11 1l4 3.5 4-3.5 1.5 1.5-3.5 3.5 3.5 3.5-1.5 1.5-4-3.5-4 3.5-1.5-1.5 3.5-3.5-3.5-3.5z"/>',
}
_STROKES = {
    "solid": "",
    "dash": "6 3",
    "dot": "2 3",
    "dashdot": "6 3 2 3",
    "longdash": "10 3",
    "longdashdot": "9 3 2 3",
}


def _swatch(number: int) -> str:
    look = encoding(number)
    return (
        f'<svg class="swatch series-{number % 5}" viewBox="0 0 30 12" aria-hidden="true">'
        f'<line x1="0" x2="30" y1="6" y2="6" stroke="currentColor" stroke-width="2" '
        f'stroke-dasharray="{_STROKES[look.dash]}"/>'
        f'<g fill="currentColor">{_SHAPES[look.marker]}</g></svg>'
    )


def run_list(identifier: str, runs: pd.DataFrame, curves: pd.DataFrame, hits: pd.DataFrame, payload: dict) -> str:
    evaluations = curves.groupby("run")["value"].agg(["size", "last"])
    of_run = runs.set_index("run")[["status", "seed", "disturbed"]].to_dict("index")
    by_run = hits.set_index("run")[["reached", "sustained", "time_to_target_s", "sustained_time_s"]].to_dict("index")
    body = []
    for number, group in enumerate(payload["groups"]):
        for place, run in enumerate(group["runs"]):
            hit, told = by_run[run["run"]], of_run[run["run"]]
            status = escape(told["status"])
            if status in ("failed", "interrupted", "stopped"):
                status = f'<span class="mark">{status}</span>'
            if told["disturbed"]:
                status += f' <span class="mark">disturbed</span> <small>{escape(told["disturbed"])}</small>'
            last, count = "–", len(run["value"])
            if count:
                last = f"{evaluations.loc[run['run'], 'last']:.4f}"
            reached = seconds_text(hit["time_to_target_s"]) if hit["reached"] else run["missed"]["wall_s"]
            body.append(
                f'<tr id="{identifier}-run-{number}-{place}"><th scope="row">{escape(run["run"])}</th>'
                f'<td class="words">{escape(group["budget"])}</td>'
                f'<td>{escape(str(told["seed"]))}</td><td class="words">{status}</td>'
                f"<td>{last} <small>({_counted(count, 'evaluation')})</small></td>"
                f"<td>{reached}</td><td>{_confirmed(hit)}</td></tr>"
            )
    heads = ["Run", "Budget", "Seed", "Status", "Last value", "Time to target", "Confirmed"]
    words = ("Run", "Budget", "Status")
    head = "".join(f'<th scope="col"{WORDS * (text in words)}>{text}</th>' for text in heads)
    return f"""<details><summary>Every run ({len(runs)})</summary>
<div class="scroll" role="region" tabindex="0" aria-label="Every run">
<table class="runs" aria-label="Every run">
<thead><tr>{head}</tr></thead><tbody>
{chr(10).join(body)}
</tbody></table></div></details>"""


def _confirmed(hit: dict) -> str:
    if not hit["reached"]:
        return ""
    return f"from {seconds_text(hit['sustained_time_s'])}" if hit["sustained"] else "no"
