"""The public address is set in labkit/project.py; other files name that one, and none while there is none."""

import re
import tomllib
from pathlib import Path

import yaml

from labkit import __version__, project

REPOSITORY = Path(__file__).parents[1]
TEXT_SUFFIXES = {".cff", ".ipynb", ".md", ".py", ".toml", ".yml", ".yaml", ".html", ".js", ""}
ADDRESS = re.compile(
    r"(?:github\.com|mybinder\.org/v2/gh|colab\.research\.google\.com/github)/([\w.-]+/labkit)\b", re.IGNORECASE
)


def test_no_file_names_another_address():
    found = {}
    for path in REPOSITORY.rglob("*"):
        parts = path.relative_to(REPOSITORY).parts
        hidden = any(part.startswith(".") and part != ".ci" for part in parts) or parts[0] in ("runs", "report", "dist")
        if not hidden and path.suffix in TEXT_SUFFIXES and path.is_file():
            found[path] = set(ADDRESS.findall(path.read_text(encoding="utf-8", errors="replace")))
    others = {str(path): slugs for path, slugs in found.items() if slugs - {project.slug()}}
    assert others == {}, "write the address of labkit/project.py in these files"


def test_the_readme_says_where_the_code_is_once_it_has_an_address():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for wanted in (f"git clone {project.REPOSITORY}", project.binder_url("notebooks/00_start_here.ipynb")):
        assert not project.REPOSITORY or wanted in readme, f"write {wanted} into README.md"


def test_citation_and_package_carry_the_address_and_the_version():
    address = project.REPOSITORY
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    package = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation.get("repository-code", "") == address, f"write repository-code: {address!r} into CITATION.cff"
    urls = {"Source": address} if address else {}
    assert package.get("urls", {}) == urls, f"write [project.urls] into pyproject.toml: {urls}"
    assert str(citation["version"]) == __version__ and package["dynamic"] == ["version"]  # read from labkit/project.py
    assert citation["license"] == package["license"]
    # what CFF 1.2.0 requires of every file
    assert citation["cff-version"] == "1.2.0" and citation["message"] and citation["title"] == "labkit"
    assert citation["authors"] == [{"name": package["authors"][0]["name"]}]
