"""The Python packages labkit uses, as installed here; nothing is imported to find out."""

from __future__ import annotations

import re
from importlib import metadata

PACKAGES = {
    "torch": "core",
    "numpy": "core",
    "pandas": "core",
    "scipy": "core",
    "pyarrow": "core",
    "duckdb": "core",
    "soundfile": "core",
    "jiwer": "core",
    "plotly": "core",
    "pooch": "core",
    "psutil": "core",
    "rich": "core",
    "nvidia-ml-py": "core",
    "numba": "fast",
    "jupyterlab": "lab",
    "ipykernel": "lab",
    "ipywidgets": "lab",
    "anywidget": "lab",
    "papermill": "lab",
}
"""Each package, and what of labkit needs it: `core`, or the extra of that name."""


def installed_version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def package_versions() -> dict[str, str | None]:
    """Return the version of every package labkit uses, None where it is missing."""
    return {package: installed_version(package) for package in PACKAGES}


def install_command(packages: list[str]) -> str:
    """Return the command that installs these packages, in the versions labkit asks for."""
    asked = _requirements()
    return "python -m pip install " + " ".join(f'"{asked.get(package, package)}"' for package in packages)


def _requirements() -> dict[str, str]:
    # labkit's own metadata; a source tree that was never installed has none
    try:
        listed = metadata.requires("labkit") or []
    except metadata.PackageNotFoundError:
        return {}
    requirements = [requirement.partition(";")[0].strip() for requirement in listed]
    return {re.match(r"[\w.-]+", requirement)[0]: requirement for requirement in requirements}
