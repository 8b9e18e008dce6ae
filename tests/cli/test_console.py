"""What others chose as a name or a message reaches the terminal as it is, and steers nothing."""

from __future__ import annotations

import io

from rich.table import Table
from rich.text import Text

from labkit.cli import main
from labkit.cli.console import Console, marked
from labkit.runs import Provenance, RunWriter

NAME = "[red]cnn[/red] [v2] \x1b[2J:smile:"
SHOWN = "[red]cnn[/red] [v2] ␛[2J:smile:"


def test_names_are_printed_letter_by_letter():
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=200)
    table = Table(title=NAME)
    table.add_row(NAME)
    for each in (NAME, table, Text(NAME), marked("[bold]{}[/bold]", NAME)):
        console.print(each, highlight=False)
    text = console.file.getvalue()
    assert text.count(SHOWN) == 5 and "\x1b[2J" not in text
    assert "\x1b[1m" in text  # our own markup counts


def test_a_run_of_any_name_is_shown(tmp_path, capsys):
    run = RunWriter.create(
        tmp_path, "x", config={"job": NAME, "train": {"note": NAME}}, budget={"name": NAME}, tier=None, devices=[],
        seed=0, provenance=Provenance.now("measured", NAME), software={},
    )  # fmt: skip
    run.event("fault", kind="error", what=NAME)
    run.finish("failed", {"reason": NAME})
    for command in (["list"], ["show", run.run_id]):
        assert main(["runs", *command, "--runs-dir", str(tmp_path)]) == 0
        shown = "".join(capsys.readouterr().out.split())
        assert "".join(SHOWN.split()) in shown and "\x1b" not in shown
    assert main(["runs", "show", NAME, "--runs-dir", str(tmp_path)]) == 2
    assert "\x1b" not in capsys.readouterr().err
