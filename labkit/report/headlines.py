"""The head of the page: the answer in a sentence a job; what was run, where, when and with what."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import pandas as pd

from labkit.errors import UserError
from labkit.plots import budget_words, count_text, is_not_known, seconds_text
from labkit.report.table import goal_text, in_words, job_name
from labkit.runs import RunRecord, read_card

PROVENANCE_MEANS = {
    "measured": "measured on this whole machine",
    "emulated": "measured on this machine under a smaller budget",
    "recorded": "measured on another machine and shipped",
    "predicted": "calculated by a model, not run",
}
VERSIONS_SHOWN = ("labkit", "python", "torch", "numpy", "cuda")


def headline(summary: pd.DataFrame) -> str:
    """What the rows of one job say about its target: the fastest and the slowest budget, and how far apart."""
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
        if all(is_not_known(row["time_median_s"], row["failed"], row["runs"]) for row in summary.to_dict("records")):
            return f"{job} was cut off too often to say how long {goal} takes: {got_there}."
        if summary["reached"].sum():
            return f"{job} reached {goal} in half of its runs or fewer: {got_there}."
        return f"{job} did not reach {goal}: {got_there}."
    fastest, slowest = done.iloc[0], done.iloc[-1]
    best, worst = (seconds_text(row["time_median_s"]) for row in (fastest, slowest))
    sentence = f"{job} reached {goal} in {best} ({_basis(fastest)}) on {_place(fastest, done)}"
    if len(done) > 1:
        sentence += f" and {worst} on {_place(slowest, done)}: {_sooner(fastest, slowest)}"
    if len(missed):
        sentence += f"; not by half of the runs on {', '.join(_place(row, summary) for _, row in missed.iterrows())}"
    return sentence + "."


def _sooner(fastest: pd.Series, slowest: pd.Series) -> str:
    """How many times as soon as the slowest the fastest was, where the interval lets one say so."""
    if fastest["disturbed"] or slowest["disturbed"]:
        return "how much sooner is not claimed, because other programs disturbed these runs"
    ratio, low, high = (slowest[name] for name in ("speed_up", "speed_up_low", "speed_up_high"))
    if math.isnan(ratio):
        return "how much sooner is not claimed, which takes three seeds of each that all reach it"
    if math.isclose(low, high, rel_tol=1e-9):
        return f"{ratio:.1f}× sooner, the same for every seed: this ratio was measured once"
    if low <= 1:
        return f"no difference to tell from chance (95 % CI {low:.2f} – {high:.2f}×, {slowest['speed_up_seeds']} seeds)"
    several = f"; they differ in {in_words(slowest['differs_in'])}" if len(slowest["differs_in"]) > 1 else ""
    return f"{ratio:.1f}× sooner (95 % CI {low:.2f} – {high:.2f}×, {slowest['speed_up_seeds']} seeds{several})"


def _basis(row: pd.Series) -> str:
    if row["runs"] == 1:
        return "one run"
    if row["reached"] < row["runs"]:
        return f"median, {row['reached']} of {row['runs']} runs reached it"
    return f"median of {row['runs']} runs"


def _place(row: pd.Series, among: pd.DataFrame) -> str:
    several = (among["budget"] == row["budget"]).sum() > 1
    return budget_words(row["budget"]) + (f" ({row['provenance']})" if several else "")


def page_facts(records: list[RunRecord], left_out: Iterable[str] = ()) -> dict[str, str]:
    """Term and words, in the order in which the page shows them; with notes of what could not be read."""
    if not records:
        return {}
    status = ", ".join(f"{count} {name}" for name, count in Counter(each.status for each in records).most_common())
    first, last = (pick(record.started_at for record in records)[:16].replace("T", " ") for pick in (min, max))
    kinds = dict.fromkeys(record.provenance.kind for record in records)
    facts = {
        "Runs": f"{count_text(len(records))} ({status})",
        "Machine": _each(map(_machine, records)),
        "When": first if first == last else f"{first} to {last}",
        "Software": _each(map(_versions, records)),
        "Provenance": "; ".join(f"{kind}: {PROVENANCE_MEANS.get(kind, kind)}" for kind in kinds),
    }
    return facts | ({"Left out": " ".join(left_out)} if left_out else {})


def frames_facts(runs: pd.DataFrame) -> dict[str, str]:
    """Term and words of runs that come as frames: what was recorded by whom, on what, and when.

    Raises:
        UserError: a recording among them has no times, which a page about time to accuracy needs.
    """
    facts = {"Runs": count_text(len(runs))}
    for (host, provenance), own in runs.groupby(["host", "provenance"], sort=False):
        if own["wall_s"].isna().all():
            raise UserError(
                f"recording {host!r} says how much training a target takes, and nothing of the time: draw it with "
                "labkit.plots.figure_batch_size."
            )
        if provenance in PROVENANCE_MEANS:
            facts[f"{provenance} on {host}"] = PROVENANCE_MEANS[provenance]
        else:
            card = read_card(own["recording"].iloc[0])
            facts[provenance] = f"{card.authors}, on {', '.join(own['device'].unique())}; {card.date}."
            facts[f"not to be read from {card.cite}"] = card.cannot_say
    return {name[0].upper() + name[1:]: words for name, words in facts.items()}


def _each(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts))) or "not recorded"


def _machine(record: RunRecord) -> str:
    devices = []
    for device in record.devices:
        facts = [device.get("name", "unnamed device")]
        cores = device.get("machine_cores") or device.get("cores")  # the second is what a budget left
        facts += [f"{cores} core{'s' * (cores > 1)}"] if cores else []
        facts += [f"{device['memory_bytes'] / 2**30:.1f} GiB"] if device.get("memory_bytes") else []
        devices.append(", ".join(facts))
    return f"{' + '.join(devices)} ({record.host})"


def _versions(record: RunRecord) -> str:
    return ", ".join(f"{name} {record.software[name]}" for name in VERSIONS_SHOWN if record.software.get(name))
