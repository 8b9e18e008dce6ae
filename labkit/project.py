"""Where the project is: its public address, and the data that ships with it.

Set the address here. `labkit course build --force` then writes badges and the cell for Colab into the notebooks, and
`make docs` links to the repository; tests/test_project.py names the other files that need the address.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

REPOSITORY = ""
"""The public address on GitHub, such as https://github.com/pytorch/pytorch; empty while the project has none."""

BRANCH = "main"
"""The branch that badges and links open."""


def slug() -> str:
    """The address as `owner/name`, the form in which Binder and Colab take it."""
    return REPOSITORY.removeprefix("https://github.com/")


def binder_url(path: str) -> str:
    """The address that opens a file of the repository in JupyterLab on Binder."""
    return f"https://mybinder.org/v2/gh/{slug()}/{BRANCH}?urlpath=lab/tree/{quote(path)}"


def colab_url(path: str) -> str:
    """The address that opens a notebook of the repository on Colab."""
    return f"https://colab.research.google.com/github/{slug()}/blob/{BRANCH}/{quote(path)}"


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
