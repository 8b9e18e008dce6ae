"""What the wheel holds, and that it works away from the checkout."""

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

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
