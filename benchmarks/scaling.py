"""How a DLRM step grows with batch, table rows and cores, beside what this machine could do at best.

`python benchmarks/scaling.py` sweeps one at a time and writes results/scaling.json and, drawn from it, scaling.png.
A step can take no less than the larger of two times: its arithmetic at the best speed that matrix products reached here
on as many cores, and its table rows, each read once at the speed at which random rows come from tables of that size,
then read and written by the update, which finds them where the batch left them. All speeds are measured here.
"""

import argparse
import json
import re
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from statistics import median

import torch
from dlrm_shapes import CPU, SHAPES, Shape, made_up_batch, rows_ms, step_flops, stepper
from measuring import RESULTS, bind_to, cores, in_own_process, in_turn, machine, write_result
from picture import save_picture

from labkit.hardware import keep_memory, matmul_gflops
from labkit.models import DlrmConfig
from labkit.telemetry import forget_peak_memory

BATCHES = (1, 8, 32, 128, 512, 2048, 8192)
ROWS = (10_000, 100_000, 1_000_000, 10_000_000, 40_000_000)
MEMORY_SHARE = 0.6
"""Tables may take this share of the machine's memory."""
# lookups outweigh arithmetic: what tables cost shows
LOOKUPS = Shape(
    DlrmConfig(dense_dim=13, num_rows=(1,), embedding_dim=64, bottom_mlp=(64,), top_mlp=(64, 1)), pooling_factor=100
)


@dataclass(frozen=True)
class Point:
    """One step of one shape."""

    sweep: str
    value: float
    """Batch size, rows or cores."""
    cores: int
    step_time_ms: float
    samples_per_s: float
    gflop: float
    """Floating-point operations of a step, in 1e9."""
    rows_ms: float
    peak_memory_gb: float | None
    """Most memory that the step's process held, in 1e9 bytes."""
    tables_gb: float
    arithmetic_ms: float = 0.0
    """Known once the best speed of products is."""

    @property
    def bound_ms(self) -> float:
        return max(self.arithmetic_ms, self.rows_ms)


def peak_resident_gb() -> float | None:
    """Most memory this process held since `forget_peak_memory`, in 1e9 bytes; None where the kernel does not say."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 / 1e9 if found else None


def measure(sweep: str, value: float, shape: Shape, batch_size: int) -> Point:
    """Time a step, a second or so."""
    forget_peak_memory()
    torch.manual_seed(0)
    model, step = stepper(shape.model)
    batches = cycle([made_up_batch(shape, batch_size) for _ in range(4)])
    ways = {"step": lambda: step(next(batches))}
    once = in_turn(ways, turns=1)["step"][0]
    took = median(in_turn(ways, turns=max(5, min(200, int(1.5 / once))))["step"])
    peak = peak_resident_gb()
    return Point(
        sweep,
        value,
        torch.get_num_threads(),
        1000 * took,
        batch_size / took,
        step_flops(shape.model, batch_size) / 1e9,
        rows_ms(shape, batch_size, model.tables.weight.detach()),
        peak,
        shape.model.parameter_bytes / 1e9,
    )


def sweep_batches() -> list[Point]:
    return [measure("batch_size", batch, SHAPES["small"], batch) for batch in BATCHES]


def sweep_rows() -> list[Point]:
    memory = machine()["memory_bytes"] * MEMORY_SHARE
    points = []
    for rows in ROWS:
        if rows * LOOKUPS.model.embedding_dim * 4 > memory:
            print(f"{rows:,} rows would need more than {memory / 1e9:.0f} GB: left out")
            continue
        shape = replace(LOOKUPS, model=replace(LOOKUPS.model, num_rows=(rows // 4,) * 4))
        points.append(measure("num_rows", rows, shape, 512))
    return points


def sweep_cores() -> tuple[list[Point], dict[int, float]]:
    """Each number of cores in a process of its own, bound to them from its start; and products, in 1e9 a second."""
    points, gflops = [], {}
    for count in [*(2**power for power in range(8) if 2**power < len(cores())), len(cores())]:
        program = [__file__, "--cores", ",".join(map(str, cores()[:count]))]
        (values, gflops[count]), _ = in_own_process(program, environment={"OMP_NUM_THREADS": str(count)})
        points.append(Point(**values))
    return points, gflops


def figure(points: list[Point]):
    """Step time of each sweep, measured and bound."""
    from plotly.subplots import make_subplots

    titles = {"batch_size": "samples in a batch", "num_rows": "rows of all tables", "cores": "cores"}
    fig = make_subplots(1, 3, horizontal_spacing=0.09)
    lines = {
        "a step (measured)": ("step_time_ms", "#000000", "solid", "circle"),
        "its arithmetic (at least)": ("arithmetic_ms", "#0072B2", "dash", "square"),
        "its table rows (at least)": ("rows_ms", "#D55E00", "dot", "diamond"),
    }
    for column, (sweep, title) in enumerate(titles.items(), 1):
        own = [point for point in points if point.sweep == sweep]
        for name, (field, color, dash, symbol) in lines.items():
            fig.add_scatter(
                x=[point.value for point in own], y=[getattr(point, field) for point in own], name=name,
                mode="lines+markers", line={"color": color, "dash": dash}, marker={"symbol": symbol},
                showlegend=column == 1, row=1, col=column,
            )  # fmt: skip
        fig.update_xaxes(title=title, type="log" if sweep != "cores" else "linear", row=1, col=column)
    fig.update_yaxes(type="log", rangemode="tozero", exponentformat="none")
    fig.update_yaxes(title="milliseconds of a step", row=1, col=1)
    fig.update_layout(
        template="plotly_white", width=1100, height=420, legend={"orientation": "h", "y": 1.15}, margin={"t": 50}
    )
    return fig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", help=argparse.SUPPRESS)
    args = parser.parse_args()
    keep_memory()  # as runs of labkit do
    if args.cores:
        chosen = [int(core) for core in args.cores.split(",")]
        bind_to(chosen)
        torch.set_num_threads(len(chosen))
        products = [matmul_gflops(CPU, torch.float32)]
        point = measure("cores", len(chosen), SHAPES["small"], 2048)
        print(json.dumps([vars(point), max(*products, matmul_gflops(CPU, torch.float32))]))
        return
    products, points = [], []
    for sweep in (sweep_batches, sweep_rows):
        products.append(matmul_gflops(CPU, torch.float32))
        points += sweep()
    of_cores, gflops = sweep_cores()
    gflops[torch.get_num_threads()] = max(*products, gflops[len(cores())])  # the best: a machine's moods only slow it
    points = [replace(each, arithmetic_ms=1000 * each.gflop / gflops[each.cores]) for each in [*points, *of_cores]]
    print("fp32 products: " + ", ".join(f"{value:.0f} GFLOP/s on {count} cores" for count, value in gflops.items()))
    for point in points:
        print(
            f"{point.sweep:<11} {point.value:>12,.0f}: {point.step_time_ms:8.2f} ms, "
            f"{point.samples_per_s:>9,.0f} samples/s; at best {point.bound_ms:8.2f} ms (arithmetic "
            f"{point.arithmetic_ms:.2f}, rows {point.rows_ms:.2f}); {point.peak_memory_gb or float('nan'):.2f} GB, "
            f"tables {point.tables_gb:.2f}"
        )
    write_result("scaling", gflops=gflops, points=[vars(each) for each in points])
    save_picture(figure(points), RESULTS / "scaling.png")


if __name__ == "__main__":
    main()
