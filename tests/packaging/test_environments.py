"""environment.yml and binder/ say the same as pyproject.toml, the one list of requirements."""

from __future__ import annotations

import json
import os
import re
import shutil
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


def project_table() -> dict:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def environment(name: str) -> dict:
    return yaml.safe_load((REPOSITORY / name).read_text(encoding="utf-8"))


def conda_requirements(name: str) -> dict[str, SpecifierSet]:
    """Conda's part of an environment, by its names; `=3.12` means any 3.12 there."""
    found = {}
    for line in environment(name)["dependencies"]:
        if isinstance(line, str):
            requirement = Requirement(re.sub(r"^(\w+)=([\d.]+)$", r"\1==\2.*", line))
            found[requirement.name] = requirement.specifier
    return found


def test_conda_takes_python_and_torch_in_the_ranges_of_pyproject_and_pip_the_rest():
    conda, project = conda_requirements("environment.yml"), project_table()
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


def test_repo2docker_makes_a_dockerfile_of_binder():
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(REPOSITORY)]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    dockerfile = made.stdout + made.stderr
    assert 'env update -p ${NB_PYTHON_PREFIX} --file "binder/environment.yml"' in dockerfile
    assert "RUN ./binder/postBuild" in dockerfile


def test_a_server_configured_as_binders_opens_the_first_notebook_in_jupyterlab(tmp_path):
    shutil.copy(REPOSITORY / "binder" / "jupyter_server_config.json", tmp_path)
    command = [sys.executable, "-m", "jupyter_server", "--show-config-json"]
    environment = os.environ | {"JUPYTER_CONFIG_DIR": str(tmp_path)}
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    address = json.loads(shown.stdout)["ServerApp"]["default_url"]
    assert address.startswith("/lab/tree/")
    assert (REPOSITORY / address.removeprefix("/lab/tree/")).is_file()
