"""environment.yml and binder/ say the same as pyproject.toml, the one list of requirements."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
# conda-forge's name of a package where it differs from the index's.
PIP_NAMES = {"pytorch-cpu": "torch"}


def environment(name: str) -> dict:
    return yaml.safe_load((REPOSITORY / name).read_text(encoding="utf-8"))


def conda_requirements(name: str) -> dict[str, SpecifierSet]:
    """Conda's part of an environment, by its names; `=3.12` means any 3.12 there."""
    lines = [line for line in environment(name)["dependencies"] if isinstance(line, str)]
    requirements = [Requirement(re.sub(r"^(\w+)=([\d.]+)$", r"\1==\2.*", line)) for line in lines]
    return {each.name: each.specifier for each in requirements}


def test_conda_takes_python_and_torch_in_the_ranges_of_pyproject_and_pip_the_rest():
    conda = conda_requirements("environment.yml")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert conda_requirements("binder/environment.yml") == conda
    assert {"pytorch-cpu", "pip", "python"} <= set(conda)
    required = {canonicalize_name(each.name): each.specifier for each in map(Requirement, project["dependencies"])}
    for package in conda.keys() - {"python", "pip"}:
        assert conda[package] == required[canonicalize_name(PIP_NAMES.get(package, package))], package
    (python,) = conda["python"]
    assert SpecifierSet(project["requires-python"]).contains(python.version.removesuffix(".*"))
    for name in ("environment.yml", "binder/environment.yml"):
        assert environment(name)["channels"] == ["conda-forge", "nodefaults"]
    assert environment("environment.yml")["dependencies"][-1] == {"pip": ["-e .[lab]"]}
    assert "lab" in project["optional-dependencies"]
    post_build = REPOSITORY / "binder" / "postBuild"
    assert '--editable ".[lab]"' in post_build.read_text(encoding="utf-8")
    assert os.access(post_build, os.X_OK)
    (start,) = re.findall(r'"default_url": "/lab/tree/([^"]+)"', post_build.read_text(encoding="utf-8"))
    installed = re.findall(r"binder/jupyter/\S+\.json", post_build.read_text(encoding="utf-8"))
    assert len(installed) == 2 and all((REPOSITORY / each).is_file() for each in (start, *installed))


def test_repo2docker_makes_a_dockerfile_of_binder():
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(REPOSITORY)]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    for line in ('env update -p ${NB_PYTHON_PREFIX} --file "binder/environment.yml"', "RUN ./binder/postBuild"):
        assert line in made.stdout + made.stderr
