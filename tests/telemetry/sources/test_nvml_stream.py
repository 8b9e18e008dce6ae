"""Raw answers of NVML, written down and played again through the same code."""

import pynvml
import pytest
from fake_nvml import fail
from gpus import gpus

from labkit.cli import main
from labkit.errors import UserError
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml
from labkit.hardware.nvml_stream import PlayedNvml, RecordedNvml
from labkit.telemetry.sources.machine import open_ladder


def readings(library, between=lambda index: None) -> list:
    """Three samples of the GPUs, through the whole ladder."""
    made = []
    devices = get_devices(Nvml(library))
    with open_ladder(None, devices, 2, lambda kind, what: made.append(kind), nvml=Nvml(library)) as ladder:
        for index in range(3):
            between(index)
            made.append([reading for reading in ladder.read() if reading.device != "host"])
    return made


@pytest.fixture
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize("generation", ["Ampere with MIG", "Hopper"])
def test_a_recorded_stream_gives_the_same_readings(generation, tmp_path, alone):
    library = gpus(generation)

    def between(index):
        if index == 1:  # a failure is played, too
            fail(library, "nvmlDeviceGetPowerUsage", pynvml.NVML_ERROR_TIMEOUT)

    path = tmp_path / "stream.jsonl"
    recorded = readings(RecordedNvml(path, library), between)
    assert any(reading.value is not None for reading in recorded[0])
    played = PlayedNvml(path)
    assert readings(played) == recorded
    assert played.left == 0


def test_structures_and_pointers_of_the_real_library_come_back(tmp_path):
    class Library:
        """Answers as pynvml does: with structures and pointers."""

        def nvmlGpmSampleAlloc(self):
            return self.sample

        def nvmlDeviceGetUtilizationRates(self, handle):
            return pynvml.c_nvmlUtilization_t(gpu=97, memory=40)

        sample = pynvml.c_nvmlGpmSample_t(pynvml.struct_c_nvmlGpmSample_t())

    recorded = RecordedNvml(tmp_path / "s", Library())
    sample = recorded.nvmlGpmSampleAlloc()
    recorded.nvmlDeviceGetUtilizationRates(sample)
    played = PlayedNvml(tmp_path / "s")
    again = played.nvmlGpmSampleAlloc()
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.sample1 = again  # fits where NVML's own pointer does
    assert played.nvmlDeviceGetUtilizationRates(again).gpu == 97
    with pytest.raises(pynvml.NVMLError, match="code 21"):  # the stream has no more
        played.nvmlDeviceGetUtilizationRates(again)


def test_a_recording_replaces_no_file_and_names_a_line_that_is_none(tmp_path):
    (tmp_path / "s").write_text('{"call": "nvmlInit", "arguments": []}\nnonsense\n')
    with pytest.raises(UserError, match="there already"):
        RecordedNvml(tmp_path / "s")
    with pytest.raises(UserError, match="s, line 2: this is no line"):
        PlayedNvml(tmp_path / "s")


def test_the_monitor_plays_a_stream_on_any_machine(tmp_path, alone, capsys):
    path = tmp_path / "stream.jsonl"
    readings(RecordedNvml(path, gpus("Hopper")))
    # it ends with the stream, long before the time given
    assert main(["monitor", "--replay", str(path), "--hz", "50", "--seconds", "500"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "played from" in out and "sm_active" in out and "nvmlDeviceGetPowerUsage" in out
    assert main(["monitor", "--replay", str(path), "--record", str(tmp_path / "x")]) == 2
