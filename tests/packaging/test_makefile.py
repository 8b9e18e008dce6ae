"""The Makefile's set-up, with stand-in Pythons: they answer its questions and write down what it asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SYSTEM_COMMANDS = ("cat", "echo", "rm", "printf", "find", "sh", "mkdir", "cp", "chmod")
# `python -m venv --clear FOLDER` makes a folder whose python is a copy of the stand-in; pip calls are written
# to the log; the rest is for the real Python, unless this one plays an old Python or one without ensurepip.
STAND_IN = """#!/bin/sh
case "$*" in
    *version_info*) [ "$OLD" ] && exit 1; exec {python} "$@" ;;
    *ensurepip*) [ "$NO_ENSUREPIP" ] && exit 1; exit 0 ;;
    "-m venv --clear "*)
        echo "{name} venv" >> {log}; rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
    "-m pip "*) echo "pip $*" >> {log}; case "$*" in *"$FAIL_ON"*) exit 1 ;; esac ;;
    *) exec {python} "$@" ;;
esac
"""


class Checkout:
    """A checkout with the real Makefile; `run` calls make where only the given stand-ins are."""

    def __init__(self, root: Path):
        # A space: such paths are common on desktops.
        self.folder, self.bin, self.log = root / "my labkit", root / "bin", root / "log"
        (self.folder / "labkit").mkdir(parents=True)
        (self.folder / "labkit" / "__init__.py").touch()
        self.bin.mkdir()
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(REPOSITORY / name, self.folder)
        for name in SYSTEM_COMMANDS:
            (self.bin / name).symlink_to(shutil.which(name))
        self.stamp = self.folder / ".venv" / "labkit-is-set-up"

    def add_python(self, name: str = "python3") -> None:
        script = self.bin / name
        script.write_text(STAND_IN.format(python=sys.executable, name=name, log=self.log))
        script.chmod(0o755)

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        """Call make; `self.asked` is then what it asked of Python and pip."""
        self.log.write_text("")
        done = subprocess.run(
            [shutil.which("make"), *arguments],
            cwd=self.folder,
            env={"PATH": str(self.bin), "PYTHONPATH": str(self.folder), "FAIL_ON": "nothing fails"} | environment,
            capture_output=True,
            text=True,
        )
        self.asked = self.log.read_text().splitlines()
        return done

    def set_up(self, *arguments: str, anew: bool) -> None:
        """Set it up, which makes the environment anew or does not."""
        done = self.run(*arguments, "setup")
        assert done.returncode == 0, done.stderr
        assert any(line.endswith(" venv") for line in self.asked) == anew


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    return Checkout(tmp_path)


def test_make_alone_lists_the_targets(checkout):
    done = checkout.run()
    assert done.returncode == 0
    assert all(f"make {target} " in done.stdout for target in ("setup", "tour", "test", "soak", "lab", "clean"))
    assert not (checkout.folder / ".venv").exists()


def test_setup_installs_torch_then_labkit_then_only_what_changed_and_clean_keeps_runs_and_reports(checkout):
    checkout.add_python()
    checkout.set_up(anew=True)
    assert checkout.asked[1].endswith(" install torch==2.13.0")
    assert checkout.asked[2].endswith(" install -e .[test]")
    checkout.set_up(anew=False)
    assert checkout.asked == []
    later = checkout.stamp.stat().st_mtime + 10
    os.utime(checkout.folder / "pyproject.toml", (later, later))
    checkout.set_up(anew=False)
    assert [line.split()[0] for line in checkout.asked] == ["pip", "pip"]
    for folder in ("runs", "report", "labkit/__pycache__"):
        (checkout.folder / folder).mkdir(exist_ok=True)
    assert checkout.run("clean").returncode == 0
    left = {path.name for path in checkout.folder.iterdir()}
    assert left == {"Makefile", "pyproject.toml", "labkit", "runs", "report"}
    assert not (checkout.folder / "labkit" / "__pycache__").exists()


def test_an_environment_that_is_interrupted_broken_or_of_another_checkout_is_made_anew(checkout, tmp_path):
    checkout.add_python()
    for broken_at in ("torch==", "[test]"):
        assert checkout.run("setup", FAIL_ON=broken_at).returncode != 0
        assert not checkout.stamp.exists()
    checkout.set_up(anew=True)
    other = tmp_path / "other"
    shutil.copytree(checkout.folder, other)
    checkout.set_up("--directory", str(other), anew=True)
    python = checkout.folder / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    checkout.set_up(anew=True)


def test_choice_of_torch_is_remembered_and_a_new_choice_makes_the_environment_anew(checkout):
    checkout.add_python()
    index = "https://download.pytorch.org/whl/cpu"
    checkout.set_up("TORCH=torch==2.11.0", f"TORCH_INDEX={index}", anew=True)
    assert checkout.asked[1].endswith(f" install --index-url {index} torch==2.11.0")
    checkout.set_up(anew=False)
    checkout.set_up("TORCH=torch==2.12.0", "TORCH_INDEX=", anew=True)
    assert checkout.asked[1].endswith(" install torch==2.12.0")


def test_old_python_is_passed_over_for_a_newer_one(checkout):
    checkout.add_python("python3")
    script = checkout.bin / "python3"
    script.write_text(script.read_text().replace("#!/bin/sh", "#!/bin/sh\nOLD=1"))
    checkout.add_python("python3.12")
    checkout.set_up(anew=True)
    assert checkout.asked[0] == "python3.12 venv"


@pytest.mark.parametrize(
    ("installed", "environment", "words"),
    [
        ([], {}, ("needs Python 3.11 or newer", "apt install python3 python3-venv")),
        (["python3"], {"OLD": "1"}, ("needs Python 3.11 or newer", "apt install python3 python3-venv")),
        (["python3"], {"NO_ENSUREPIP": "1"}, ("sudo apt install python3-venv",)),
        (["python3"], {"FAIL_ON": "torch=="}, ("make setup PYTHON=python3.12",)),
    ],
)
def test_a_setup_that_cannot_be_says_what_to_install(checkout, installed, environment, words):
    for name in installed:
        checkout.add_python(name)
    done = checkout.run("setup", **environment)
    assert done.returncode != 0
    assert all(each in done.stderr for each in words)
    assert not checkout.stamp.exists()
