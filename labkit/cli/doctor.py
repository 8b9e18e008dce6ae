"""`labkit doctor`: what this machine is, which labs run, and what to install for the others."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

STEPS_SHOWN = 6
"""Times of a training step that fit on a screen; `--json` has all."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "doctor", help="what this machine is, which labs run here, and what to install for the others"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument(
        "--forget-steps", action="store_true", help="drop the remembered training steps: the next run measures anew"
    )
    parser.set_defaults(run=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    """Examine the machine and print the report; the status is 0 whatever is found."""
    from labkit.course.labs import labs_on
    from labkit.fast.times import forget, remembered
    from labkit.hardware.doctor import examine

    if args.forget_steps:
        print(f"labkit: remembered times of a training step that are now forgotten: {forget()}", file=sys.stderr)
    report, steps = examine(), remembered()
    report["labs"] = labs_on(report)
    report["steps"] = [asdict(times) for times in steps]
    if args.json:
        print(json.dumps(report, indent=2))
        return 0
    sections = {
        "This machine": _machine(report),
        "GPUs": _gpus(report),
        "Training steps as measured here, which decides the precision of all budgets": (
            (times.job, f"{times}\n{times.machine}") for times in steps[-STEPS_SHOWN:]
        ),
        "Profilers": (
            (tool["name"], f"{_mark(tool['works'])} {tool['version'] or ''} {tool['note'] or ''}")
            for tool in report["profilers"]
        ),
        "Packages": _packages(report["packages"]),
        "Labs": (
            (lab["notebook"], f"{_mark(lab['runs'])} {lab['title'] if lab['runs'] else lab['why']}")
            for lab in report["labs"]
        ),
    }
    _print(sections, report["advice"])
    return 0


def _print(sections: dict[str, Iterator[tuple[str, str]]], advice: list[dict[str, str]]) -> None:
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from labkit.cli.console import Console

    console = Console(highlight=False)
    for title, rows in sections.items():
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for row in rows:
            grid.add_row(*row)
        if grid.row_count:
            console.print(Panel(grid, title=title, title_align="left", border_style="dim"))
    console.print(Text("What to do about it" if advice else "Nothing is missing.", style="bold"))
    for item in advice:
        console.print(f"  {item['why']}")
        console.print(f"    {item['do']}", style="cyan")


def _machine(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from labkit.hardware.sizes import size_text

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
        yield "Caches", ", ".join(f"{name} {size_text(size)}" for name, size in cpu["caches"].items())
    yield "Memory", f"{size_text(memory['available_bytes'])} free of {size_text(memory['total_bytes'])}{limit}"
    yield "Disk", f"{size_text(disk['free_bytes'])} free in {disk['path']}"
    yield "Priced as", f"{cpu['tier'] or 'no tier of the catalogue'}   (labkit tiers)"
    yield "Budgets", ", ".join(f"{each['name']}{' (emulated)' * each['emulated']}" for each in report["budgets"])


def _gpus(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from labkit.hardware.sizes import size_text

    driver, mig, mps = report["driver"], report["mig"], report["mps"]
    yield "Driver", driver["version"] or f"none: {driver['reason'] or 'no GPU'}"
    if report["cuda_visible_devices"] is not None:
        yield "Visible", f"CUDA_VISIBLE_DEVICES={report['cuda_visible_devices']!r}"
    yield "MIG", f"on, {mig['slices']} slices" if mig["on"] else mig["note"]
    daemon = ", a daemon's pipe is there" if mps["daemon_seen"] else ""
    yield "MPS", f"available{daemon}" if mps["available"] else f"no: {mps['note']}"
    for gpu in report["gpus"]:
        facts = [
            gpu["name"],
            gpu["memory_bytes"] and size_text(gpu["memory_bytes"]),
            gpu["sm_count"] and f"{gpu['sm_count']} SMs",
            gpu["compute_capability"] and f"compute capability {gpu['compute_capability']}",
            gpu["power_limit_w"] and f"{gpu['power_limit_w']:g} W",
            gpu["tier"] and f"priced as {gpu['tier']}",
        ]
        unread = [f"{name}: {reason}" for name, reason in gpu["missing"].items() if name != "torch_name"]
        yield gpu["torch_name"] or "-", "\n".join([", ".join(filter(None, facts)), *unread])


def _packages(versions: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    yield "installed", ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if absent := [name for name, version in versions.items() if version is None]:
        yield "missing", ", ".join(absent)


def _mark(good: bool) -> str:
    return "yes" if good else "no "
