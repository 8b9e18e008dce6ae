import pytest
from fake_nvml import fake_mps


@pytest.fixture
def mps(tmp_path, monkeypatch):
    return fake_mps(tmp_path, monkeypatch)
