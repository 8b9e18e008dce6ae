"""`labkit energy`: joules of runs, a sample and to the target, average watts and carbon."""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

from labkit.errors import UserError


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "energy",
        help="what runs took in energy: joules, watts, joules a sample and to the target, carbon",
        description="Energy of runs: from hardware counters where there are any, else from power over time.",
    )
    parser.add_argument("which", nargs="*", metavar="RUN", help="a folder, an id, or its beginning (default: all runs)")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
    parser.add_argument(
        "--grid", type=float, metavar="G", help="carbon intensity of your grid, in g of CO2 equivalent a kWh"
    )
    parser.add_argument(
        "--estimate", action="store_true", help="where nothing was measured, predict from the power of the run's tier"
    )
    parser.add_argument("--power", type=float, metavar="W", help="predict with this power instead of the tier's")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run_energy)


def run_energy(args: argparse.Namespace) -> int:
    """Print a line a run, then what each number is."""
    from dataclasses import asdict

    for flag, value in (("--grid", args.grid), ("--power", args.power)):
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{flag} is {value:g}: give a number above zero.")
    from labkit.runs import find_run
    from labkit.runs.query import readable_runs, run_folders
    from labkit.tta.energy import energy_account

    folders = [find_run(which, args.runs_dir) for which in args.which]
    folders = folders or [folder for folder, _ in readable_runs(run_folders(args.runs_dir))]
    if not folders:
        raise UserError(
            f"{args.runs_dir}: no run is here. `labkit train dlrm` makes one; --runs-dir names another place."
        )
    accounts = []
    for folder in folders:
        try:
            account = energy_account(
                folder, grid_g_per_kwh=args.grid, estimate=args.estimate, assumed_power_w=args.power
            )
        except UserError as error:
            if args.which:
                raise
            warnings.warn(f"left out: {error}", stacklevel=1)  # of all runs, one may be profiled
        else:
            accounts.append(account)
    if not accounts:
        raise UserError(f"{args.runs_dir}: of no run here the energy can be told; the lines above say why.")
    if args.json:
        print(json.dumps([asdict(account) for account in accounts], indent=1))
    else:
        _print(accounts)
    return 0


def _print(accounts: list) -> None:
    import pandas as pd

    from labkit.cli.console import Console, print_frame

    columns = {
        "energy_j": "J",
        "average_power_w": "W",
        "energy_per_sample_j": "J a sample",
        "energy_to_target_j": "J to target",
        "carbon_g": "g carbon",
    }
    rows = [
        {"run": account.run, "what it is": "-" if account.energy_j is None else account.kind}
        | {heading: _number(getattr(account, name)) for name, heading in columns.items()}
        for account in accounts
    ]
    console = Console(highlight=False)
    print_frame(console, pd.DataFrame(rows))
    console.print("J to target: until the target was reached; carbon: CO2 equivalent.")
    for account in accounts:
        source = f"{account.source}: " if account.source else ""
        console.print(f"{account.run}: {source}{account.note}", soft_wrap=True)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"
