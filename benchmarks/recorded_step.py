"""The walk beside one recorded step of eight V100s: `python benchmarks/recorded_step.py`. It needs no GPU.

With a rank's own kernels and overheads it tests the walk; with the other ranks' overheads, whether these carry over.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from measuring import write_result
from scipy.stats import spearmanr

from labkit.project import shipped_datasets
from labkit_course.apparatus import (
    KINDS,
    RecordedStep,
    Walked,
    read_step,
    transfers_us,
    walk,
    walk_together,
    with_overheads,
)


def active_us(spans: Sequence[tuple[float, float]]) -> float:
    """How long at least one of these (start, end) was going on."""
    active, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        active += max(0.0, end - max(start, until))
        until = max(until, end)
    return active


def host_us(step: RecordedStep) -> float:
    return sum(call.us for call in step.calls)


def kernels_alone_us(step: RecordedStep, transfers: dict[int, float] | None) -> float:
    """Of all kernels, one after the other; of collectives with their waiting, or what they move alone."""
    return sum(
        kernel.duration_us if transfers is None or kernel.collective is None else transfers[kernel.collective]
        for kernel in step.kernels
    )


def main() -> None:
    folder = shipped_datasets() / "recorded" / "param-v100" / "original"
    steps = [read_step(path) for path in sorted(folder.iterdir())]
    transfers = transfers_us(steps)
    together, rows = walk_together(steps, transfers), []
    for rank, (step, joint) in enumerate(zip(steps, together, strict=True)):
        own = walk(step)
        others = [other for other in steps if other is not step]
        borrowed = with_overheads(step, others)
        late_us = np.abs([a - (b.start_us - step.start_us) for a, b in zip(own.starts_us, step.kernels, strict=True)])
        predicted_us = {
            "own overheads": own.step_us,
            "all ranks together": joint.step_us,
            "others' overheads": walk(borrowed).step_us,
            "others' overheads, trimmed": walk(with_overheads(step, map(trimmed, others))).step_us,
            "control: others' host time and own waiting": host_us(borrowed) + step.duration_us - host_us(step),
            "kernels alone": kernels_alone_us(step, None),
            "kernels alone, no waiting": kernels_alone_us(step, transfers),
        }
        predicted_us |= {f"without {kind}": walk(step, without=[kind]).step_us for kind in KINDS}
        measured = spans_of(step)
        shares = {
            name: active_us([*spans["compute"], *spans["nccl"]]) / step_us
            for name, spans, step_us in (
                ("measured", measured, step.duration_us),
                ("own", spans_of(step, own), own.step_us),
                ("joint", spans_of(step, joint), joint.step_us),
            )
        }
        rows.append(
            {"rank": rank, "step_ms": step.duration_us / 1e3}
            | {name: us / step.duration_us - 1 for name, us in predicted_us.items()}
            | {
                "active, points off": 100 * (shares["own"] - shares["measured"]),
                "active jointly, points off": 100 * (shares["joint"] - shares["measured"]),
                "start error, median us": float(np.median(late_us)),
                "NCCL beside compute, measured": overlap(measured),
                "NCCL beside compute, joint": overlap(spans_of(step, joint)),
            }
        )
    frame = pd.DataFrame(rows).set_index("rank")
    errors = frame[list(predicted_us)]
    with pd.option_context("display.width", 200):
        print(frame.T.to_string(float_format="{:.4f}".format))
    print("\ngeometric mean of the size of each error:")
    print(np.exp(np.log(errors.abs()).mean()).to_string(float_format="{:.2%}".format))
    measured, foreseen = arrivals_us(steps), arrivals_us(steps, together)
    same = int((measured.argmax(0) == foreseen.argmax(0)).sum())
    order = float(np.mean([spearmanr(*each).statistic for each in zip(measured.T, foreseen.T, strict=True)]))
    waits = [each.max(0) - each for each in (measured, foreseen)]
    off_us = np.abs(waits[0] - waits[1])
    print(
        f"\nOf {len(transfers)} collectives the rank that all others wait for is the one foreseen in {same}; order of "
        f"arrival: Spearman's correlation {order:.3f}, on average. A rank waits {waits[0].mean() / 1e3:.2f} ms for the "
        f"last (mean; {waits[0].max() / 1e3:.2f} at most), and the walk is {off_us.mean():.0f} us off (mean; "
        f"{off_us.max():.0f} at most)."
    )
    write_result(
        "recorded_step",
        ranks=frame.reset_index().to_dict("records"),
        last_measured=measured.argmax(0).tolist(),
        last=foreseen.argmax(0).tolist(),
        arrival_order=order,
        wait_ms=float(waits[0].mean() / 1e3),
        wait_off_us=float(off_us.mean()),
    )


def trimmed(step: RecordedStep) -> RecordedStep:
    """Without calls that took longer or shorter than 1.5 interquartile ranges beyond the quartiles of their kind."""
    us = {kind: [call.us for call in step.calls if call.kind == kind] for kind in KINDS}
    ends = {}
    for kind, own in us.items():
        low, high = np.quantile(own, [0.25, 0.75])
        ends[kind] = low - 1.5 * (high - low), high + 1.5 * (high - low)
    return replace(
        step, calls=tuple(call for call in step.calls if ends[call.kind][0] <= call.us <= ends[call.kind][1])
    )


def spans_of(step: RecordedStep, walked: Walked | None = None) -> dict[str, list[tuple[float, float]]]:
    """When kernels of "compute" and of "nccl" ran, as measured or as walked."""
    starts = [k.start_us for k in step.kernels] if walked is None else walked.starts_us
    ends = [k.start_us + k.duration_us for k in step.kernels] if walked is None else walked.ends_us
    found: dict[str, list[tuple[float, float]]] = {"compute": [], "nccl": []}
    for kernel, start, end in zip(step.kernels, starts, ends, strict=True):
        found["compute" if kernel.collective is None else "nccl"].append((start, end))
    return found


def overlap(spans: dict[str, list[tuple[float, float]]]) -> float:
    """The share of NCCL's time in which something computes, too."""
    compute, nccl = active_us(spans["compute"]), active_us(spans["nccl"])
    return (compute + nccl - active_us([*spans["compute"], *spans["nccl"]])) / nccl


def arrivals_us(steps: list[RecordedStep], walks: list[Walked] | None = None) -> np.ndarray:
    """When each rank comes to each collective, on one clock: (ranks, collectives)."""
    rows = []
    for rank, step in enumerate(steps):
        starts = (
            [k.start_us for k in step.kernels] if walks is None else step.start_us + np.array(walks[rank].starts_us)
        )
        found = {k.collective: start for k, start in zip(step.kernels, starts, strict=True) if k.collective is not None}
        rows.append([found[number] for number in sorted(found)])
    return np.array(rows)


if __name__ == "__main__":
    main()
