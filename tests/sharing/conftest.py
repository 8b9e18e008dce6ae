import os

import pytest


@pytest.fixture(autouse=True)
def no_cuda_variables(monkeypatch, tmp_path):
    """This process sees all GPUs, and no MPS daemon."""
    for name in [name for name in os.environ if name.startswith("CUDA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "nowhere"))
