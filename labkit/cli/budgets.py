"""`labkit budgets`: what this machine can enforce, by what means, and how faithful each budget is."""

from __future__ import annotations

import argparse
import json

BINDS = (
    "[bold]What binds.[/bold] Cores: CPU affinity, and as many threads in every numerical library. Memory: "
    "RLIMIT_DATA, so that an allocation beyond the budget fails where it is made and the run ends with an error "
    "that names the budget; a memory control group would have the kernel kill the run without a word. A GPU's "
    "share: CUDA MPS with a daemon that belongs to the run alone; its memory: the allocator's limit."
)


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "budgets",
        help="what `--budget` can enforce on this machine, and how faithful it is",
        description="What `--budget` can enforce on this machine, and how faithful it is.",
    )
    parser.add_argument("--all", action="store_true", help="also those that this machine cannot enforce, and why")
    parser.add_argument("--check", nargs="+", metavar="BUDGET", help="measure these beside what they promise")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run_budgets)


def run_budgets(args: argparse.Namespace) -> int:
    """Print a line a budget."""
    from labkit.hardware.budget_names import possible_budgets

    if args.check:
        return _check(args.check, as_json=args.json)
    possible, refused = possible_budgets()
    if args.json:
        print(json.dumps({"budgets": [budget.to_dict() for budget in possible], "refused": refused}, indent=1))
        return 0
    from rich import box
    from rich.table import Table

    from labkit.cli.console import Console
    from labkit.hardware.budgets import Budget
    from labkit.hardware.stand_ins import OF_A_CPU, OF_A_GPU

    def what(budget: Budget) -> str:
        from labkit.hardware.sizes import size_text

        parts = [f"{budget.cores} core{'s' * (budget.cores > 1)}"] if budget.cores else []
        parts += [size_text(budget.memory_bytes)] if budget.memory_bytes else []
        if budget.torch_name != "cpu":
            share = f"{budget.gpu_percent:g} % of " if budget.gpu_percent else ""
            parts.append(f"{share}{budget.torch_name}")
        parts += [f"{size_text(budget.gpu_memory_bytes)} of its memory"] if budget.gpu_memory_bytes else []
        return ", ".join(parts)

    table = Table(box=box.SIMPLE)
    for title in ("budget", "what a run may use", "the run is", "what it lacks beside what no budget emulates"):
        table.add_column(title, no_wrap=title == "budget")
    for budget in possible:
        kind = "emulated" if budget.emulated else "measured"
        lacks = [each for each in budget.not_emulated if each not in (*OF_A_CPU, *OF_A_GPU)]
        table.add_row(budget.name, what(budget), kind, ", ".join(lacks))
    console = Console(highlight=False)
    console.print(table)
    console.print("And your own: cores=N, memory=2GiB, or both, as in cores=1,memory=2GiB.")
    if args.all:
        alike: dict[str, list[str]] = {}
        for name, why in refused.items():
            alike.setdefault(why.replace(repr(name), "of that name"), []).append(name)
        for why, names in alike.items():
            console.print(f"[bold]{', '.join(names)}[/bold]: {why}", soft_wrap=True)
    elif refused:
        console.print(f"{len(refused)} tiers are more than this machine, or not enforceable on it: --all says why.")
    console.print(BINDS)
    console.print(
        f"[bold]What does not.[/bold] On a CPU: {', '.join(OF_A_CPU)}. On a GPU: {', '.join(OF_A_GPU)}. They stay as "
        "they are here."
    )
    return 0


def _check(names: list[str], *, as_json: bool) -> int:
    """Print a line a budget: measured shares of the whole device beside predicted ones."""
    from dataclasses import asdict

    from rich import box
    from rich.table import Table

    from labkit.cli.console import Console
    from labkit.hardware.budget_check import check_budgets

    checks = check_budgets(names)
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
        return 0
    table = Table(box=box.SIMPLE, title="Shares of what the whole device does", title_justify="left")
    table.add_column("budget", no_wrap=True)
    for title in ("arithmetic\nmeasured", "arithmetic\npredicted", "bandwidth\nmeasured", "bandwidth\npredicted"):
        table.add_column(title, justify="right")
    for check in checks:
        shares = (check.arithmetic, check.predicted_arithmetic, check.bandwidth, check.predicted_bandwidth)
        table.add_row(check.name, *("-" if share is None else f"{share:.2f}" for share in shares))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "Predicted by the number of cores, or by the catalogue's figures of both GPUs. No budget takes bandwidth away: "
        "where its measured share is the larger one, a job that waits for memory is faster here than on the hardware "
        "that the budget stands for."
    )
    return 0
