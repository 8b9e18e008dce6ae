"""The Python packages labkit asks for, as installed here; nothing is imported to find out."""

from __future__ import annotations

import re
from importlib import metadata

EXTRAS = {
    "core": "labkit needs it",
    "fast": "training steps and data preparation are faster with it",
    "lab": "the notebooks need it",
}
"""What of labkit a package is for: every command, or the extra of that name; and what its lack means."""


def requirements() -> dict[str, tuple[str, str]]:
    """By package what labkit asks for, as `pip` takes it, and for which of `EXTRAS`; none where it is not installed."""
    try:
        listed = metadata.requires("labkit") or []
    except metadata.PackageNotFoundError:
        return {}
    found = {}
    for line in listed:
        asked, _, marker = (part.strip() for part in line.partition(";"))
        extra = re.search(r"extra == ['\"](\w+)", marker)
        need, name = extra[1] if extra else "core", re.match(r"[\w.-]+", asked)[0]
        if need in EXTRAS and name != "labkit":
            found[name] = asked, need
    return found


def package_versions() -> dict[str, str | None]:
    """Return the version of every package labkit asks for, None where it is missing."""
    return {package: installed_version(package) for package in requirements()}


def installed_version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
