"""What the page asks for: curves and bands at the width of the screen, a run's facts, two groups compared, a table."""

import base64
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from labkit import UserError, plots, runs, tta
from labkit.live.board import Board
from labkit.live.curves import HIGH, LOW, MEAN, Curve, coarser, extremes, smoothed, within
from labkit.live.feed import SPENT, RunFeed, Spending, X

MOST_POINTS = 40_000
"""Points of all single curves together: a browser redraws all of them"""
MOST_GRID = 300
"""Places at which a band is calculated"""
MOST_MEANS = 20_000
"""Points of all groups' means together"""
MOST_DETAILED = 40
"""Curves that are read from disk again when the reader looks closely"""
MOST_WITH_ENERGY = 200
"""Runs whose counters are read for an axis of joules"""
MOST_SINGLE = 300
"""Single curves that are drawn"""
MOST_BANDS = 40
"""Groups whose bands are drawn"""


@dataclass(frozen=True)
class Asked:
    """What the page asks to draw."""

    metric: str
    groups: list[list[str]]
    """Names of the runs of each group"""
    x: str = "wall_s"
    width: int = 1000
    """Pixels"""
    start: float | None = None
    """Where the visible part of the axis begins; None for its own beginning"""
    end: float | None = None
    smooth: float = 0.0
    """Weight per row of what came before, from 0 to below 1"""
    singles: bool = False
    """Whether to give each run's curve as well as the band of its group"""
    known: Sequence[str] = ()
    """Tags of groups that the page has; a group that has not changed since is answered with its tag alone"""

    def __post_init__(self):
        if self.x not in X + SPENT:
            raise UserError(f"the axis {self.x!r} is not known: choose from {', '.join(X + SPENT)}.", field="x")
        if not 0 <= self.smooth < 1:
            raise UserError(f"smooth is {self.smooth:g}: give a number from 0 to below 1.", field="smooth")
        if not 1 <= self.width <= 10_000:
            raise UserError(f"width is {self.width}: give a number of pixels from 1 to 10,000.", field="width")

    @property
    def column(self) -> int:
        return X.index("wall_s" if self.x in SPENT else self.x)

    @property
    def limits(self) -> tuple[float, float]:
        return -math.inf if self.start is None else self.start, math.inf if self.end is None else self.end


