"""The Makefile's set-up, with stand-in Pythons: they answer its questions and write down what it asks for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
# `python -m venv --clear FOLDER` makes a folder whose python is a copy of the stand-in; pip calls are written
# to the log; the rest is for the real Python, unless this one plays an old Python or one without ensurepip.
STAND_IN = """#!/bin/sh
case "$*" in
    *version_info*) [ "$OLD" = {name} ] && exit 1; exec {python} "$@" ;;
    *ensurepip*) [ "$NO_ENSUREPIP" ] && exit 1; exit 0 ;;
    "-m venv --clear "*)
        echo "{name} venv" >> {log}; rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
    "-m pip "*) echo "pip $*" >> {log}; case "$*" in *"$FAIL_ON"*) exit 1 ;; esac ;;
    *) exec {python} "$@" ;;
esac
"""


class Checkout:
    """A checkout with the real Makefile; `make` runs it where only stand-ins of these names are."""

    def __init__(self, root: Path):
        self.folder, self.bin, self.log = root / "my labkit", root / "bin", root / "log"  # spaces are common
        self.stamp = self.folder / ".venv" / "labkit-is-set-up"
        for folder in (self.folder / "labkit", self.bin):
            folder.mkdir(parents=True)
        (self.folder / "labkit" / "__init__.py").touch()
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(REPOSITORY / name, self.folder)
        for name in ("cat", "echo", "rm", "printf", "find", "sh", "mkdir", "cp", "chmod"):
            (self.bin / name).symlink_to(shutil.which(name))

    def add_python(self, name: str = "python3") -> None:
        (self.bin / name).write_text(STAND_IN.format(python=sys.executable, name=name, log=self.log))
        (self.bin / name).chmod(0o755)

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        """Call make; `self.asked` is then what it asked of Python and pip."""
        self.log.write_text("")
        search = {"PATH": str(self.bin), "PYTHONPATH": str(self.folder), "FAIL_ON": "nothing fails"} | environment
        command = [shutil.which("make"), *arguments]
        done = subprocess.run(command, cwd=self.folder, env=search, capture_output=True, text=True)
        self.asked = self.log.read_text().splitlines()
        return done

    def set_up(self, *arguments: str, anew: str = "", **environment: str) -> None:
        """Set it up, which makes the environment anew with the Python of this name, or does not."""
        done = self.make("setup", *arguments, **environment)
        assert done.returncode == 0, done.stderr
        assert [line for line in self.asked if "venv" in line.split()] == [f"{anew} venv"] * bool(anew)


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    return Checkout(tmp_path)


def test_make_alone_lists_the_targets(checkout):
    done = checkout.make()
    assert done.returncode == 0
    assert all(f"make {target} " in done.stdout for target in ("setup", "tour", "test", "soak", "lab", "clean"))
    assert not (checkout.folder / ".venv").exists()


def test_setup_installs_torch_then_labkit_then_only_what_changed_and_clean_keeps_runs_and_reports(checkout):
    checkout.add_python("python3")
    checkout.add_python("python3.12")
    checkout.set_up(anew="python3.12", OLD="python3")
    assert checkout.asked[1].endswith(" install torch==2.13.0")
    assert checkout.asked[2].endswith(" install -e .[test]")
    checkout.set_up()
    assert checkout.asked == []
    later = checkout.stamp.stat().st_mtime + 10
    os.utime(checkout.folder / "pyproject.toml", (later, later))
    checkout.set_up()
    assert [line.split()[0] for line in checkout.asked] == ["pip", "pip"]
    for folder in ("runs", "report", "labkit/__pycache__"):
        (checkout.folder / folder).mkdir(exist_ok=True)
    assert checkout.make("clean").returncode == 0
    left = {path.name for path in checkout.folder.iterdir()}
    assert left == {"Makefile", "pyproject.toml", "labkit", "runs", "report"}
    assert not (checkout.folder / "labkit" / "__pycache__").exists()


def test_an_environment_that_is_interrupted_broken_or_of_another_checkout_or_torch_is_made_anew(checkout, tmp_path):
    checkout.add_python()
    for broken_at in ("torch==", "[test]"):
        assert checkout.make("setup", FAIL_ON=broken_at).returncode != 0
        assert not checkout.stamp.exists()
    index = "https://download.pytorch.org/whl/cpu"
    checkout.set_up("TORCH=torch==2.11.0", f"TORCH_INDEX={index}", anew="python3")
    assert checkout.asked[1].endswith(f" install --index-url {index} torch==2.11.0")
    checkout.set_up()  # the choice is remembered
    checkout.set_up("TORCH=torch==2.12.0", "TORCH_INDEX=", anew="python3")
    assert checkout.asked[1].endswith(" install torch==2.12.0")
    shutil.copytree(checkout.folder, tmp_path / "other")
    checkout.set_up("--directory", str(tmp_path / "other"), anew="python3")
    python = checkout.folder / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    checkout.set_up(anew="python3")


@pytest.mark.parametrize(
    ("installed", "environment", "words"),
    [
        ([], {}, ("needs Python 3.11 or newer", "apt install python3 python3-venv")),
        (["python3"], {"OLD": "python3"}, ("needs Python 3.11 or newer", "apt install python3 python3-venv")),
        (["python3"], {"NO_ENSUREPIP": "1"}, ("sudo apt install python3-venv",)),
        (["python3"], {"FAIL_ON": "torch=="}, ("make setup PYTHON=python3.12",)),
    ],
)
def test_a_setup_that_cannot_be_says_what_to_install(checkout, installed, environment, words):
    for name in installed:
        checkout.add_python(name)
    done = checkout.make("setup", **environment)
    assert done.returncode != 0
    assert all(each in done.stderr for each in words)
    assert not checkout.stamp.exists()
