"""`labkit doctor`, `budgets` and `tiers`: what this machine is, what a run may use of it, and what others offer."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.text import Text

from labkit import hardware, json_data
from labkit.cli.console import Console, print_frame
from labkit.cli.flags import add_command
from labkit.cli.printing import print_json

TABLE_WIDTH = 116
"""Width of the catalogue in characters. On a narrower terminal, long lines are better than numbers cut in two."""
LEGEND = """FP32, TF32, BF16: dense peaks in TFLOP/s. $: list price. $/h: rental price.
-: no source found.  *: not verified in the named source.  Figures of a server are per device.
`labkit tiers NAME` shows the source and date of each figure."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    add_command(subparsers, "doctor", run=run_doctor, flags="json")
    budgets = add_command(subparsers, "budgets", run=run_budgets, flags="json")
    budgets.add_argument("--all", action="store_true", help="also list those that cannot be enforced here, and why")
    budgets.add_argument("--check", nargs="+", metavar="BUDGET", help="measure these, and compare with predictions")
    tiers = add_command(subparsers, "tiers", run=run_tiers, flags="json")
    tiers.add_argument("name", nargs="?", metavar="NAME", help="show one tier, with the source of each figure")


def run_doctor(args: argparse.Namespace) -> None:
    from labkit_course import labs_on

    report = hardware.examine()
    report["labs"] = labs_on(report)
    if args.json:
        return print_json(report, indent=2)
    mark, versions, profilers, labs = {True: "yes ", False: "no  "}, report["packages"], {}, {}
    for tool in report["profilers"]:
        profilers[tool["name"]] = f"{mark[tool['works']]}{tool['version'] or ''} {tool['note'] or ''}"
    for lab in report["labs"]:
        labs[lab["notebook"]] = mark[lab["runs"]] + (lab["title"] if lab["runs"] else lab["why"])
    packages = {"installed": ", ".join(f"{name} {version}" for name, version in versions.items() if version)}
    if missing := [name for name, version in versions.items() if version is None]:
        packages["missing"] = ", ".join(missing)
    sections = {
        "This machine": _machine(report),
        "GPUs": _gpus(report),
        "Profilers": profilers.items(),
        "Packages": packages.items(),
        "Labs": labs.items(),
    }
    console = Console()
    for title, rows in sections.items():
        if rows := list(rows):
            print_frame(console, [{title: name, "": words} for name, words in rows])
    console.print(Text("What to do about it" if report["advice"] else "Nothing is missing.", style="bold"))
    for item in report["advice"]:
        console.print(f"  {item['why']}")
        console.print(f"    {item['do']}", style="cyan")


