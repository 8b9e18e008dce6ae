"""The walk beside one recorded step of eight V100s: `python benchmarks/recorded_step.py`. It needs no GPU.

With a rank's own kernels and overheads it tests the walk; with the other ranks' overheads, whether these carry over.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from measuring import write_result

from labkit.perfmodel.recorded_step import RecordedStep, read_step, with_overheads
from labkit.perfmodel.walk import KINDS, active_us, transfers_us, walk, walk_together
from labkit.project import shipped_datasets


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
        borrowed = with_overheads(step, [other for other in steps if other is not step])
        late_us = np.abs([a - (b.start_us - step.start_us) for a, b in zip(own.starts_us, step.kernels, strict=True)])
        predicted_us = {
            "own overheads": own.step_us,
            "all ranks together": joint.step_us,
            "others' overheads": walk(borrowed).step_us,
            "control: others' host time and own waiting": host_us(borrowed) + step.duration_us - host_us(step),
            "kernels alone": kernels_alone_us(step, None),
            "kernels alone, no waiting": kernels_alone_us(step, transfers),
        }
        predicted_us |= {f"without {kind}": walk(step, without=[kind]).step_us for kind in KINDS}
        measured = active_us([(k.start_us, k.start_us + k.duration_us) for k in step.kernels]) / step.duration_us
        walked = active_us(list(zip(own.starts_us, own.ends_us, strict=True))) / own.step_us
        rows.append(
            {"rank": rank, "step_ms": step.duration_us / 1e3}
            | {name: us / step.duration_us - 1 for name, us in predicted_us.items()}
            | {"active, points off": 100 * (walked - measured), "start error, median us": float(np.median(late_us))}
        )
    frame = pd.DataFrame(rows).set_index("rank")
    errors = frame.drop(columns=["step_ms", "active, points off", "start error, median us"])
    with pd.option_context("display.width", 200):
        print(frame.T.to_string(float_format="{:.4f}".format))
    print("\ngeometric mean of the size of each error:")
    print(np.exp(np.log(errors.abs()).mean()).to_string(float_format="{:.2%}".format))
    last = {number: _last(steps, number) for number in transfers}
    predicted_last = {number: _last_walked(steps, together, number) for number in transfers}
    same = sum(last[number] == predicted_last[number] for number in transfers)
    print(f"\nThe rank that all others wait for is the one foreseen in {same} of {len(transfers)} collectives: {last}")
    write_result("recorded_step", ranks=frame.reset_index().to_dict("records"), last_measured=last, last=predicted_last)


def _last(steps: list[RecordedStep], number: int) -> int:
    starts = [next(k.start_us for k in step.kernels if k.collective == number) for step in steps]
    return int(np.argmax(starts))


def _last_walked(steps: list[RecordedStep], walks: list, number: int) -> int:
    starts = [
        step.start_us + next(s for s, k in zip(w.starts_us, step.kernels, strict=True) if k.collective == number)
        for step, w in zip(steps, walks, strict=True)
    ]
    return int(np.argmax(starts))


if __name__ == "__main__":
    main()
