"""The wheel, its environments, what an import loads, and the docs."""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]


def shipped_files(folder: str) -> set[str]:
    """Files of a folder of the checkout, relative to it, without what Python and git keep for themselves."""
    root = REPOSITORY / folder
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != ".gitkeep"
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_holds_the_package_and_the_shipped_datasets_and_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        assert "labkit = labkit.cli:main" in archive.read(f"{info}/entry_points.txt").decode()
    assert f"{info}/licenses/LICENSE" in names and metadata["License-Expression"] == "Apache-2.0"
    assert {f"labkit/{name}" for name in shipped_files("labkit")} <= names
    for folder in ("speech", "schemas", "recorded"):
        shipped = shipped_files(f"datasets/{folder}")
        assert shipped and {f"labkit/_datasets/{folder}/{name}" for name in shipped} <= names
    assert {f"labkit/_sweeps/{name}" for name in shipped_files("sweeps")} <= names
    assert {name.split("/")[0] for name in names} == {"labkit", "labkit_course", info}
    assert not [name for name in names if name.endswith((".pyc", ".tmp"))]


def test_installed_labkit_finds_its_datasets_and_its_command(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    program = "import labkit.cli, labkit.project as s; print(s.shipped_datasets()); labkit.cli.main(['tiers'])"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, *tiers = done.stdout.splitlines()
    assert Path(found) == tmp_path / "site" / "labkit" / "_datasets" and tiers


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
    assert (REPOSITORY / start).is_file()


@pytest.mark.parametrize("hub", [False, True])
def test_repo2docker_makes_a_dockerfile_of_binder(hub):
    docs = (REPOSITORY / "docs" / "instructors.md").read_text(encoding="utf-8")
    values = environment("binder/hub.yaml")["singleuser"]
    (image,) = re.findall(r"^jupyter-repo2docker (.*) \.$", docs, re.MULTILINE)
    assert f"--image-name {values['image']['name']}:{values['image']['tag']}" in image
    assert "--target-repo-dir /srv/labkit " in image and " /srv/labkit/" in str(values["lifecycleHooks"])
    more = image.replace("--no-run ", "").split() if hub else []
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", *more, str(REPOSITORY)]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    for line in ('env update -p ${NB_PYTHON_PREFIX} --file "binder/environment.yml"', "RUN ./binder/postBuild"):
        assert line in made.stdout + made.stderr


HEAVY = ("torch", "pandas", "plotly", "scipy", "pyarrow")
COMMANDS = ("--version", "--help", "train --help", "run --help", "tiers", "runs --help", "data --help")
# Runs commands as the console script does; says which modules are loaded before the first and after each.
PROGRAM = """
import contextlib, io, json, sys
import labkit, labkit.cli
print(json.dumps([*sys.modules]))
for command in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            assert not labkit.cli.main(command.split())
        except SystemExit as end:
            assert not end.code
    print(json.dumps([*sys.modules]))
"""


def test_commands_start_without_heavy_libraries_and_without_each_other(tmp_path):
    program = [sys.executable, "-c", PROGRAM, *COMMANDS]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command, loaded in zip(("", *COMMANDS), map(json.loads, done.stdout.splitlines()), strict=True):
        assert not {name.partition(".")[0] for name in loaded} & {*HEAVY}, command
    assert "labkit.cli.machine" in loaded and "labkit.cli.sweep" not in loaded


BEFORE_TRAINING = {
    # they count the cores once, when they are loaded, and a process is bound to its cores before
    "import argparse, labkit.jobs.settings, labkit.tracking.worker, labkit.cli.run as run\n"
    "flags = argparse.Namespace(budget='one-core', sample_hz=1, runs_dir='', no_wait=True)\n"
    "run.harness_command(flags, labkit.tracking.harness.ScriptCommand('train.py'))": ("numpy", "torch"),
    f"import labkit.launch.mix_file as mix; mix.parse_jobs({__file__!r} + ' x2, dlrm')": ("torch", "pandas", "pyarrow"),
    "import labkit.hardware.doctor as doctor; doctor.examine()": ("torch", "numpy", "pandas", "plotly"),
}


@pytest.mark.parametrize("code", BEFORE_TRAINING)
def test_what_comes_before_training_loads_no_heavy_library(code):
    code = f"{code}\nimport sys; print(*{{*{BEFORE_TRAINING[code]!r}}} & {{*sys.modules}})"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"\n"


def test_an_import_of_a_package_that_moved_says_where_it_is():
    with pytest.raises(ModuleNotFoundError, match=r"labkit\.course is labkit_course now"):
        importlib.import_module("labkit.course")


def test_the_docs_build_without_a_broken_link(tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'id="labkit.Run.evaluate"' in (tmp_path / "api/run/index.html").read_text(encoding="utf-8")
