import os
import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)  # its modules are run as programs, too


@pytest.fixture
def write(tmp_path):
    """Write a sweep of the script train.py next to it, from the fields that follow its first line."""

    def write(fields: str, name: str = "s.yaml", first: str = "script: train.py\n") -> Path:
        (tmp_path / "train.py").touch()
        (tmp_path / name).write_text(first + fields)
        return tmp_path / name

    return write


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The working folder's folder for runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.fixture
def light(monkeypatch):
    """Processes without torch in place of those of runs: light_run's, or those of another module."""
    from labkit.launch import engine

    monkeypatch.setattr(engine, "WORKER", "light_run")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])]))


@pytest.fixture
def light_cells(light, tmp_path, monkeypatch):
    """The same in commands of `labkit sweep` that a test or a scheduler starts."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import sys\nif 'sweep' in sys.orig_argv:\n"
        "    from labkit.launch import engine\n    engine.WORKER = 'light_run'\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ["PYTHONPATH"]]))
