"""`labkit budgets`: what this machine can enforce, by what means, and how faithful each budget is."""

from __future__ import annotations

import argparse
import json


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    what = "what `--budget` can enforce on this machine, and how faithful it is"
    parser = subparsers.add_parser("budgets", help=what, description=what)
    parser.add_argument("--all", action="store_true", help="also those that this machine cannot enforce, and why")
    parser.add_argument("--check", nargs="+", metavar="BUDGET", help="measure these beside what they promise")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run_budgets)


def run_budgets(args: argparse.Namespace) -> int:
    from labkit.hardware import possible_budgets
    from labkit.json_data import to_json

    if args.check:
        return _check(args.check, as_json=args.json)
    possible, refused = possible_budgets()
    if args.json:
        print(json.dumps({"budgets": [to_json(budget) for budget in possible], "refused": refused}, indent=1))
        return 0
    from labkit.cli.console import Console, print_frame
    from labkit.hardware import OF_A_CPU, OF_A_GPU

    rows = [
        {
            "budget": budget.name,
            "what a run may use": budget.allows(),
            "the run is": "emulated" if budget.emulated else "measured",
            "also not emulated": ", ".join(x for x in budget.not_emulated if x not in (*OF_A_CPU, *OF_A_GPU)),
        }
        for budget in possible
    ]
    console = Console(highlight=False)
    print_frame(console, rows)
    console.print("And your own: cores=N, memory=2GiB, or both, as in cores=1,memory=2GiB.")
    if args.all:
        for name, why in refused.items():
            console.print(f"{name}: {why}", soft_wrap=True)
    elif refused:
        console.print(f"{len(refused)} tiers are more than this machine, or not enforceable on it: --all says why.")
    console.print(
        "What binds. Cores: CPU affinity, where the system has it, and the threads of every library. Memory: a watch "
        "beside the run. A GPU's share: CUDA MPS; its memory: the allocator's limit (docs/budgets.md).\n"
        f"What is not emulated by any budget. On a CPU: {', '.join(OF_A_CPU)}. On a GPU: {', '.join(OF_A_GPU)}. "
        "They stay as they are here. How far that leads: labkit budgets --check BUDGET."
    )
    return 0


def _check(names: list[str], *, as_json: bool) -> int:
    """Print a line a budget: measured shares of the whole device beside predicted ones."""
    from dataclasses import asdict

    from labkit.cli.console import Console, print_frame
    from labkit.hardware import check_budgets

    checks = check_budgets(names)
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
        return 0
    rows = [
        {
            "budget": check.name,
            "cores used": f"{check.cores_used:.2f}",
            "allowed": str(check.cores or "-"),
            "memory binds": {True: "yes", False: "no", None: "-"}[check.memory_binds],
            "FLOP/s left": _share(check.arithmetic),
            "predicted": _share(check.predicted_arithmetic),
            "GB/s left": _share(check.bandwidth),
            "predicted ": _share(check.predicted_bandwidth),
        }
        for check in checks
    ]
    console = Console(highlight=False)
    print_frame(console, rows, "Shares of what the whole device does")
    console.print(
        "Used and left were measured now, under the budgets: emulated where a budget makes the machine smaller. "
        "Predicted: by the number of cores, or by the catalogue's figures. No budget takes bandwidth away: where more "
        "is left than predicted, a job that waits for memory is faster here than on the hardware that the budget "
        "stands for. Memory binds where a process that took all of the budget was stopped."
    )
    return 0


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"
