import pytest

from labkit.course.recordings import mnist_runs, square_kernel


def test_shapes_of_a_kernel_are_told_in_per_cent_with_the_time_of_a_launch():
    shapes = square_kernel()
    assert len(shapes) == 87 and shapes["provenance"].str.startswith("recorded").all()
    row = shapes.set_index(["blocks", "threads"]).loc[(131072, 1)]
    assert row[["gpu_utilisation", "graphics_active", "sm_active", "sm_occupancy"]].tolist() == pytest.approx(
        [100, 99.9, 29.2, 1.4]
    )
    assert row["launch_us"] == 126  # 252 s of two million


def test_runs_beside_tools_have_their_tools_as_a_set():
    runs = mnist_runs().set_index("tools")
    assert runs.loc[[frozenset()], "train_s"].item() == 48.66
    nsys = runs.loc[[frozenset({"nsys", "dcgmi", "nvidia-smi", "top"})]]
    assert nsys[["train_s", "peak_memory_mib", "span_s"]].values.tolist() == [[49.4, 6042, 70]]
