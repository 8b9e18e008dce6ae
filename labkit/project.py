"""Where the project lives in public: change it here, and the tests say which other files to change."""

from __future__ import annotations

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
