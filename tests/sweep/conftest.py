import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # its modules are run as programs, too


@pytest.fixture
def write(tmp_path):
    """Write a sweep of the script train.py beside it, from the fields that follow its first line."""

    def write(fields: str, name: str = "s.yaml", first: str = "script: train.py\n") -> Path:
        (tmp_path / "train.py").touch()
        (tmp_path / name).write_text(first + fields)
        return tmp_path / name

    return write
