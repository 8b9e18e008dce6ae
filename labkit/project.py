"""Where the project is: its public address, and the data that ships with it.

Change the address here, and the tests say which other files to change.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

REPOSITORY = "https://github.com/OWNER/labkit"
"""The public address. `OWNER` is a placeholder until the project has a home."""

BRANCH = "main"
"""The branch that badges and links open."""

SLUG = REPOSITORY.removeprefix("https://github.com/")
"""`owner/name`, as services that open GitHub repositories want it."""


def binder_url(path: str) -> str:
    """The address that opens a file of the repository in JupyterLab on Binder."""
    return f"https://mybinder.org/v2/gh/{SLUG}/{BRANCH}?urlpath=lab/tree/{quote(path)}"


def colab_url(path: str) -> str:
    """The address that opens a notebook of the repository on Colab."""
    return f"https://colab.research.google.com/github/{SLUG}/blob/{BRANCH}/{quote(path)}"


def shipped_datasets() -> Path:
    """The folder of what ships: `datasets/` of the checkout, else the copy inside the installed package."""
    package = Path(__file__).resolve().parent
    checkout = package.parent / "datasets"
    return checkout if (checkout / "schemas").is_dir() else package / "_datasets"


def shipped_sweeps() -> Path:
    """The folder of the studies that ship: `sweeps/` of the checkout, else the copy inside the installed package."""
    package = Path(__file__).resolve().parent
    checkout = package.parent / "sweeps"
    return checkout if checkout.is_dir() else package / "_sweeps"