def _machine(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    cpu, memory, disk = report["cpu"], report["memory"], report["disk"]
    quota = f", container quota {cpu['quota_cores']:g}" if cpu["quota_cores"] else ""
    physical = f"{cpu['physical_cores']} physical, " if cpu["physical_cores"] else ""
    limit = ", limited by the container" if memory["limited_by_container"] else ""
    yield "Python", f"{report['python']}   {report['executable']}"
    yield "System", f"{report['system']}, {cpu['architecture']}"
    yield "CPU", f"{cpu['model']}{', ' + cpu['board'] if cpu['board'] else ''}"
    yield "Cores", f"{cpu['available_cores']} usable ({physical}{cpu['logical_cores']} logical{quota})"
    yield "Instructions", "\n".join([", ".join(cpu["isa"] or ["unknown"]), *cpu["isa_notes"]])
    if cpu["caches"]:
        yield "Caches", ", ".join(f"{name} {hardware.size_text(size)}" for name, size in cpu["caches"].items())
    free, total = (hardware.size_text(memory[f"{which}_bytes"]) for which in ("available", "total"))
    yield "Memory", f"{free} free of {total}{limit}"
    yield "Disk", f"{hardware.size_text(disk['free_bytes'])} free in {disk['path']}"
    yield "Priced as", f"{cpu['tier'] or 'no tier of the catalogue'}   (labkit tiers)"
    yield "Budgets", ", ".join(f"{each['name']}{' (emulated)' * each['emulated']}" for each in report["budgets"])


def _gpus(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    driver, mig, mps = report["driver"], report["mig"], report["mps"]
    yield "Driver", driver["version"] or f"none: {driver['reason'] or 'no GPU'}"
    if report["cuda_visible_devices"] is not None:
        yield "Visible", f"CUDA_VISIBLE_DEVICES={report['cuda_visible_devices']!r}"
    yield "MIG", f"on, {mig['slices']} slices" if mig["on"] else mig["note"]
    daemon = ", and a daemon's pipe exists" if mps["daemon_seen"] else ""
    yield "MPS", f"available{daemon}" if mps["available"] else f"no: {mps['note']}"
    for gpu in report["gpus"]:
        facts = {
            "{}": gpu["name"],
            "{} of memory": gpu["memory_bytes"] and hardware.size_text(gpu["memory_bytes"]),
            "{} SMs": gpu["sm_count"],
            "compute capability {}": gpu["compute_capability"],
            "{:g} W": gpu["power_limit_w"],
            "priced as {}": gpu["tier"],
        }
        unread = [f"{name}: {reason}" for name, reason in gpu["missing"].items() if name != "torch_name"]
        known = ", ".join(words.format(fact) for words, fact in facts.items() if fact)
        yield gpu["torch_name"] or "-", "\n".join([known, *unread])


def run_budgets(args: argparse.Namespace) -> None:
    if args.check:
        return _check(args.check, as_json=args.json)
    possible, refused = hardware.possible_budgets()
    if args.json:
        return print_json({"budgets": [json_data.to_json(budget) for budget in possible], "refused": refused}, indent=1)
    console, rows = Console(), []
    for budget in possible:
        others = [each for each in budget.not_emulated if each not in (*hardware.OF_A_CPU, *hardware.OF_A_GPU)]
        row = {
            "budget": budget.name,
            "what a run may use": budget.allows(),
            "the run is": "emulated" if budget.emulated else "measured",
            "also not emulated": ", ".join(others),
        }
        rows.append(row)
    print_frame(console, rows)
    console.print("You can also write your own: cores=N, memory=2GiB, or both, as in cores=1,memory=2GiB.")
    if args.all:
        for name, why in refused.items():
            console.print_line(f"{name}: {why}")
    elif refused:
        console.print(f"{len(refused)} other budgets cannot be enforced on this machine: --all says why.")
    console.print(
        "How budgets are enforced: cores by CPU affinity (if the system has it) and the number of threads of each "
        "library; memory by a process that watches the run; a share of a GPU by CUDA MPS, and its memory by the limit "
        "of torch's allocator (docs/budgets.md).\n"
        f"No budget changes, on a CPU: {', '.join(hardware.OF_A_CPU)}; on a GPU: {', '.join(hardware.OF_A_GPU)}. "
        "`labkit budgets --check BUDGET` shows how much that matters."
    )


def _check(names: list[str], *, as_json: bool) -> None:
    """Print one line per budget: measured and predicted shares of the whole device."""
    console = Console(stderr=as_json)
    with console.doing(f"measuring the whole device and {', '.join(names)}, some seconds each ..."):
        checks = hardware.check_budgets(names)
    if as_json:
        return print_json([asdict(check) for check in checks], indent=1)
    rows, binds = [], {True: "yes", False: "no", None: "-"}
    for check in checks:
        row = {
            "budget": check.name,
            "cores used": f"{check.cores_used:.2f}",
            "allowed": str(check.cores or "-"),
            "memory binds": binds[check.memory_binds],
            "FLOP/s left": _share(check.arithmetic),
            "predicted": _share(check.predicted_arithmetic),
            "GB/s left": _share(check.bandwidth),
            "predicted ": _share(check.predicted_bandwidth),
        }
        rows.append(row)
    print_frame(console, rows, "Shares of the whole device")
    console.print(
        "Used and left: measured now under the budget (emulated, if the budget makes the machine smaller). Predicted: "
        "from the number of cores, or from the catalogue. No budget reduces bandwidth: if more is left than predicted, "
        "a job that waits for memory is faster here than on the hardware that the budget stands for. Memory binds: "
        "whether a process that tried to use more memory than the budget was stopped."
    )


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"


def run_tiers(args: argparse.Namespace) -> None:
    tiers = [hardware.get_tier(args.name)] if args.name else list(hardware.load_tiers().values())
    if args.json:
        content = [tier.to_dict() for tier in tiers]
        print_json(content[0] if args.name else content, indent=2)
    elif args.name:
        _print_tier(tiers[0])
    else:
        rows = [
            {"tier": tier.name, "year": str(tier.year or "-"), "cores": tier.cores or "-"}
            | {heading: _cell(tier.figure(name)) for name, (heading, _) in hardware.FIGURES.items()}
            for tier in tiers
        ]
        print_frame(Console(width=max(Console().width, TABLE_WIDTH)), rows)
        print(LEGEND)


def _print_tier(tier: "hardware.Tier") -> None:
    console = Console()
    about = ", ".join(str(part) for part in (tier.kind, tier.year, tier.cores and f"{tier.cores} cores") if part)
    console.print("\n".join(filter(None, [f"{tier.label}   {tier.name}: {about}", tier.note])))
    rows = []
    for name, figure in tier.figures.items():
        _, meaning = (hardware.FIGURES | hardware.SERVER_FIGURES)[name]
        remarks = [figure.source, figure.note, None if figure.checked else "not verified in the named source"]
        row = {"figure": meaning, "value": _cell(figure), "source": "\n".join(filter(None, remarks))}
        rows.append(row | {"date": figure.date})
    print_frame(console, rows)
    pages = {figure.source: figure.url for figure in tier.figures.values() if figure.source}
    for title, url in pages.items():
        console.print_line(f"{title}\n  {url}")


def _cell(figure: "hardware.Figure") -> str:
    return "-" if figure.value is None else f"{figure.value:,g}" + ("" if figure.checked else "*")
