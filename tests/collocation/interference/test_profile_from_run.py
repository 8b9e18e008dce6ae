import pytest

from labkit.collocation.interference.from_run import profile_from_run
from labkit.collocation.interference.gpu_shares import gpu_shares
from labkit.collocation.interference.held_job import Stretch
from labkit.collocation.interference.solo_profile import likeness_of
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.runs.parts import TELEMETRY, PartWriter
from labkit.runs.record import Provenance
from labkit.runs.writer import RunWriter
from labkit.training.request import TrainRequest

CPU = {"kind": "cpu", "name": "a CPU", "torch_name": "cpu", "cores": 2}
GPU = {"kind": "gpu", "name": "a GPU", "torch_name": "cuda:0", "uuid": "GPU-1"}
RESULT = {"steps": 500, "train_s": 2.0, "wall_s": 9.0, "peak_memory_bytes": 2**29, "peak_gpu_memory_bytes": 2**30}


def run(folder, *, torch_name="cpu", samples=(), result=RESULT, config=None):
    request = TrainRequest("dlrm", preset="tour", batch_size=256, seed=5).to_dict()
    writer = RunWriter.create(
        folder,
        "dlrm-tour",
        config={"job": "dlrm", "request": request} if config is None else config,
        budget={"torch_name": torch_name, "cores": 2},
        tier=None,
        devices=[CPU, GPU],
        seed=5,
        provenance=Provenance.now("measured"),
        software={},
    )
    (writer.folder / "telemetry").mkdir(exist_ok=True)
    part = PartWriter(writer.folder / "telemetry", TELEMETRY)
    for time_ns, device, scope, counter, value, note in samples:
        part.append(
            {
                "time_ns": time_ns,
                "device": device,
                "scope": scope,
                "pid": 1 if scope == "process" else None,
                "counter": counter,
                "value": value,
                "unit": "%",
                "source": "made by hand",
                "note": note,
            }
        )
    part.flush()
    writer.finish("done", result)
    return writer.folder


def test_a_run_on_a_cpu_tells_its_speed_cpu_share_and_memory(tmp_path):
    samples = [(second, "host", "process", "cpu_percent", value, None) for second, value in enumerate((150.0, 170.0))]
    profile = profile_from_run(run(tmp_path, samples=samples))
    assert profile.step_time_ms == pytest.approx(4.0)  # of training: evaluations do not count
    assert profile.cpu_share == pytest.approx(0.8)
    assert profile.memory_bytes == 2**29
    assert (profile.job, profile.device, profile.cores) == ("dlrm:tour", "a CPU", 2)
    assert profile.likeness == likeness_of(PlannedJob("x", "dlrm", {"batch_size": 256}))
    assert "profile_alone" in profile.missing["step_time_one_core_ms"]


def test_a_run_on_a_gpu_tells_shares_of_it_or_why_not(tmp_path):
    samples = [
        (1, "GPU-1", "device", "gpu_utilisation", 80.0, None),
        (2, "GPU-1", "device", "gpu_utilisation", 60.0, None),
        (2, "GPU-2", "device", "gpu_utilisation", 0.0, None),
        (1, "GPU-1", "device", "sm_active", None, "needs Hopper or later"),
        (1, "GPU-1", "device", "dram_active", 25.0, None),
    ]
    folder = run(tmp_path, torch_name="cuda:0", samples=samples)
    profile = profile_from_run(folder)
    assert (profile.gpu_busy, profile.dram_active) == pytest.approx((0.7, 0.25))
    assert profile.device == "a GPU"
    assert profile.memory_bytes == 2**30
    assert profile.sm_active is None
    assert profile.missing["sm_active"] == "needs Hopper or later"
    assert profile.missing["sm_occupancy"] == "it was not sampled"
    # only samples within the time that counts
    stretch = Stretch(steps=1, wall_s=1.0, cpu_s=1.0, memory_bytes=1, began_ns=0, took_ns=1)
    assert gpu_shares(folder, [stretch])["gpu_busy"] == pytest.approx(0.8)


def test_runs_without_steps_or_without_a_job_are_refused(tmp_path):
    with pytest.raises(UserError, match="took no step"):
        profile_from_run(run(tmp_path / "a", result={}))
    with pytest.raises(UserError, match="profile_alone"):
        profile_from_run(run(tmp_path / "b", config={"job": "script"}))