def curves(board: Board, asked: Asked) -> dict[str, Any]:
    """The groups' means with their bands, and the single curves where they are asked for, in the visible range.

    Returns:
        Lists go by group. An array is plotly's own: its type and its bytes. `exact` is false where stretches of rows
        are drawn by their extremes; `odd` are the places of values that are not numbers; `spent` says what an axis of
        joules or dollars is from, and how many runs it leaves out.

    Raises:
        UserError: the energy of too many runs is asked for.
    """
    with board.lock:
        feeds = [[board.feeds[name] for name in names if name in board.feeds] for names in asked.groups]
        held = [[(feed, feed.curves[asked.metric]) for feed in own if asked.metric in feed.curves] for own in feeds]
    held, spent, words = _spent(held, asked)
    count = sum(map(len, held))
    most = int(np.clip(MOST_POINTS // max(count, 1), 40, 2 * asked.width))
    places = min(MOST_GRID, max(MOST_MEANS // max(len(held), 1), 50), max(asked.width // 2, 2))
    groups, is_exact = [], True
    if asked.start is not None and count <= MOST_DETAILED and not spent:
        held = _detailed(held, asked)
    for own in held:
        tag = "" if spent else _tag(own, asked, most, places)
        is_exact &= all(curve.size == 1 for _, curve in own)
        if tag in asked.known:
            groups.append({"tag": tag})
            continue
        seen = []
        for feed, curve in own:
            place = spent[feed.name].on if spent else np.asarray
            stretches = within(place(curve.stretches), asked.column, asked.start, asked.end)
            seen.append((feed.name, curve, stretches, place(curve.odd)))
        groups.append({"tag": tag, **_group(seen, asked, most, places, with_band=len(held) <= MOST_BANDS)})
    answer = {"groups": groups, "exact": is_exact, "singles": asked.singles and count <= MOST_SINGLE, "runs": count}
    return answer | {"spent": words}


Held = list[list[tuple[RunFeed, Curve]]]


def _tag(own: Sequence[tuple[RunFeed, Curve]], asked: Asked, most: int, places: int) -> str:
    """A text that changes with whatever a group's answer depends on, for as long as this process runs."""
    question = asked.metric, asked.x, asked.width, asked.limits, asked.smooth, asked.singles, most, places
    return str(hash((question, *((feed.name, feed.version, curve.count) for feed, curve in own))))


def _spent(held: Held, asked: Asked) -> tuple[Held, dict[str, Spending], list[str]]:
    """The curves of runs that have a place on the axis, what these spent, and the sources as text."""
    if asked.x not in SPENT:
        return held, {}, []
    if asked.x == "energy_j" and (count := sum(map(len, held))) > MOST_WITH_ENERGY:
        raise UserError(f"energy is read from {MOST_WITH_ENERGY} runs at most, and these are {count}: filter the runs.")
    found = {feed.name: feed.spending(asked.x) for own in held for feed, _ in own}
    spent = {name: each for name, each in found.items() if each is not None}
    sources = Counter(each.how for each in spent.values())
    words = [f"{plots.counted(count, 'run')} {how}" for how, count in sources.items()]
    if gone := len(found) - len(spent):
        what = "price" if asked.x == "cost_usd" else "counter of energy, and no tier with a known power"
        words.append(f"{plots.counted(gone, 'run')} not drawn: no {what}")
    return [[each for each in own if each[0].name in spent] for own in held], spent, words


def _detailed(held: Held, asked: Asked) -> Held:
    """The curves with their visible rows from disk, where the stretches in memory are wider than a pixel."""
    coarse, steps = [], []
    for feed, curve in (each for own in held for each in own):
        seen = within(curve.stretches, asked.column, asked.start, asked.end)
        if curve.size > 1 and 0 < len(seen) < asked.width:
            coarse.append(feed)
            steps += [seen[:, :2, 0].min(), seen[:, :2, 0].max()]
    if not coarse:
        return held
    frame = runs.read_metrics([feed.folder for feed in coarse], steps=(min(steps), max(steps)))
    frame = frame[(frame["name"] == asked.metric) & frame[asked.x].between(*asked.limits)]
    detail = {}
    for run, rows in frame.groupby("run"):
        detail[run] = Curve(len(X) + 1)
        detail[run].append(rows[[*X, "value"]].to_numpy(float))
    return [[(feed, detail.get(feed.name, curve)) for feed, curve in own] for own in held]


Seen = tuple[str, Curve, np.ndarray, np.ndarray]
"""A run, its curve, the visible stretches, and the rows that are no numbers; both by the axis that is asked for"""


def _group(seen: Sequence[Seen], asked: Asked, most: int, places: int, *, with_band: bool) -> dict[str, Any]:
    column, shown, lines = asked.column, [each for each in seen if len(each[2])], []
    for _, curve, stretches, _ in shown:
        values = smoothed(stretches, asked.smooth, curve.size) if asked.smooth else stretches[:, MEAN, -1]
        lines.append((stretches[:, MEAN, column], values))
    answer = {"runs": len(lines), **_mean(lines, asked.width, places, with_band=with_band), **_odd(seen, asked)}
    answer["range"] = _statistics([stretches for _, _, stretches, _ in shown], asked)
    if asked.singles or len(lines) == 1:
        answer["curves"] = []
        for (name, curve, stretches, _), (x, y) in zip(shown, lines, strict=True):
            drawn = coarser(stretches, most if curve.size == 1 and len(stretches) <= most else max(most // 2, 1))
            rows = extremes(drawn)
            own = {"run": name, "x": packed(rows[:, column]), "y": packed(rows[:, -1])}
            if asked.smooth:
                step = -(-len(x) // most)
                own |= {"smooth_x": packed(x[::step]), "smooth_y": packed(y[::step])}
            answer["curves"].append(own)
    return answer


def _mean(lines: list[tuple[np.ndarray, np.ndarray]], width: int, places: int, *, with_band: bool) -> dict[str, Any]:
    """The mean at `places` points where at least half of the runs go on; its interval, or the range of fewer than 5."""
    if len(lines) < 2:
        x, y = lines[0] if lines else (np.empty(0), np.empty(0))
        step = max(-(-len(x) // max(width, 1)), 1)
        return {"x": packed(x[::step]), "y": packed(y[::step]), "kind": ""}
    grid = np.linspace(min(x[0] for x, _ in lines), max(x[-1] for x, _ in lines), places)
    values = np.array([np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in lines])  # (R, G)
    counts = np.isfinite(values).sum(0)
    enough = counts * 2 >= len(lines)
    grid, values, counts = grid[enough], values[:, enough], counts[enough]
    mean = np.nanmean(values, axis=0)
    if not with_band:
        return {"x": packed(grid), "y": packed(mean), "kind": ""}
    if len(lines) >= 5:
        from scipy.special import stdtrit

        error = pd.DataFrame(values).sem().fillna(0.0).to_numpy(float)
        half = stdtrit(np.maximum(counts - 1, 1), 0.975) * error
        low, high, kind = mean - half, mean + half, f"95 % interval of the mean of {len(lines)} runs"
    else:
        low, high, kind = np.nanmin(values, axis=0), np.nanmax(values, axis=0), f"range of {len(lines)} runs"
    return {"x": packed(grid), "y": packed(mean), "kind": kind, "low": packed(low), "high": packed(high)}


def _odd(seen: Sequence[Seen], asked: Asked) -> dict[str, Any]:
    """Where values are no numbers, by kind; and how many there are."""
    rows = np.concatenate([np.empty((0, len(X) + 1)), *(odd for _, _, _, odd in seen)])
    at, values = rows[:, asked.column], rows[:, -1]
    kinds = {"NaN": np.isnan(values), "+∞": values > 0, "−∞": values < 0}
    places = {kind: at[where].tolist() for kind, where in kinds.items()}
    return {"odd": places, "odd_count": sum(curve.odd_count for _, curve, _, _ in seen)}


def _statistics(seen: list[np.ndarray], asked: Asked) -> dict[str, float] | None:
    """Of the values in the visible range: lowest, highest, mean, and the mean of the runs' latest ones."""
    start, end = asked.limits
    inside = [own[(own[:, MEAN, asked.column] >= start) & (own[:, MEAN, asked.column] <= end)] for own in seen]
    inside = [own for own in inside if len(own)]
    if not inside:
        return None
    return {
        "low": float(min(own[:, LOW, -1].min() for own in inside)),
        "high": float(max(own[:, HIGH, -1].max() for own in inside)),
        "mean": float(np.mean([own[:, MEAN, -1].mean() for own in inside])),
        "last": float(np.mean([own[-1, MEAN, -1] for own in inside])),
        "from": float(min(own[0, MEAN, asked.column] for own in inside)),
        "to": float(max(own[-1, MEAN, asked.column] for own in inside)),
    }


def packed(values: np.ndarray) -> dict[str, str]:
    """An array as plotly reads it."""
    kind = "f8" if values.dtype == np.float64 else "f4"
    return {"dtype": kind, "bdata": base64.b64encode(values.tobytes()).decode()}


def facts(board: Board, name: str) -> dict[str, Any]:
    """What a run recorded about itself: facts by their terms, its settings, and its latest events as lines."""
    with board.lock:
        feed = board.feed(name)
        record, events = feed.record, list(feed.events)[-60:]
    settings = board.table.loc[name, "settings"] if name in board.table.index else {}
    result = {key: value for key, value in (record.result or {}).items() if value is not None}
    known = {
        "Folder": str(feed.folder),
        "Status": f"{record.status}{': ' + str(result['reason']) if result.get('reason') else ''}",
        "Started": record.started_at,
        "Host": record.host,
        "Devices": ", ".join(str(device.get("name", "unnamed")) for device in record.devices),
        "Provenance": f"{record.provenance.kind} by {record.provenance.by} {record.provenance.note}".strip(),
        "Software": ", ".join(f"{key} {value}" for key, value in record.software.items() if value),
        "Log": str(record.config.get("collocation", {}).get("log") or ""),
    }
    return {
        "facts": {term: words for term, words in known.items() if words},
        "settings": {str(key): str(value) for key, value in settings.items() if value is not None},
        "result": {str(key): str(value) for key, value in result.items() if not isinstance(value, dict)},
        "events": [_line(event) for event in events],
        "code": f'labkit.runs.read_metrics(["{feed.folder}"])',
    }


def _line(event: dict[str, Any]) -> str:
    at = f"{event['wall_s']:9.1f} s  " if isinstance(event.get("wall_s"), float | int) else " " * 13
    words = event.get("metrics") or {
        key: value
        for key, value in event.items()
        if key not in ("event", "time", "wall_s", "train_s", "step", "samples") and not isinstance(value, list)
    }
    return f"{event['time'][:19]} {at}{event['event']}  " + ", ".join(f"{key} {value}" for key, value in words.items())


def frames(board: Board, names: Sequence[str], most: int) -> runs.Frames:
    """The runs among `names` that count, with their evaluations; at most about `most` of these.

    Of a run with more evaluations than are held in memory there are the extremes of stretches of them.
    """
    with board.lock:
        table = board.table[board.table["run"].isin(board.feeds.keys() & set(names))].reset_index(drop=True)
        own = [board.feeds[name].curves.get(metric) for name, metric in zip(table["run"], table["metric"], strict=True)]
    each, columns = max(most // max(len(own), 1), 50), [*X[1:], "value"]
    places, parts = [], [np.empty((0, len(columns)))]
    for row, curve in enumerate(own):
        if curve is not None:
            rows = np.concatenate([curve.rows(each), curve.odd])
            parts.append(rows[np.argsort(rows[:, 1], kind="stable"), 1:])
            places += [row] * len(rows)
    evaluations = table[runs.OF_A_RUN].iloc[places].reset_index(drop=True)
    evaluations[columns] = np.concatenate(parts)
    return runs.Frames(table, evaluations[runs.CURVE_COLUMNS])


def compare(board: Board, one: Sequence[str], other: Sequence[str], target: float | None) -> dict[str, Any]:
    """How many times as fast one group of runs reached a target as the other, by pairs of seeds where there are some.

    Raises:
        UserError: the groups cannot be compared.
    """
    most = 10**6
    a, b = frames(board, one, most), frames(board, other, most)
    if a.runs.empty or b.runs.empty:
        raise UserError("a group has no runs that count: choose two groups with runs that are not profiled.")
    if set(one) & set(other):
        raise UserError("both groups have a run in common: choose two different groups.")
    metrics = {*a.runs["metric"], *b.runs["metric"]} - {None}
    if len(metrics) != 1 or a.curves.empty or b.curves.empty:
        raise UserError("the groups share no metric that both have evaluated: choose two groups of one job.")
    both = runs.Frames.together(a, b)
    goal = tta.default_target(both.curves, both.runs) if target is None else float(target)
    hits = [tta.crossings(each.curves, each.runs, goal) for each in (a, b)]
    metric = metrics.pop()
    lines = [
        f"{plots.counted(int(hit['reached'].sum()), 'run')} of {len(hit)} reached "
        f"{plots.metric_label(metric)} {goal:.6g}, median "
        f"{plots.seconds_text(tta.survival(each.curves, each.runs, goal)['median'].iloc[0])}"
        for hit, each in zip(hits, (a, b), strict=True)
    ]
    finding = _finding(tta.speed_up(hits[0], hits[1]))
    return {"target": goal, "lines": lines, "finding": finding, "best": _best(a, b, metric)}


def _finding(ratio: Any) -> str:
    if ratio is None:
        return "No ratio is claimed: that takes three seeds of each group that all reach the target."
    interval = f"95 % interval {ratio.low:.2f} to {ratio.high:.2f}, {ratio.seeds} seeds"
    if ratio.low <= 1 <= ratio.high:
        return (
            f"No difference in time to target that could not be chance: A is {ratio.ratio:.2f} × as fast ({interval})."
        )
    return f"A reaches the target {ratio.ratio:.2f} × as fast as B ({interval})."


def _best(a: runs.Frames, b: runs.Frames, metric: str) -> str:
    """The difference of the best values, by pairs of seeds where at least two are in both groups."""
    up = tta.higher_is_better(metric, a.runs)
    best = []
    for each in (a, b):
        of_run = each.curves.groupby("run")["value"].max() if up else each.curves.groupby("run")["value"].min()
        seeds = each.runs.set_index("run")["seed"].reindex(of_run.index)
        best.append(of_run.groupby(seeds.to_numpy()).mean())
    pairs = (best[0] - best[1]).dropna()
    label = plots.metric_label(metric)
    if len(pairs) < 2 or "none" in pairs.index:
        return f"Best {label}: {best[0].mean():.4g} and {best[1].mean():.4g} on average; no pairs of seeds."
    mean, low, high = tta.mean_interval(pairs.to_numpy(float))
    return f"Best {label}: A − B is {mean:+.4g} (95 % interval {low:+.4g} to {high:+.4g}, {len(pairs)} pairs of seeds)."


def table_rows(board: Board, names: Sequence[str], metric: str) -> Iterator[str]:
    """Every row of a metric of these runs as CSV, run by run, from disk."""
    yield "run,group,seed,step,wall_s,train_s,samples,name,value\n"
    for name in names:
        with board.lock:
            feed, row = board.feeds.get(name), board.rows.get(name, {})
        if feed is None:
            continue
        frame = runs.read_metrics([feed.folder])
        frame = frame[frame["name"] == metric]
        for place, column in enumerate(("group", "seed"), start=1):
            frame.insert(place, column, _harmless(row.get(column, "")))
        frame["name"] = _harmless(metric)
        yield frame.to_csv(index=False, header=False)


def _harmless(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
