"""Makes sharding_plans.json: python datasets/recorded/make_sharding_plans.py [SETS]   (with TorchRec: labkit doctor)

With 0 sets it makes planned_tables.json only: TorchRec's plans for the 26 tables of MLPerf's DLRM-DCNv2 on eight GPUs,
with its predicted times. That takes seconds, and nothing is measured.

Random sets of four tables on two processes: all eight ways to place them, measured in several passes in which they take
turns, next to what TorchRec's planner chooses with its own constants and with those of this machine.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import time
from importlib.metadata import version as package_version
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from labkit.hardware import calibrate, read_cpu
from labkit.runs import Provenance
from labkit_course.apparatus import sharding
from labkit_course.apparatus.sharding import fit_transfer, on_processes, sent_share

PROCESSES, TABLES, DIM, BATCH, PASSES, ROUNDS = 2, 4, 32, 2048, 5, 6
LENGTHS, LOOKUPS = (1000, 10_000, 100_000, 400_000), (1, 4, 16, 40)
WAYS = [(0, *rest) for rest in itertools.product(range(PROCESSES), repeat=TABLES - 1)]
"""All but those that differ in the numbers of the processes alone"""


def draw(seed: int) -> sharding.Tables:
    rng = np.random.default_rng(seed)
    lengths, lookups = rng.choice(LENGTHS, TABLES), rng.choice(LOOKUPS, TABLES)
    return sharding.Tables(tuple(map(int, lengths)), tuple(map(int, lookups)), DIM, BATCH)


def measure(seeds: range) -> list[list[list[float]]]:
    """Milliseconds of each set, way and pass: the fastest of some steps, since other programs only slow them down."""
    found = []
    for seed in seeds:
        tables = draw(seed)
        torch.manual_seed(seed)
        bags = [nn.EmbeddingBag(rows, DIM, mode="sum", sparse=True) for rows in tables.rows]
        ids = [torch.randint(rows, (BATCH, many)) for rows, many in zip(tables.rows, tables.lookups, strict=True)]
        optimizer = torch.optim.SGD([bag.weight for bag in bags], lr=0.01)
        passes = [[step_ms(bags, ids, optimizer, way) for way in WAYS] for _ in range(PASSES)]
        found.append([list(of_way) for of_way in zip(*passes, strict=True)])
    return found


def step_ms(bags: list, ids: list, optimizer: torch.optim.Optimizer, placement: tuple[int, ...]) -> float:
    own = [number for number, owner in enumerate(placement) if owner == dist.get_rank()]
    counts, times = [placement.count(rank) for rank in range(PROCESSES)], []
    for _ in range(1 + ROUNDS):
        dist.barrier()
        began = time.perf_counter()
        found = [bags[number](ids[number]) for number in own]
        joined = torch.cat(found, dim=1) if found else torch.zeros(BATCH, 0, requires_grad=True)
        sharding.exchange(joined, counts, DIM)
        joined.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        times.append(1e3 * (time.perf_counter() - began))
    return min(times[1:])


def plan(tables: sharding.Tables, **constants: float) -> list[int]:
    """The process of each table by TorchRec's planner, with tables placed whole."""
    import torchrec
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology

    config, names = torchrec.EmbeddingBagConfig, [f"t{number}" for number in range(TABLES)]
    bags = torchrec.EmbeddingBagCollection(
        tables=[
            config(rows, DIM, name=name, feature_names=[name]) for name, rows in zip(names, tables.rows, strict=True)
        ],
        device=torch.device("meta"),
    )
    whole = {
        name: ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"], pooling_factors=[lookups])
        for name, lookups in zip(names, map(float, tables.lookups), strict=True)
    }
    topology = Topology(PROCESSES, "cuda", local_world_size=PROCESSES, **constants)
    planner = EmbeddingShardingPlanner(topology, BATCH // PROCESSES, constraints=whole, debug=False)
    chosen = planner.plan(bags, [EmbeddingBagCollectionSharder()]).get_plan_for_module("")
    placed = [chosen[name].ranks[0] for name in names]
    return [int(rank != placed[0]) for rank in placed]  # the first table is on process 0


# of mlcommons/training, recommendation_v2/torchrec_dlrm (README), read on 2026-11-29
GPUS, WIDTH, SAMPLES = 8, 128, 65_536
ROWS_26 = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10, 2_209, 11_938,
    155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
)  # fmt: skip
LOOKUPS_26 = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)


