"""The labs of this release and what each needs of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NOTEBOOK_PACKAGES = ("jupyterlab", "ipykernel")


@dataclass(frozen=True)
class Lab:
    """A notebook and its needs."""

    notebook: str
    title: str
    packages: tuple[str, ...]
    memory_gb: float = 2.0
    """Every lab has a path for two cores and 2 GB"""
    disk_gb: float = 0.5
    """Prepared data, cached features and run folders of the tour's size"""

    def obstacles(self, versions: Mapping[str, str | None], memory_bytes: int, disk_free_bytes: int) -> list[str]:
        """Return, in words, what keeps this lab from running."""
        missing = [package for package in (*self.packages, *NOTEBOOK_PACKAGES) if versions[package] is None]
        obstacles = [f"not installed: {', '.join(missing)}"] if missing else []
        if memory_bytes < self.memory_gb * 1e9:
            obstacles.append(f"needs {self.memory_gb:g} GB of memory, here are {memory_bytes / 1e9:.1f}")
        if disk_free_bytes < self.disk_gb * 1e9:
            obstacles.append(f"needs {self.disk_gb:g} GB of free disk, here are {disk_free_bytes / 1e9:.1f}")
        return obstacles


LABS = (
    Lab("00_start_here", "Start here", ("torch", "plotly"), disk_gb=0.1),
    Lab("01_know_your_machine", "Know your machine", ("torch", "pandas", "plotly"), disk_gb=0.1),
    Lab("02_budgets_that_bind", "Budgets that bind", ("torch", "pandas", "plotly"), disk_gb=0.1),
    Lab("10_train_dlrm", "Train a DLRM to a target", ("torch", "pandas", "pyarrow", "plotly")),
    Lab(
        "20_train_speech",
        "Train a speech recogniser to a target",
        ("torch", "soundfile", "jiwer", "plotly"),
    ),
    Lab("30_what_utilisation_means", "What utilisation means", ("torch", "pandas", "plotly"), disk_gb=0.1),
    Lab("31_the_observer_effect", "The observer effect", ("torch", "pandas", "plotly", "scipy"), disk_gb=0.1),
    Lab("32_profile_top_down", "Profile top-down", ("torch", "pandas", "plotly"), disk_gb=0.1),
    Lab("40_sharing_a_device", "Sharing a device", ("torch", "pandas", "duckdb", "plotly", "scipy")),
    Lab("41_when_a_neighbour_fails", "When a neighbour fails", ("torch", "pandas", "plotly"), disk_gb=0.1),
    Lab("42_packing_a_queue", "Packing a queue", ("torch", "pandas", "plotly")),
    Lab("50_time_to_accuracy", "Time to accuracy", ("pandas", "duckdb", "scipy", "plotly"), disk_gb=0.1),
)
