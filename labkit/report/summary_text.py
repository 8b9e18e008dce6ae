"""The summary as text: cells of the page's tables and of the terminal's, the headline of each job, notes, and facts."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup, escape

from labkit import UserError, jobs, plots, runs

HEADINGS = (
    "Budget", "Provenance", "Reached", "Time to target, median", "Expected with restarts", "Samples", "Samples/s",
    "Peak memory", "Energy", "Cost with restarts",
)  # fmt: skip
OF_TARGET = (2, 3, 4, 5, 9)
"""Places of the cells that follow the target"""
NOT_KNOWN = "not known"
"""Instead of a median, where too many runs were cut off"""
PROVENANCE_MEANS = {
    "measured": "measured on this whole machine",
    "emulated": "measured on this machine under a smaller budget",
    "recorded": "measured on another machine and shipped",
    "predicted": "calculated by a model, not run",
}
VERSIONS_SHOWN = ("labkit", "python", "torch", "torchaudio", "numpy", "cuda")
NO_METRIC = "no metric"
"""Instead of a metric, where a script reports none"""


class Cell(NamedTuple):
    """A cell of a table: its value, and what stands after it in brackets and smaller."""

    value: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.note})" if self.note else self.value

    def __html__(self) -> Markup:
        small = Markup(" <small>({})</small>").format(self.note) if self.note else ""
        return escape(self.value) + small


def job_name(job: str) -> str:
    """The job as a title; what follows its first word (" on adult") is kept.

    >>> job_name("dlrm on adult"), job_name("resnet")
    ('DLRM on adult', 'resnet')
    """
    first, space, rest = job.partition(" ")
    return (jobs.JOBS[first].title if first in jobs.JOBS else first) + space + rest


def goal_text(metric: str | None, target: float) -> str:
    """The target as text.

    >>> goal_text("auc", 0.78), goal_text(None, math.nan)
    ('AUC 0.78', 'no target')
    """
    return "no target" if metric is None or math.isnan(target) else f"{plots.metric_label(metric)} {target:.6g}"


def summary_cells(row: Mapping[str, Any]) -> list[Cell]:
    """The cells of one row of `labkit.tta.summary`, under `HEADINGS`."""
    reached, time, expected, samples, cost = target_cells(row)
    memory = memory_text(row["peak_memory_bytes"], row["peak_gpu_memory_bytes"])
    energy = plots.joules_text(row["energy_j"]) if math.isfinite(row["energy_j"]) else "not measured"
    speed = Cell(plots.count_text(row["samples_per_s"]))
    names = Cell(runs.Series.of(row).label), Cell(row["provenance"])
    return [*names, reached, time, expected, samples, speed, Cell(memory), Cell(energy), cost]


def target_cells(row: Mapping[str, Any]) -> list[Cell]:
    """The cells of that row that follow the target (`labkit.tta.target_columns`)."""
    if math.isnan(row["target"]):
        return [Cell("–")] * len(OF_TARGET)
    median, low, high = (row[f"time_{name}_s"] for name in ("median", "low", "high"))
    is_known = not plots.is_not_known(median, row["failed"], row["runs"])
    cost, *ends = (row[f"cost{end}_usd"] for end in ("", "_low", "_high"))
    cut_off = f", {row['censored']:.0f} cut off" if row["censored"] else ""
    share = f"95 % CI {100 * row['success_low']:.0f} – {100 * row['success_high']:.0f} %" if row["runs"] > 1 else ""
    return [
        Cell(f"{row['reached']:.0f} of {row['runs']:.0f}{cut_off}", share),
        time_cell(median, low, high, row["time_level"]) if is_known else Cell(NOT_KNOWN),
        time_cell(row["expected_s"], row["expected_low_s"], row["expected_high_s"], 0.95),
        Cell(plots.count_text(row["samples_median"])),
        Cell("–") if math.isnan(cost) else time_cell(cost, *ends, 0.95, "cost_usd"),
    ]


def time_cell(median: float, low: float, high: float, level: float = math.nan, x: str = "wall_s") -> Cell:
    """A median or another time, with its interval, or its range where level is NaN; on the axis x.

    >>> str(time_cell(6.2, 5.9, 6.5)), str(time_cell(6.2, 6.2, 6.2)), str(time_cell(6.2, 5.9, math.inf, 0.95))
    ('6.2 s (range 5.9 – 6.5 s)', '6.2 s', '6.2 s (95 % CI 5.9 s – no bound)')
    """
    if not math.isfinite(median) or math.isnan(low) or low == high:
        return Cell(plots.axis_text(median, x))
    name = "range" if math.isnan(level) else f"{100 * level:.0f} % CI"
    first, last = plots.axis_text(low, x), plots.axis_text(high, x) if math.isfinite(high) else "no bound"
    number, space, unit = first.rpartition(" ")
    first = number if space and last.endswith(space + unit) else first  # the unit once, where both have it
    return Cell(plots.axis_text(median, x), f"{name} {first} – {last}")


def memory_text(host_bytes: float, gpu_bytes: float) -> str:
    """
    >>> memory_text(2**30, math.nan), memory_text(2**30, 2**31)
    ('1.00 GiB', '1.00 GiB, GPU 2.00 GiB')
    """
    host = f"{host_bytes / 2**30:.2f} GiB" if math.isfinite(host_bytes) else "not measured"
    return f"{host}, GPU {gpu_bytes / 2**30:.2f} GiB" if math.isfinite(gpu_bytes) else host


def terminal_frames(summary: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The summary for a terminal of 80 columns: for each job and target a title, and a frame with a row per series."""
    heads = ("Budget", "Reached", "Time to target", "With restarts", "Samples/s, memory", "Energy, cost")
    for (job, metric, target), rows in summary.groupby(["job", "metric", "target"], sort=False, dropna=False):
        table = []
        for row in rows.to_dict("records"):
            budget, provenance, *of_target, _, speed, memory, energy, cost = summary_cells(row)
            two_lines = [f"{cell.value}\n({cell.note})" if cell.note else cell.value for cell in of_target]
            table.append((f"{budget}\n{provenance}", *two_lines, f"{speed}\n{memory}", f"{energy}\n{cost.value}"))
        yield f"{job_name(job)}, {goal_text(metric, target)}", pd.DataFrame(table, columns=heads)


