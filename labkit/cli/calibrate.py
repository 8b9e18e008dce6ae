"""`labkit calibrate`: makes this machine's card, from which training steps are predicted, here or elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from labkit import UserError, hardware, perfmodel, tracking
from labkit.cli.flags import add_flags

LEAST_S, MOST_S = 20.0, 3600.0


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    what = "time this CPU's operators in two minutes, for `labkit predict`"
    parser = subparsers.add_parser("calibrate", help=what, description=f"{what[0].upper()}{what[1:]}.")
    add = parser.add_argument
    add("--out", type=Path, default=Path("card.json"), metavar="FILE", help="the card to write (default: card.json)")
    add("--seconds", type=float, default=110.0, metavar="S", help="time it may take (default: 110); longer is better")
    add("--seed", type=int, default=0, metavar="N", help="seed of the timed steps (default: 0)")
    add_flags(parser, "budget", "no_wait")
    parser.set_defaults(run=run_calibrate)


def run_calibrate(args: argparse.Namespace) -> int:
    from labkit.cli.display import TrainingDisplay

    if not LEAST_S <= args.seconds <= MOST_S:
        raise UserError(f"--seconds is {args.seconds:g}: give {LEAST_S:g} to {MOST_S:g}.", field="seconds")
    if not args.out.parent.is_dir():
        raise UserError(f"--out: there is no folder {args.out.parent}: create it, or name another.", field="out")
    budget = hardware.parse_budget(args.budget or "all-cores")
    command = tracking.ScriptCommand(budget=budget, waits_for_cores=not args.no_wait)
    with tracking.StopRequest() as stop, TrainingDisplay(to_stderr=True) as display:
        tracking.bind_process(command, display.show, stop)
        import torch

        hardware.keep_memory()
        torch.set_num_threads(budget.cores or torch.get_num_threads())
        card = perfmodel.measure_card(args.seconds, seed=args.seed, say=lambda words: display.print(words, "dim"))
    card.save(args.out)
    _print(card, args.out)
    return 0


def _print(card: perfmodel.Card, path: Path) -> None:
    from labkit.cli.console import Console, print_frame

    console = Console(highlight=False)
    limits = card.limits
    console.print(
        f"{card.device}, {card.threads} thread{'s' * (card.threads > 1)}, torch {card.software['torch']}: "
        f"{limits.fp32_gflops:,.0f} GFLOP/s in fp32, {limits.bf16_gflops:,.0f} in bf16, copies of "
        f"{limits.bandwidth_gb_per_s:.1f} GB/s; {sum(map(len, card.kernels.values())):,} operators of "
        f"{len(card.kernels)} kinds timed in {card.took_s:.0f} s.\n"
        f"The machine's own noise: one step, repeated between the others, varied by {card.noise:.1%} (from its "
        "median). Errors of predictions for steps that the model had not seen (geometric mean):"
    )
    print_frame(
        console,
        [
            {
                "steps of": job,
                "steps": str(len(misses)),
                "error": f"{card.error(job):.1%}",
                "an interval": "from {:.0%} to {:.0%} of the prediction".format(*card.interval(job)),
                "between operators": f"{beyond.step_us:.0f} µs per step, "
                + ", ".join(f"{us:.1f}" for us in beyond.calls_us)
                + " µs per call",
            }
            for job, misses in card.misses.items()
            for beyond in [card.overheads.get(job, card.overheads[perfmodel.ALL])]
        ],
    )
    if card.is_poor:
        console.print(
            "This card is too inaccurate to trust: calibrate again while nothing else runs, and for longer (--seconds "
            "300)."
        )
    console.print(f"{path}: the card. Next: labkit predict dlrm --card {path}")
