"""A student without progress, in an empty folder."""

import pytest

from labkit_course import progress


@pytest.fixture(autouse=True)
def fresh_student(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_COURSE", str(tmp_path / "course"))
    monkeypatch.setattr(progress, "_open", {})
    monkeypatch.chdir(tmp_path)
