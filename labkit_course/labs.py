"""The notebooks of the course, and what each needs of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit.hardware import installed_version

EVERY_LAB = ("jupyterlab", "ipykernel", "torch", "pandas", "plotly")
"""Packages that every notebook needs"""
MEMORY_GB = 2.0
"""Every notebook has a path for two cores and 2 GB"""


@dataclass(frozen=True)
class Lab:
    """A notebook and its needs."""

    notebook: str
    title: str
    packages: tuple[str, ...] = ()
    """Beside those of every lab."""
    disk_gb: float = 0.1
    """Prepared data, cached features and run folders."""


LABS = (
    Lab("00_start_here", "Start here"),
    Lab("01_know_your_machine", "Know your machine"),
    Lab("02_budgets_that_bind", "Budgets that bind", ("scipy",)),
    Lab("10_train_dlrm", "Train a DLRM to a target", ("pyarrow",), disk_gb=0.5),
    Lab("11_what_makes_dlrm_slow", "What makes a DLRM slow", ("pyarrow",)),
    Lab("12_where_embeddings_live", "Where embeddings live", ("pyarrow",), disk_gb=0.5),
    Lab("13_batch_size_and_accuracy", "Batch size and accuracy", ("pyarrow", "scipy"), disk_gb=0.5),
    Lab("20_train_speech", "Train a speech recogniser to a target", ("soundfile", "scipy"), disk_gb=0.5),
    Lab("21_speech_on_budgets", "Speech recognition on three budgets", ("scipy", "soundfile"), disk_gb=0.5),
    Lab("30_what_utilisation_means", "What utilisation means"),
    Lab("31_the_observer_effect", "The observer effect", ("scipy",)),
    Lab("32_profile_top_down", "Profile top-down"),
    Lab("33_make_it_fast", "Make it fast", ("scipy",), disk_gb=0.5),
    Lab("34_clinics", "Clinics"),
    Lab("40_sharing_a_device", "Sharing a device", ("scipy",), disk_gb=0.5),
    Lab("41_when_a_neighbour_fails", "When a neighbour fails"),
    Lab("42_packing_a_queue", "Packing a queue", disk_gb=0.5),
    Lab("50_time_to_accuracy", "Time to accuracy", ("scipy",)),
    Lab("51_cost_and_energy", "Cost and energy", ("scipy", "soundfile")),
    Lab("60_performance_model", "A performance model"),
    Lab("62_what_if", "What if?", ("scipy",)),
)


def labs_on(machine: dict[str, Any]) -> list[dict[str, Any]]:
    """Which labs run on a machine, as `labkit.hardware.doctor.examine` gives it, and in words why the others do not."""
    memory_gb, free_gb = machine["memory"]["total_bytes"] / 1e9, machine["disk"]["free_bytes"] / 1e9
    report = []
    for lab in LABS:
        missing = [package for package in (*lab.packages, *EVERY_LAB) if installed_version(package) is None]
        obstacles = [f"not installed: {', '.join(missing)}"] if missing else []
        if memory_gb < MEMORY_GB:
            obstacles.append(f"needs {MEMORY_GB:g} GB of memory, here are {memory_gb:.1f}")
        if free_gb < lab.disk_gb:
            obstacles.append(f"needs {lab.disk_gb:g} GB of free disk, here are {free_gb:.1f}")
        why = "; ".join(obstacles) or None
        report.append({"notebook": lab.notebook, "title": lab.title, "runs": not obstacles, "why": why})
    return report
