import pytest

from labkit.collocation.interference.alone import gpu_shares
from labkit.collocation.interference.held_job import Stretch
from labkit.runs.parts import TELEMETRY, PartWriter
from labkit.runs.record import Provenance
from labkit.runs.writer import RunWriter

GPU = {"kind": "gpu", "name": "a GPU", "torch_name": "cuda:0", "uuid": "GPU-1"}
SAMPLES = [
    (1, "GPU-1", "gpu_utilisation", 80.0, None),
    (2, "GPU-1", "gpu_utilisation", 60.0, None),
    (2, "GPU-2", "gpu_utilisation", 0.0, None),
    (1, "GPU-1", "sm_active", None, "needs Hopper or later"),
    (1, "GPU-1", "dram_active", 25.0, None),
]


def test_a_run_on_a_gpu_tells_shares_of_it_or_why_not(tmp_path):
    writer = RunWriter.create(
        tmp_path,
        "dlrm",
        config={"job": "dlrm"},
        budget={"torch_name": "cuda:0"},
        tier=None,
        devices=[GPU],
        seed=5,
        provenance=Provenance.now("measured"),
        software={},
    )
    (writer.folder / "telemetry").mkdir(exist_ok=True)
    part = PartWriter(writer.folder / "telemetry", TELEMETRY)
    for time_ns, device, counter, value, note in SAMPLES:
        of = {"time_ns": time_ns, "device": device, "scope": "device", "pid": None}
        part.append({**of, "counter": counter, "value": value, "unit": "%", "source": "made by hand", "note": note})
    part.flush()
    writer.finish("done", {})

    shares = gpu_shares(writer.folder)
    assert (shares["gpu_busy"], shares["dram_active"]) == pytest.approx((0.7, 0.25))
    assert shares["sm_active"] == "needs Hopper or later"
    assert shares["sm_occupancy"] == "it was not sampled"
    # only samples within the time that counts
    stretch = Stretch(steps=1, wall_s=1.0, cpu_s=1.0, memory_bytes=1, began_ns=0, took_ns=1)
    assert gpu_shares(writer.folder, [stretch])["gpu_busy"] == pytest.approx(0.8)