def planned(gib: int, *kinds: str) -> tuple[list[dict], list[dict]]:
    """TorchRec's plan for GPUs of that memory: of each table its kind and its part of a step, and the GPUs' sums."""
    import torchrec
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology

    config, names = torchrec.EmbeddingBagConfig, [f"t{number}" for number in range(len(ROWS_26))]
    tables = [config(rows, WIDTH, name=key, feature_names=[key]) for key, rows in zip(names, ROWS_26, strict=True)]
    bags = torchrec.EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    how = {"sharding_types": list(kinds), "compute_kernels": ["fused"]}
    lookups = dict(zip(names, map(float, LOOKUPS_26), strict=True))
    constraints = {key: ParameterConstraints(pooling_factors=[each], **how) for key, each in lookups.items()}
    topology = Topology(GPUS, "cuda", hbm_cap=gib * 2**30, local_world_size=GPUS)
    planner = EmbeddingShardingPlanner(topology, SAMPLES // GPUS, constraints=constraints, debug=False)
    planner.plan(bags, [EmbeddingBagCollectionSharder()])
    of_tables, of_gpus = [], [dict.fromkeys(("forward", "backward", "communication", "gib"), 0.0) for _ in range(GPUS)]
    for option in sorted(planner._best_plan, key=lambda each: names.index(each.name)):
        for shard in option.shards:
            perf, own = shard.perf, of_gpus[shard.rank]
            own["forward"] += perf.fwd_compute
            own["backward"] += perf.bwd_compute
            own["communication"] += perf.fwd_comms + perf.bwd_comms + perf.input_dist_comms
            own["gib"] += shard.storage.hbm / 2**30
        of_tables.append({"kind": option.sharding_type, "ms": round(option.shards[0].perf.total, 4)})
    return of_tables, [{name: round(value, 4) for name, value in gpu.items()} for gpu in of_gpus]


def write_planned() -> None:
    whole, whole_gpus = planned(32, "table_wise")
    plans = {"tables whole, 32 GiB": whole_gpus}
    for gib in (32, 16):
        of_tables, plans[f"its choice, {gib} GiB"] = planned(gib, "table_wise", "row_wise")
        print(gib, "GiB: by rows", [number for number, each in enumerate(of_tables) if each["kind"] == "row_wise"])
    content = {
        "provenance": Provenance.now("predicted", note="by TorchRec's planner, with a V100's constants").__dict__,
        "torchrec": package_version("torchrec"),
        "gpus": GPUS,
        "dim": WIDTH,
        "batch_size": SAMPLES,
        "rows": ROWS_26,
        "lookups": LOOKUPS_26,
        "whole_ms": [each["ms"] for each in whole],
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(gpus)}" for name, gpus in plans.items())
    head = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    Path(__file__).with_name("planned_tables.json").write_text(f'{{\n{head},\n "plans": {{\n{lines}\n}}}}\n')


def main() -> None:
    logging.disable(logging.WARNING)
    write_planned()
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    if not seeds:
        return
    exchange = fit_transfer(sharding.SIZES, sharding.time_exchanges(PROCESSES), sent_share(PROCESSES))
    memory_gb_s = calibrate(repeats=3).bandwidth_gb_per_s
    here = {"hbm_mem_bw": 1e6 * memory_gb_s, "intra_host_bw": 1e-3 / exchange.byte_s}  # bytes per millisecond
    load = os.getloadavg()[0]
    times = on_processes(PROCESSES, measure, seeds)
    off = [abs(np.log(one / np.median(each))) for of_set in times for each in of_set for one in each]
    note = f"with nothing else started: load {load:.1f} before and {os.getloadavg()[0]:.1f} after, its own two "
    note += f"processes included; one pass is {np.exp(np.mean(off)) - 1:.1%} off the median of its five"
    content = {
        "provenance": Provenance.now("recorded", note=note).__dict__,
        "device": f"{PROCESSES} cores of {read_cpu().model}",
        "dim": DIM,
        "batch_size": BATCH,
        "exchange": {"start_ms": 1e3 * exchange.start_s, "gb_per_s": 1e-9 / exchange.byte_s},
        "memory_gb_per_s": memory_gb_s,
        "sets": [
            {
                "rows": tables.rows,
                "lookups": tables.lookups,
                "planner": plan(tables),
                "planner_here": plan(tables, **here),
                "ms": {
                    "".join(map(str, way)): [round(each, 3) for each in passes]
                    for way, passes in zip(WAYS, of_set, strict=True)
                },
            }
            for tables, of_set in zip(map(draw, seeds), times, strict=True)
        ],
    }
    sets = ",\n".join(map(json.dumps, content.pop("sets")))  # a line per set
    text = f'{json.dumps(content, indent=1)[:-2]},\n "sets": [\n{sets}\n]}}\n'
    Path(__file__).with_name("sharding_plans.json").write_text(text)


if __name__ == "__main__":
    main()
