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
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run_budgets)


def run_budgets(args: argparse.Namespace) -> int:
    """Print a line a budget."""
    from labkit.hardware.budget_names import possible_budgets

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
