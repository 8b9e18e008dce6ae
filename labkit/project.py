"""The project: its version, its public address, and the data that ships with it.

The version stands only here.

Set the address here. `labkit course build --force` then writes badges and the cell for Colab into the notebooks, and
`make docs` links to the repository; tests/test_project.py names the other files that need the address.
"""

import os
from pathlib import Path
from urllib.parse import quote

VERSION = "0.1.0"
"""Version of the package; pyproject reads it from here."""

REPOSITORY: str = ""
"""The public address on GitHub, such as https://github.com/pytorch/pytorch; empty while the project has none."""

BRANCH = "main"
"""Branch that badges and links open."""


def slug() -> str:
    """The address as `owner/name`, the form in which Binder and Colab take it."""
    return REPOSITORY.removeprefix("https://github.com/")


def binder_url(path: str) -> str:
    """The address that opens a file of the repository in JupyterLab on Binder."""
    return f"https://mybinder.org/v2/gh/{slug()}/{BRANCH}?urlpath=lab/tree/{quote(path)}"


def colab_url(path: str) -> str:
    """The address that opens a notebook of the repository on Colab."""
    return f"https://colab.research.google.com/github/{slug()}/blob/{BRANCH}/{quote(path)}"


def cache_root() -> Path:
    """The folder of what can be made again: `$LABKIT_CACHE`, or else the user's cache folder."""
    import platformdirs

    chosen = os.environ.get("LABKIT_CACHE")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("labkit", appauthor=False)


def shipped_datasets() -> Path:
    """Folder of the data that ships: `datasets/` of the checkout, else the copy inside the installed package."""
    package = Path(__file__).resolve().parent
    checkout = package.parent / "datasets"
    return checkout if (checkout / "schemas").is_dir() else package / "_datasets"


def shipped_sweeps() -> Path:
    """Folder of the studies that ship: `sweeps/` of the checkout, else the copy inside the installed package."""
    data = shipped_datasets()
    return data.with_name(data.name.replace("datasets", "sweeps"))
