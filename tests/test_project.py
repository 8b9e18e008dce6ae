"""The public address is set in labkit/project.py and named nowhere else; style checks; labkit without a numba."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from labkit import __version__, project
from labkit.compiled import SWITCH, why_not_compiled

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


TY_OPTIONS = ["--output-format", "concise", "--python", sys.prefix]
CHECKS = {
    "ruff finds nothing": [sys.executable, "-m", "ruff", "check", "--no-cache", "."],
    "ruff would format nothing": [sys.executable, "-m", "ruff", "format", "--no-cache", "--check", "."],
    "imports run one way": [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
    "types fit": [str(Path(sys.executable).with_name("ty")), "check", *TY_OPTIONS],
}


@pytest.mark.parametrize("check", CHECKS)
def test_style(check):
    done = subprocess.run(CHECKS[check], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(CHECKS[check])}\n{done.stdout}{done.stderr}"


def test_files_that_may_exist_are_replaced_in_one_step():
    """By `replace_text`; here is what else writes text: to a temporary or new file, to the kernel, or to a lock."""
    sources = [path for package in ("labkit", "labkit_course") for path in (REPOSITORY / package).rglob("*.py")]
    found = {path.relative_to(REPOSITORY).as_posix() for path in sources if ".write_text(" in path.read_text()}
    assert found == {
        "labkit/data/store.py", "labkit/launch/launches.py",
        "labkit/runs/safe_files.py", "labkit/telemetry/sources/host.py",
        "labkit_course/labs/11_what_makes_dlrm_slow.py", "labkit_course/runner.py", "labkit_course/submission.py",
        "labkit/runs/ranks.py", "labkit_course/apparatus/made_up_runs.py", "labkit_course/classroom.py",
        "labkit_course/labs/90_capstone.py",
    }  # fmt: skip


USE = """
import torch
from labkit.compiled import why_not_compiled
from labkit.fast.optimisers import fast_optimisers
from labkit.fast.dlrm import EmbeddingTables
fast_optimisers((torch.optim.SGD, torch.optim.SGD), [torch.nn.Parameter(torch.ones(1))], EmbeddingTables([3], 2), 0.1)
print(why_not_compiled())
"""


def test_a_numba_that_is_broken_is_done_without(tmp_path):
    (tmp_path / "numba.py").write_text('raise ImportError("Numba needs NumPy 2.3 or less.")')
    environment = {name: value for name, value in os.environ.items() if name != SWITCH}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    answer = subprocess.run([sys.executable, "-c", USE], env=environment, capture_output=True, text=True)
    assert answer.stdout == "numba does not work here (Numba needs NumPy 2.3 or less.)\n", answer.stderr


def test_the_switch_turns_compiled_kernels_off(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    assert SWITCH in why_not_compiled()