def headline(summary: pd.DataFrame) -> str:
    """The answer for one job in a sentence: the fastest and the slowest budget, and how far apart they are."""
    first = summary.iloc[0]
    job, goal = job_name(first["job"]), goal_text(first["metric"], first["target"])
    if math.isnan(first["target"]):
        return f"{job} has no target, and was not evaluated."
    if not first["target_given"]:
        goal += " (a value that its runs share; none was trained to it)"
    arrives = summary["time_median_s"].map(math.isfinite)
    done, missed = summary[arrives].sort_values("time_median_s", kind="stable"), summary[~arrives]
    if done.empty:
        got_there = f"{summary['reached'].sum()} of {summary['runs'].sum()} runs got there"
        if all(
            plots.is_not_known(row["time_median_s"], row["failed"], row["runs"]) for row in summary.to_dict("records")
        ):
            return f"{job} was cut off too often to say how long {goal} takes: {got_there}."
        if summary["reached"].sum():
            return f"{job} reached {goal} in half of its runs or fewer: {got_there}."
        return f"{job} did not reach {goal}: {got_there}."
    fastest, slowest = done.iloc[0], done.iloc[-1]
    best, worst = (plots.seconds_text(row["time_median_s"]) for row in (fastest, slowest))
    sentence = f"{job} reached {goal} in {best} ({_basis(fastest)}) on {_place(fastest, done)}"
    if len(done) > 1:
        sentence += f" and {worst} on {_place(slowest, done)}: {_sooner(fastest, slowest)}"
    if len(missed):
        sentence += f"; not by half of the runs on {', '.join(_place(row, summary) for _, row in missed.iterrows())}"
    return sentence + "."


def _sooner(fastest: pd.Series, slowest: pd.Series) -> str:
    """How many times as fast as the slowest the fastest was, where the interval allows a claim."""
    if fastest["disturbed"] or slowest["disturbed"]:
        return "how much sooner is not claimed, because other programs disturbed these runs"
    ratio, low, high = (slowest[name] for name in ("speed_up", "speed_up_low", "speed_up_high"))
    if math.isnan(ratio):
        return "how much sooner is not claimed, which takes three seeds of each that all reach it"
    if math.isclose(low, high, rel_tol=1e-9):
        return f"{ratio:.1f}× sooner, the same for every seed: this ratio was measured once"
    if low <= 1:
        interval = f"95 % CI {low:.2f} – {high:.2f}×, {slowest['speed_up_seeds']} seeds"
        return f"no difference that could not be chance ({interval})"
    several = f"; they differ in {listed(slowest['differs_in'])}" if len(slowest["differs_in"]) > 1 else ""
    return f"{ratio:.1f}× sooner (95 % CI {low:.2f} – {high:.2f}×, {slowest['speed_up_seeds']} seeds{several})"


def _basis(row: pd.Series) -> str:
    if row["runs"] == 1:
        return "one run"
    if row["reached"] < row["runs"]:
        return f"median, {row['reached']} of {row['runs']} runs reached it"
    return f"median of {row['runs']} runs"


