"""What was run, where, when and with what: the head of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from labkit.plots.words import count_text
from labkit.runs import RunRecord

PROVENANCE_MEANS = {
    "measured": "measured on this whole machine",
    "emulated": "measured on this machine under a smaller budget",
    "recorded": "measured on another machine and shipped",
    "predicted": "calculated by a model, not run",
}
VERSIONS_SHOWN = ("labkit", "python", "torch", "numpy", "cuda")


def page_facts(records: list[RunRecord], left_out: Iterable[str] = ()) -> dict[str, str]:
    """Term and words, in the order in which the page shows them.

    Args:
        records: of the runs.
        left_out: notes of what could not be read.
    """
    if not records:
        return {}
    facts = {
        "Runs": _runs(records),
        "Machine": _each(records, _machine),
        "When": _when(records),
        "Software": _each(records, _versions),
        "Provenance": "; ".join(
            f"{kind}: {PROVENANCE_MEANS.get(kind, kind)}"
            for kind in dict.fromkeys(record.provenance.kind for record in records)
        ),
    }
    return facts | ({"Left out": " ".join(left_out)} if left_out else {})


def _runs(records: list[RunRecord]) -> str:
    status = Counter(record.status for record in records)
    each = ", ".join(f"{number} {name}" for name, number in status.most_common())
    return f"{count_text(len(records))} ({each})"


def _each(records: list[RunRecord], words) -> str:
    return "; ".join(dict.fromkeys(text for text in map(words, records) if text)) or "not recorded"


def _machine(record: RunRecord) -> str:
    return " + ".join(_device(device) for device in record.devices) + f" ({record.host})"


def _device(device: dict) -> str:
    cores = f", {device['cores']} cores" if device.get("cores") else ""
    memory = f", {device['memory_bytes'] / 2**30:.1f} GiB" if device.get("memory_bytes") else ""
    return f"{device.get('name', 'unnamed device')}{cores}{memory}"


def _when(records: list[RunRecord]) -> str:
    first, last = (pick(record.started_at for record in records)[:16].replace("T", " ") for pick in (min, max))
    return first if first == last else f"{first} to {last}"


def _versions(record: RunRecord) -> str:
    software = record.software
    return ", ".join(f"{name} {software[name]}" for name in VERSIONS_SHOWN if software.get(name))
