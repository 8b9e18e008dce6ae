"""`labkit doctor`: what this machine is, which labs run, and what to install for the others."""

from __future__ import annotations

import argparse
import json
import sys
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
    report = examine()
    report["labs"] = labs_on(report)
    report["steps"] = [asdict(times) for times in remembered()]
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        _print_report(report)
    return 0


def _print_report(report: dict[str, Any]) -> None:
    from labkit.cli.console import Console

    console, report = Console(markup=True, highlight=False), _escaped(report)
    _print_machine(console, report)
    _print_gpus(console, report)
    _print_steps(console, report)
    _print_software(console, report)
    _print_labs(console, report)
    _print_advice(console, report)


def _escaped(value: Any) -> Any:
    """The same with texts whose brackets are no markup."""
    from rich.markup import escape

    if isinstance(value, dict):
        return {name: _escaped(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return escape(value) if isinstance(value, str) else value


def _print_machine(console, report: dict[str, Any]) -> None:
    cpu, memory = report["cpu"], report["memory"]
    quota = f", container quota {cpu['quota_cores']:g}" if cpu["quota_cores"] else ""
    physical = f"{cpu['physical_cores']} physical, " if cpu["physical_cores"] else ""
    lines = _grid()
    lines.add_row("Python", f"{report['python']}   [dim]{report['executable']}[/dim]")
    lines.add_row("System", f"{report['system']}, {cpu['architecture']}")
    if cpu["board"]:
        lines.add_row("Board", cpu["board"])
    lines.add_row("CPU", cpu["model"])
    lines.add_row("Cores", f"{cpu['available_cores']} usable ({physical}{cpu['logical_cores']} logical{quota})")
    lines.add_row("Instructions", _instructions(cpu))
    if cpu["caches_bytes"]:
        caches = ", ".join(f"{name} {_size(size)}" for name, size in cpu["caches_bytes"].items())
        lines.add_row("Caches", caches)
    limited = " (the container's limit)" if memory["limited_by_container"] else ""
    lines.add_row("Memory", f"{_size(memory['total_bytes'])}{limited}, {_size(memory['available_bytes'])} free now")
    lines.add_row("Disk", f"{_size(report['disk']['free_bytes'])} free in {report['disk']['path']}")
    lines.add_row("Priced as", f"{cpu['tier'] or 'no tier of the catalogue'}   [dim]labkit tiers[/dim]")
    budgets = [f"{budget['name']}{' (emulated)' if budget['emulated'] else ''}" for budget in report["budgets"]]
    lines.add_row("Budgets", ", ".join(budgets))
    console.print(_panel("This machine", lines))


def _instructions(cpu: dict[str, Any]) -> str:
    if cpu["isa"] is None:
        return f"unknown: {'; '.join(cpu['isa_notes'])}"
    families = (
        ("avx2", "avx512", "amx") if cpu["architecture"].lower() in ("x86_64", "amd64", "i386") else ("neon", "sve")
    )
    marks = [_mark(family in cpu["isa"]) + f" {family}" for family in families]
    extra = [name for name in cpu["isa"] if name not in families]
    text = "  ".join(marks) + (f"  [dim]also {', '.join(extra)}[/dim]" if extra else "")
    capped = [name for name in cpu["isa"] if name not in cpu["isa_usable"]]
    notes = [*cpu["isa_notes"], *([f"out of use: {', '.join(capped)}"] if capped else [])]
    return text + "".join(f"\n[yellow]{note}[/yellow]" for note in notes)


def _print_gpus(console, report: dict[str, Any]) -> None:
    from rich.table import Table

    lines = _grid()
    driver = report["driver"]
    lines.add_row("Driver", driver["version"] or f"[dim]none: {driver['reason'] or 'no GPU'}[/dim]")
    if report["cuda_visible_devices"] is not None:
        lines.add_row("Visible", f"CUDA_VISIBLE_DEVICES={report['cuda_visible_devices']!r}")
    mig, mps = report["mig"], report["mps"]
    lines.add_row("MIG", f"on, {mig['slices']} slices" if mig["on"] else f"[dim]{mig['note']}[/dim]")
    daemon = ", a daemon's pipe is there" if mps["daemon_seen"] else ""
    lines.add_row("MPS", f"available{daemon}" if mps["available"] else f"[dim]no: {mps['note']}[/dim]")
    console.print(_panel("GPUs", lines))
    if not report["gpus"]:
        return
    table = Table(box=None, header_style="bold", padding=(0, 2))
    for column in ("torch", "device", "memory", "SMs", "compute", "power", "priced as", "not readable"):
        table.add_column(column)
    for gpu in report["gpus"]:
        table.add_row(
            gpu["torch_name"] or "-",
            gpu["name"],
            _size(gpu["memory_bytes"]),
            _or_dash(gpu["sm_count"]),
            _or_dash(gpu["compute_capability"]),
            f"{gpu['power_limit_w']:g} W" if gpu["power_limit_w"] else "-",
            _or_dash(gpu["tier"]),
            "\n".join(f"{name}: {reason}" for name, reason in gpu["missing"].items() if name != "torch_name"),
        )
    console.print(table)


def _print_steps(console, report: dict[str, Any]) -> None:
    """What a training step took in each precision, by which one is chosen; the latest few."""
    from labkit.fast.times import StepTimes

    if not report["steps"]:
        return
    lines = _grid()
    for values in report["steps"][-STEPS_SHOWN:]:
        times = StepTimes(**values)
        lines.add_row(times.job, f"{times}\n[dim]{times.machine}[/dim]")
    console.print(_panel("Training steps as measured here, which decides the precision of all budgets", lines))


def _print_software(console, report: dict[str, Any]) -> None:
    lines = _grid()
    for tool in report["profilers"]:
        said = tool["version"] or ("" if tool["path"] else "not found")
        note = f"   [yellow]{tool['note']}[/yellow]" if tool["path"] and tool["note"] else ""
        lines.add_row(tool["name"], f"{_mark(tool['works'])} {said}{note}")
    console.print(_panel("Profilers", lines))
    versions = report["packages"]
    there = "  ".join(f"{name} [dim]{version}[/dim]" for name, version in versions.items() if version)
    absent = [name for name, version in versions.items() if version is None]
    console.print(_panel("Packages", there + (f"\n[red]missing: {', '.join(absent)}[/red]" if absent else "")))


def _print_labs(console, report: dict[str, Any]) -> None:
    lines = _grid()
    for lab in report["labs"]:
        lines.add_row(lab["notebook"], f"{_mark(lab['runs'])} {lab['title'] if lab['runs'] else lab['why']}")
    console.print(_panel("Labs", lines))


def _print_advice(console, report: dict[str, Any]) -> None:
    if not report["advice"]:
        console.print("[green]Nothing is missing.[/green]")
        return
    console.print("[bold]What to do about it[/bold]")
    for item in report["advice"]:
        console.print(f"  {item['why']}\n    [cyan]{item['do']}[/cyan]")


def _grid():
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _panel(title: str, content):
    from rich.panel import Panel

    return Panel(content, title=title, title_align="left", border_style="dim")


def _mark(good: bool) -> str:
    return "[green]yes[/green]" if good else "[dim]no [/dim]"


def _size(count: int | None) -> str:
    if count is None:
        return "-"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= size:
            return f"{count / size:.1f} {unit}" if count < 100 * size else f"{count / size:.0f} {unit}"
    return f"{count / 2**10:.0f} KiB"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
