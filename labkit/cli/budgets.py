"""`labkit budgets`: the budgets that this machine can enforce, and how faithful each one is."""

from __future__ import annotations

import argparse
import json

from labkit import hardware, json_data


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    what = "list the budgets that `--budget` can enforce on this machine, and check how faithful they are"
    parser = subparsers.add_parser("budgets", help=what, description=what)
    parser.add_argument("--all", action="store_true", help="also list those that cannot be enforced here, and why")
    parser.add_argument("--check", nargs="+", metavar="BUDGET", help="measure these, and compare with predictions")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run_budgets)


def run_budgets(args: argparse.Namespace) -> int:
    if args.check:
        return _check(args.check, as_json=args.json)
    possible, refused = hardware.possible_budgets()
    if args.json:
        print(json.dumps({"budgets": [json_data.to_json(budget) for budget in possible], "refused": refused}, indent=1))
        return 0
    from labkit.cli.console import Console, print_frame

    rows = [
        {
            "budget": budget.name,
            "what a run may use": budget.allows(),
            "the run is": "emulated" if budget.emulated else "measured",
            "also not emulated": ", ".join(
                x for x in budget.not_emulated if x not in (*hardware.OF_A_CPU, *hardware.OF_A_GPU)
            ),
        }
        for budget in possible
    ]
    console = Console(highlight=False)
    print_frame(console, rows)
    console.print("You can also write your own: cores=N, memory=2GiB, or both, as in cores=1,memory=2GiB.")
    if args.all:
        for name, why in refused.items():
            console.print(f"{name}: {why}", soft_wrap=True)
    elif refused:
        console.print(f"{len(refused)} other budgets cannot be enforced on this machine: --all says why.")
    console.print(
        "How budgets are enforced: cores by CPU affinity (if the system has it) and the number of threads of each "
        "library; memory by a process that watches the run; a share of a GPU by CUDA MPS, and its memory by the limit "
        "of torch's allocator (docs/budgets.md).\n"
        f"No budget changes, on a CPU: {', '.join(hardware.OF_A_CPU)}; on a GPU: {', '.join(hardware.OF_A_GPU)}. "
        "`labkit budgets --check BUDGET` shows how much that matters."
    )
    return 0


def _check(names: list[str], *, as_json: bool) -> int:
    """Print one line per budget: measured and predicted shares of the whole device."""
    from dataclasses import asdict

    from labkit.cli.console import Console, print_frame

    checks = hardware.check_budgets(names)
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
    print_frame(console, rows, "Shares of the whole device")
    console.print(
        "Used and left: measured now under the budget (emulated, if the budget makes the machine smaller). Predicted: "
        "from the number of cores, or from the catalogue. No budget reduces bandwidth: if more is left than predicted, "
        "a job that waits for memory is faster here than on the hardware that the budget stands for. Memory binds: "
        "whether a process that tried to use more memory than the budget was stopped."
    )
    return 0


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"
