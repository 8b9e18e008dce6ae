"""How much sooner policies are through a real queue than one job at a time: `python benchmarks/packing.py`.

In each turn the queue runs under exclusive and under each other policy, in an order drawn anew, so that what drifts
meets all alike; what counts are ratios of one turn. Beside them stand the replay of the same queue from the recorded
profiles, and that of 60 jobs on two small machines. Five minutes a turn on two cores that do nothing else.
"""

import argparse
import random
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median

from measuring import Ratio, report

from labkit.hardware import parse_size
from labkit.project import shipped_datasets
from labkit.sharing import (
    CARMA_ENERGY,
    CARMA_MAKESPAN,
    POLICIES,
    PackingDevice,
    Schedule,
    cpu_admission,
    pack,
    pack_report,
    predict,
    read_queue,
    read_recorded,
    shared_slowdown,
)

BASE = "exclusive"
# on one device all choose the same one: what differs is who joins whom, and that is decided for all of them alike
USUAL = ("best-fit",)
SMALL_MACHINE_BYTES = 2 * 2**30


def measure(names: list[str], turns: int, memory_bytes: int | None, seed: int) -> list[dict[str, Schedule]]:
    """Each turn's schedules by policy."""
    chance, queue = random.Random(seed), read_queue(shipped_datasets() / "recorded" / "queue_8.yaml")
    found = []
    with tempfile.TemporaryDirectory(prefix="labkit-") as folder:
        for turn in range(turns):
            order = chance.sample(names, len(names))
            run = partial(pack, queue, runs_dir=Path(folder), memory_bytes=memory_bytes, tell=lambda line: None)
            found.append({name: run(name) for name in order})
            spans = ", ".join(f"{name} {found[-1][name].totals['makespan_s']:.1f} s" for name in order)
            print(f"turn {turn + 1} of {turns}: {spans}", flush=True)
    return found


def ratios(turns: list[dict[str, Schedule]], what: str) -> list[Ratio]:
    """Of one column of the totals, each policy's over that of exclusive: below 1 is less."""
    seconds = {name: [turn[name].totals[what] for turn in turns] for name in turns[0]}
    found = []
    for name in seconds:
        if name == BASE:
            continue
        each = [way / base for way, base in zip(seconds[name], seconds[BASE], strict=True)]
        found.append(
            Ratio(
                what, name, BASE, median(each), min(each), max(each), median(seconds[name]), median(seconds[BASE]), "s"
            )
        )
    return found


def replayed(names: list[str], memory_bytes: int | None) -> dict[str, object]:
    """The same queue, and that of 60 jobs, from recorded profiles."""
    recorded, folder = read_recorded(), shipped_datasets() / "recorded"
    eight, memory_bytes = read_queue(folder / "queue_8.yaml"), memory_bytes or recorded.memory_bytes
    spans = {name: predict(eight, name, memory_bytes=memory_bytes).totals["makespan_s"] for name in names}
    slowdown = shared_slowdown(recorded)
    sixty = pack_report(
        recorded.fill(read_queue(folder / "queue_60.yaml")),
        [PackingDevice(f"device-{number}", SMALL_MACHINE_BYTES) for number in range(2)],
        slowdown=slowdown,
        admission=cpu_admission(slowdown),
    )
    columns = ["policy", "makespan_s", "makespan_ratio", "mean_completion_s", "mean_wait_s", "ooms", "done"]
    return {
        "provenance": "predicted from recorded profiles",
        "profiles": asdict(recorded.provenance) | {"device": recorded.device},
        "queue_8": {name: {"makespan_s": span, "makespan_ratio": span / spans[BASE]} for name, span in spans.items()},
        "queue_60": sixty[columns].round(4).to_dict("records"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    others = [name for name in POLICIES if name != BASE]
    parser.add_argument("--policies", nargs="+", choices=others, default=list(USUAL), help="beside exclusive")
    parser.add_argument(
        "--memory", type=parse_size, help="that the policies may count with (default: all that is free)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order in each turn")
    parser.add_argument("--keep", action="store_true", help="leave the committed result as it is")
    args = parser.parse_args()
    names = [BASE, *args.policies]
    turns = measure(names, args.turns, args.memory, args.seed)
    predicted = replayed(names, args.memory)
    for name, each in predicted["queue_8"].items():
        print(f"replayed: {name} {each['makespan_s']:.1f} s ({each['makespan_ratio']:.2f})")
    report(
        "packing",
        [*ratios(turns, "makespan_s"), *ratios(turns, "mean_completion_s")],
        write=not args.keep,
        provenance="measured",
        turns=args.turns,
        jobs_done=[{name: turn[name].totals["done"] for name in turn} for turn in turns],
        replayed=predicted,
        carma={"makespan_ratio": CARMA_MAKESPAN, "energy_ratio": CARMA_ENERGY, "source": "arXiv 2508.19073"},
    )


if __name__ == "__main__":
    main()