def _place(row: pd.Series, among: pd.DataFrame) -> str:
    own = runs.Series.of(row.to_dict())
    several = sum(runs.Series.of(other).label == own.label for other in among.to_dict("records")) > 1
    label = own._replace(budget=plots.budget_words(own.budget)).label
    return f"{label} ({own.provenance})" if several else label


def notes(summary: pd.DataFrame) -> list[str]:
    """Notes under the table: how rows differ, why cells are empty, what costs rest on; each reason once."""
    lines = []
    for _, rows in summary.groupby("job", sort=False):
        fastest = runs.Series.of(rows.iloc[int(rows["time_median_s"].to_numpy().argmin())]).label
        for row in rows.to_dict("records"):
            who = f"{job_name(row['job'])}, {runs.Series.of(row).label}"
            if len(row["differs_in"]) > 1:
                what = listed(row["differs_in"])
                lines.append(
                    f"{who} differs from the fastest, {fastest}, in {what}: which of them made the difference is not "
                    "known."
                )
            if row["disturbed"]:
                lines.append(
                    f"{who}: other programs disturbed {row['disturbed']} of {row['runs']} runs. "
                    "`labkit report --undisturbed` omits them."
                )
    for subject, rows in (("Energy", summary[summary["energy_j"].isna()]), ("Cost", summary)):
        for reason, own in rows.groupby(f"{subject.lower()}_note", sort=False):
            labels = dict.fromkeys(runs.Series.of(row).label for row in own.to_dict("records"))
            where = "" if len(own) == len(summary) else f" ({', '.join(labels)})"
            lines.append(f"{subject}{where}: {reason}.")
    return lines


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["budget", "threads_wait", "precision"])
    'budget, how threads wait and precision'
    """
    names = ["how threads wait" if name == "threads_wait" else name for name in names]
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), names[-1]])


def page_facts(records: list[runs.RunRecord], left_out: Sequence[str] = ()) -> dict[str, str]:
    """The facts at the head of the page by their terms, in order; with notes about runs that could not be read."""
    if not records:
        return {}
    status = ", ".join(f"{count} {name}" for name, count in Counter(each.status for each in records).most_common())
    first, last = (pick(record.started_at for record in records)[:16].replace("T", " ") for pick in (min, max))
    kinds = dict.fromkeys(record.provenance.kind for record in records)
    facts = {
        "Runs": f"{plots.count_text(len(records))} ({status})",
        "Machine": _each(map(_machine, records)),
        "When": first if first == last else f"{first} to {last}",
        "Software": _each(
            ", ".join(f"{name} {software[name]}" for name in VERSIONS_SHOWN if software.get(name))
            for software in (record.software for record in records)
        ),
        "Provenance": "; ".join(f"{kind}: {PROVENANCE_MEANS.get(kind, kind)}" for kind in kinds),
    }
    return facts | ({"Left out": " ".join(left_out)} if left_out else {})


def frames_facts(table: pd.DataFrame) -> dict[str, str]:
    """The same of runs that come as frames: what was recorded by whom, on what, and when.

    Raises:
        UserError: a recording among them has no times, which a page about time to accuracy needs.
    """
    facts = {"Runs": plots.count_text(len(table))}
    for (host, provenance), own in table.groupby(["host", "provenance"], sort=False):
        if own["wall_s"].isna().all():
            raise UserError(
                f"recording {host!r} has no times, only how much training a target takes: draw it with "
                "labkit.plots.figure_batch_size."
            )
        if provenance in PROVENANCE_MEANS:
            facts[f"{provenance} on {host}"] = PROVENANCE_MEANS[provenance]
        else:
            card = runs.read_card(own["recording"].iloc[0])
            facts[provenance] = f"{card.authors}, on {', '.join(own['device'].unique())}; {card.date}."
            facts[f"not to be read from {card.cite}"] = card.cannot_say
    return {name[0].upper() + name[1:]: words for name, words in facts.items()}


def _each(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts))) or "not recorded"


def _machine(record: runs.RunRecord) -> str:
    devices = []
    for device in record.devices:
        facts = [device.get("name", "unnamed device")]
        cores = device.get("machine_cores") or device.get("cores")  # the second is what a budget left
        facts += [f"{cores} core{'s' * (cores > 1)}"] if cores else []
        memory_bytes = device.get("memory_bytes")
        facts += [f"{memory_bytes / 2**30:.1f} GiB"] if memory_bytes else []
        devices.append(", ".join(facts))
    return f"{' + '.join(devices)} ({record.host})"
