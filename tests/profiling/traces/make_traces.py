"""Writes, beside this file, the trace that the torch of this Python makes of two small steps.

`python make_traces.py` needs torch alone, so that it runs with each version whose traces are to be read.
"""

import gzip
import json
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

BATCH, ROWS, TABLES, DIM = 16, 50, 2, 8
KEPT = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp", "s")
"""Fields that tell nothing of the machine."""


def write(path: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    bottom, top = nn.Sequential(nn.Linear(4, DIM), nn.ReLU()), nn.Linear(DIM * (TABLES + 1), 1)
    tables = [nn.EmbeddingBag(ROWS, DIM, mode="sum") for _ in range(TABLES)]
    optimiser = torch.optim.SGD(nn.ModuleList([bottom, *tables, top]).parameters(), lr=0.1)
    plan = schedule(wait=0, warmup=1, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True, profile_memory=True) as profiler:
        for _ in range(3):
            with record_function("input"):
                dense, categorical = torch.randn(BATCH, 4), torch.randint(0, ROWS, (BATCH, TABLES, 3))
                label = torch.randint(0, 2, (BATCH,)).float()
            with record_function("forward"):
                rows = [table(categorical[:, place]) for place, table in enumerate(tables)]
                logit = top(torch.cat([bottom(dense), *rows], dim=1)).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(logit, label)
            with record_function("backward"):
                loss.backward()
            with record_function("optimiser"):
                optimiser.step()
                optimiser.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(str(path))


if __name__ == "__main__":
    plain = Path(__file__).with_name(f"torch-{'.'.join(torch.__version__.split('.')[:2])}.json")
    write(plain)
    events = [event for event in json.loads(plain.read_text())["traceEvents"] if event["ph"] != "M"]
    kept = [{field: event[field] for field in KEPT if field in event} for event in events]
    content = json.dumps({"torch": torch.__version__.partition("+")[0], "traceEvents": kept})
    plain.with_name(f"{plain.name}.gz").write_bytes(gzip.compress(content.encode(), mtime=0))
    plain.unlink()
