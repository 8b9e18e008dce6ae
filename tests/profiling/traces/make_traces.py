"""Writes, beside this file, the trace that the torch of this Python makes of two small steps.

`python make_traces.py`, with another folder behind it or not, needs torch alone, so that it runs with each version
whose traces are to be read.
"""

import gzip
import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

WAITED, ACTIVE = 1, 2
BATCH, ROWS, TABLES, DIM = 16, 50, 2, 8
KEPT = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp", "s")
SHOWN = ("schemaVersion", "displayTimeUnit", "record_shapes", "profile_memory")
"""Fields of the file that tell nothing of the machine."""


class SmallDlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(4, DIM), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, DIM, mode="sum") for _ in range(TABLES))
        self.top = nn.Linear(DIM * (TABLES + 1), 1)

    def forward(self, dense, categorical):
        rows = [table(categorical[:, place]) for place, table in enumerate(self.tables)]
        return self.top(torch.cat([self.bottom(dense), *rows], dim=1)).squeeze(1)


def write(path: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = SmallDlrm()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=WAITED, active=ACTIVE, repeat=1),
        record_shapes=True,
        profile_memory=True,
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(WAITED + ACTIVE):
            with record_function("input"):
                dense, categorical = torch.randn(BATCH, 4), torch.randint(0, ROWS, (BATCH, TABLES, 3))
                label = torch.randint(0, 2, (BATCH,)).float()
            with record_function("forward"):
                loss = nn.functional.binary_cross_entropy_with_logits(model(dense, categorical), label)
            with record_function("backward"):
                loss.backward()
            with record_function("optimiser"):
                optimiser.step()
                optimiser.zero_grad()
            profiler.step()


def strip(path: Path) -> None:
    """Leave out what tells of the machine: its name, paths, processes."""
    trace = json.loads(path.read_text())
    numbers = {}
    events = []
    for event in trace["traceEvents"]:
        if event["ph"] == "M" or event.get("cat") == "python_function":
            continue
        for field in ("pid", "tid"):
            if isinstance(event.get(field), int):
                event[field] = numbers.setdefault((field, event[field]), len(numbers) + 1)
        events.append({field: event[field] for field in KEPT if field in event})
    about = {"torch": torch.__version__.partition("+")[0], **{key: trace[key] for key in SHOWN if key in trace}}
    path.write_text(json.dumps({**about, "traceEvents": events}))


def main(folder: Path) -> Path:
    version = ".".join(torch.__version__.split(".")[:2])
    plain = folder / f"torch-{version}.json"
    write(plain)
    strip(plain)
    zipped = folder / f"{plain.name}.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()
    return zipped


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
