"""`labkit doctor`: what this machine is, which labs run, and what to install for the others."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from labkit import hardware


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    what = "describe this machine, list the labs that run on it, and say what to install for the others"
    parser = subparsers.add_parser("doctor", help=what)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.set_defaults(run=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    from rich.text import Text

    from labkit.cli.console import Console, print_frame
    from labkit.cli.course import labs_on

    report = hardware.examine()
    report["labs"] = labs_on(report)
    if args.json:
        print(json.dumps(report, indent=2))
        return 0
    mark, versions = {True: "yes ", False: "no  "}, report["packages"]
    missing = ", ".join(name for name, version in versions.items() if version is None)
    sections = {
        "This machine": _machine(report),
        "GPUs": _gpus(report),
        "Profilers": [
            (tool["name"], f"{mark[tool['works']]}{tool['version'] or ''} {tool['note'] or ''}")
            for tool in report["profilers"]
        ],
        "Packages": [
            ("installed", ", ".join(f"{name} {version}" for name, version in versions.items() if version)),
            *([("missing", missing)] if missing else []),
        ],
        "Labs": [
            (lab["notebook"], mark[lab["runs"]] + (lab["title"] if lab["runs"] else lab["why"]))
            for lab in report["labs"]
        ],
    }
    console = Console(highlight=False)
    for title, rows in sections.items():
        if rows := list(rows):
            print_frame(console, [{title: name, "": words} for name, words in rows])
    console.print(Text("What to do about it" if report["advice"] else "Nothing is missing.", style="bold"))
    for item in report["advice"]:
        console.print(f"  {item['why']}")
        console.print(f"    {item['do']}", style="cyan")
    return 0


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
    yield (
        "Memory",
        f"{hardware.size_text(memory['available_bytes'])} free of {hardware.size_text(memory['total_bytes'])}{limit}",
    )
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
