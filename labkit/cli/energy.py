"""`labkit energy`: joules of runs, per sample and to the target, average watts and carbon."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import asdict

from labkit import UserError, runs, tta
from labkit.cli.console import Console, print_frame, print_json
from labkit.cli.flags import RUN, add_flags, refuse_unless_positive


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "energy",
        help="energy of runs: joules, watts, joules per sample and to target, carbon",
        description="Energy of runs: from hardware counters where there are any, else from power over time.",
    )
    add = parser.add_argument
    add("which", nargs="*", **RUN)
    add("--grid", type=float, metavar="G", help="carbon intensity of your grid, in g of CO2 equivalent per kWh")
    add("--estimate", action="store_true", help="where nothing was measured, predict from the power of the run's tier")
    add("--power", type=float, metavar="W", help="predict with this power instead of the tier's")
    add_flags(parser, "runs_dir", "json", run=run_energy)


def run_energy(args: argparse.Namespace) -> int:
    refuse_unless_positive("--grid", args.grid)
    refuse_unless_positive("--power", args.power)

    folders = [runs.find_run(which, args.runs_dir) for which in args.which]
    folders = folders or [folder for folder, _ in runs.readable_runs(runs.run_folders(args.runs_dir))]
    if not folders:
        raise UserError(
            f"{args.runs_dir} has no runs: start one with `labkit train dlrm`, or give another folder with --runs-dir."
        )
    accounts, windows, options = [], [], {"estimate": args.estimate, "assumed_power_w": args.power}
    for folder in folders:
        try:
            accounts.append(tta.energy_account(folder, grid_g_per_kwh=args.grid, **options))
            sums = tta.windows_by_name(tta.window_energy(folder, **options))
            windows.append(sums.astype(object).where(sums.notna(), None).to_dict("records"))
        except UserError as error:
            if args.which:
                raise
            warnings.warn(f"left out: {error}", stacklevel=1)  # of all runs, one may be profiled
    if not accounts:
        raise UserError(f"{args.runs_dir}: the energy of no run here is known; the lines above say why.")
    if args.json:
        both = zip(accounts, windows, strict=True)
        return print_json([asdict(account) | {"windows": own} for account, own in both])
    _print(accounts, windows)
    return 0


def _print(accounts: list, windows: list[list[dict]]) -> None:
    rows = [
        {
            "run": account.run,
            "what it is": "-" if account.energy_j is None else account.kind,
            "J": account.energy_j,
            "W": account.average_power_w,
            "J per sample": account.energy_per_sample_j,
            "J to target": account.energy_to_target_j,
            "g carbon": account.carbon_g,
        }
        for account in accounts
    ]
    console = Console()
    print_frame(console, rows)
    console.print("J to target: until the target was reached; carbon: CO2 equivalent.")
    for account in accounts:
        source = f"{account.source}: " if account.source else ""
        console.print_line(f"{account.run}: {source}{account.note}")
    names = {"count": "times", "seconds": "s", "energy_j": "J", "average_power_w": "W"}
    for account, own in zip(accounts, windows, strict=True):
        if own:
            own = [row | {"note": row["note"].replace(account.note, "")} for row in own]  # which is printed above
            rows = [{names.get(name, name): value for name, value in row.items()} for row in own]
            print_frame(console, rows, f"windows of {account.run}")
