"""The `labkit` command: modules of one or a few sub-commands, heavy imports only when one runs."""

import argparse
import importlib
import sys
import traceback
import warnings

from labkit import __version__, process
from labkit.cli import printing
from labkit.cli.printing import say, write_nowhere
from labkit.errors import UserError, refusal

COMMANDS = {
    "run": {
        "run": "run any training script: under a budget, sampled, recorded, resumed",
        "train": "train a model to a target accuracy, and record what it took",
    },
    "sweep": {
        "sweep": "run a grid of settings, seeds and budgets",
        "sweep show": "what came of a sweep: table, figure, CSV",
        "tour": "train both jobs to their targets under every budget of this machine, and write the report",
    },
    "profile": {"profile": "where the time of a training step goes, and what to change"},
    "collocate": {"collocate": "run several jobs on one device, and compare the ways to share it"},
    "pack": {"pack": "run a queue of jobs, placed by a policy that knows their memory"},
    "runs": {
        "runs": "list runs, show one, stop one; import, export, archive, record and reproduce them",
        "report": "write one offline page, with time-to-accuracy plots, about a folder of runs",
    },
    "query": {"query": "answer one SELECT over runs, metrics, telemetry and events"},
    "live": {"live": "one page over all runs while they go on"},
    "monitor": {"monitor": "show live counters of this machine, a process, or a run"},
    "energy": {
        "energy": "energy of runs: joules, watts, joules per sample and to target, carbon",
        "energy trial": "joules per sample of a script at its steady state, in several trials",
    },
    "machine": {
        "doctor": "describe this machine, list the labs that run on it, and say what to install for the others",
        "budgets": "list the budgets that `--budget` can enforce on this machine, and check how faithful they are",
        "tiers": "list the catalogue of hardware tiers, from laptops to servers",
    },
    "data": {"data": "list, make and prepare datasets"},
    "course": {"course": "build, run and publish the notebooks", "claims": "the papers' claims and your verdicts"},
    "league": {"league": "who reaches a target soonest on a small budget: tracks, records, challengers"},
    "whatif": {
        "whatif": "the gain of a change to a training or its machine",
        "plan": "say where a model's embedding tables fit, and where they are fastest",
    },
    "predict": {
        "calibrate": "time this CPU's operators in two minutes, for `labkit predict`",
        "predict": "the time of a training step on the machine of a card",
    },
    "pipeline": {"pipeline": "whole pipelines on small machines"},
    "index": {"index": "what a request to a learned index, a B+-tree or a radix tree costs, by several instruments"},
    "transcribe": {"transcribe": "write what is said in audio files, with a recogniser that was trained here"},
}
"""Commands and what they are for, by the module that has them; only the module of the command that runs is imported"""


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser that knows a command's flags, and of all others the name and what they are for."""
    parser = argparse.ArgumentParser(
        prog="labkit", description="What does it cost to reach this accuracy, on this hardware, run this way?"
    )
    parser.add_argument("--version", action="version", version=f"labkit {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module, commands in COMMANDS.items():
        if command in commands:
            importlib.import_module(f"labkit.cli.{module}").add_parser(subparsers)
        else:
            for name, words in commands.items():
                subparsers.add_parser(name, help=words)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0, 2 for the user's mistakes, 1 for ours, 130 on Ctrl-C."""
    if argv is None:  # this process is the command's own
        argv = sys.argv[1:]
        printing.spell_for_ascii()
        trains = argv[:1] == ["train"] and not {"--help", "-h"} & {*argv} and process.is_possible()
        trains = trains and not any(each.startswith("--nproc") for each in argv)  # its ranks start cold
        if trains and (status := process.run_in_server(argv)) is not None:
            return status
        printing.print_at_exit()
    if argv[:1] == ["serve-tables"]:  # which the version before had
        instead = "`labkit train dlrm --placement remote` starts a parameter server of its own, and ends it."
        say(f"labkit: labkit serve-tables is gone, and so is --server: {instead}", to_stderr=True)
        return 2
    if argv[:2] in (["energy", "trial"], ["sweep", "show"]):  # argparse has no command next to an argument of its own
        argv = [" ".join(argv[:2]), *argv[2:]]
    if argv[:1] == ["sweep"] and "--slurm" in argv[:-1]:  # argparse takes a value that begins with dashes for a flag
        at = argv.index("--slurm")
        argv = [*argv[:at], "=".join(argv[at : at + 2]), *argv[at + 2 :]]
    parser = build_parser(argv[0] if argv else None)
    args, passed_on = parser.parse_known_args(argv)
    if getattr(args, "passes_on", False):
        args.passed_on = passed_on
    elif passed_on:
        place = "`--resume RUN --`" if getattr(args, "resume", None) else "its name"
        hint = f"; a script's own flags stand behind {place}" if hasattr(args, "script") else ""
        parser.error(f"unrecognized arguments: {' '.join(passed_on)}{hint}")
    warnings.showwarning = _show_warning  # ty: ignore[invalid-assignment]  # always called with positions only
    try:
        return args.run(args) or 0
    except BrokenPipeError:
        write_nowhere(sys.stdout)  # Python flushes it once more at its end
        return 0
    except UserError as error:
        say(f"labkit: {error}", to_stderr=True)
        return 2
    except KeyboardInterrupt:
        print("labkit: stopped", file=sys.stderr)
        return 130
    except Exception as error:
        if refused := refusal(error):
            say(f"labkit: {refused}", to_stderr=True)
            return 2
        traceback.print_exc()
        print("labkit: this is a bug in labkit, not in what you did; please report the lines above.", file=sys.stderr)
        return 1


def _show_warning(message: Warning | str, *_: object) -> None:
    say(f"labkit: {message}", to_stderr=True)
