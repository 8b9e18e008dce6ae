"""The public address is written in labkit/project.py; whatever else names one must name the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from labkit import __version__, project

REPOSITORY = Path(__file__).parents[1]
TEXT_SUFFIXES = {".cff", ".ipynb", ".md", ".py", ".toml", ".yml", ".yaml", ".html", ".js", ""}
ADDRESS = re.compile(
    r"(?:github\.com|mybinder\.org/v2/gh|colab\.research\.google\.com/github)/([\w.-]+/labkit)\b",
    re.IGNORECASE,
)


def text_files():
    """Every text file of the checkout that git does not ignore by name."""
    for path in sorted(REPOSITORY.rglob("*")):
        parts = path.relative_to(REPOSITORY).parts
        hidden = any(part.startswith(".") and part != ".ci" for part in parts)
        ignored = hidden or parts[0] in ("runs", "report", "dist")
        if not ignored and path.suffix in TEXT_SUFFIXES and path.is_file():
            yield path


def test_no_file_names_another_address():
    others = {
        (str(path.relative_to(REPOSITORY)), slug)
        for path in text_files()
        for slug in ADDRESS.findall(path.read_text(encoding="utf-8", errors="replace"))
        if slug != project.SLUG
    }
    assert others == set(), "write the address of labkit/project.py in these files"


def test_citation_and_package_carry_the_address_and_the_version():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    package = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["repository-code"] == project.REPOSITORY
    assert set(package["urls"].values()) == {project.REPOSITORY}
    assert str(citation["version"]) == package["version"] == __version__
    assert citation["license"] == package["license"]
    # what CFF 1.2.0 requires of every file
    assert citation["cff-version"] == "1.2.0" and citation["message"] and citation["title"] == "labkit"
    assert citation["authors"] == [{"name": package["authors"][0]["name"]}]


def test_links_follow_the_address():
    path = "notebooks/00_start_here.ipynb"
    assert project.binder_url(path) == f"https://mybinder.org/v2/gh/{project.SLUG}/main?urlpath=lab/tree/{path}"
    assert project.colab_url(path) == f"https://colab.research.google.com/github/{project.SLUG}/blob/main/{path}"
