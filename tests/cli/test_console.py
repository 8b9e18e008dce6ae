"""What the terminal shows of names, messages and frames, and the exit status: 2 for the user's mistakes, 1 for ours."""

import argparse
import errno
import importlib
import io
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from made_up import new_run, write_run
from rich.table import Table
from rich.text import Text

from labkit.cli import COMMANDS
from labkit.cli.console import Console, Display, marked, print_frame
from labkit.cli.printing import plain_table
from labkit.tracking import Notice, Preparing

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


def test_a_run_of_any_name_is_shown(tmp_path, cli):
    run = new_run(tmp_path, "x", config={"job": NAME, "train": {"note": NAME}}, budget={"name": NAME}, note=NAME)
    run.event("fault", kind="error", what=NAME)
    run.finish("failed", {"reason": NAME})
    for command in (["list"], ["show", run.run_id]):
        shown = "".join(cli("runs", *command, "--runs-dir", tmp_path).out.split())
        assert "".join(SHOWN.split()) in shown and "\x1b" not in shown
    assert "\x1b" not in cli("runs show", NAME, "--runs-dir", tmp_path, status=2).err


def test_a_terminal_that_knows_ascii_only_shows_other_letters_as_numbers(tmp_path):
    (tmp_path / "\xfcbung").mkdir()
    command = [sys.executable, "-m", "labkit", "runs", "show", "\xfcbung"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and r"\xfcbung" in done.stderr and "Traceback" not in done.stderr
    out = subprocess.run([*command[:3], "budgets"], env=environment, capture_output=True)
    assert out.returncode == 0 and out.stdout.isascii()
    new_run(tmp_path, "x").finish("done", {})
    command = [*command[:3], "runs", "list", "--runs-dir", tmp_path]
    out = subprocess.run(command, env=environment, capture_output=True)
    assert out.returncode == 0 and b"-----" in out.stdout and b"\\u" not in out.stdout


def test_a_frame_is_printed_with_numbers_to_the_right_and_nothing_where_nothing_is_known():
    console, texts = Console(file=io.StringIO()), ["word " * 50, Text("bad", "red")]
    frame = pd.DataFrame({"job": [NAME, "b"], "steps": [1234, 5], "took": ["2.5 s", None], "gain": [np.nan, 0.12345]})
    print_frame(console, frame.assign(why=texts), "two jobs")
    title, _, heads, _, first, more, *_, second, _ = console.file.getvalue().splitlines()
    assert title.strip() == "two jobs" and "nan" not in first and "None" not in second and "word" in more
    assert first.split()[:-1][:7] == [*SHOWN.split(), "1,234", "2.5", "s", "word"]
    assert second.split() == ["b", "5", "0.123", "bad"]
    for name, line, text in (("steps", second, " 5"), ("took", first, "2.5 s"), ("gain", second, "0.123")):
        assert line.index(text) + len(text) == heads.index(name) + len(name)


def test_a_plain_table_is_what_rich_prints_or_none():
    rows = [
        {"run": "20261121-dlrm-a", "budget": "über", "seed": "3", "target": "–", "reached": "12.5 s"},
        {"run": "b", "budget": "", "seed": "12", "target": "auc 0.78", "reached": ""},
    ]
    console = Console(file=io.StringIO())
    print_frame(console, rows)
    assert plain_table(rows) == console.file.getvalue().removesuffix("\n")
    for odd in (NAME, "数", "x" * 200, "two\nlines", "e\u0301"):
        assert plain_table([*rows, rows[0] | {"run": odd}]) is None


def test_a_display_has_lines_that_change_on_a_terminal_only():
    for is_terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=is_terminal)
        with Display(console) as display:
            display.show(Preparing(0.5, "rows"), "job")
            display.show(Notice("no GPU"))
            display.show(Notice("no GPU"))
            display.print("ended")
        text = console.file.getvalue()
        assert ("preparing data 50%" in text) == is_terminal and "ended" in text and text.count("no GPU") == 1


REFUSED = (OSError(number, "refused", "some/file") for number in (errno.EACCES, errno.ENOSPC))
STATUSES = [(error, 2, "labkit: some/file: the system refused") for error in REFUSED]
STATUSES += [(KeyError("oops"), 1, "bug in labkit"), (KeyboardInterrupt(), 130, "stopped")]


@pytest.mark.parametrize(("error", "status", "words"), STATUSES)
def test_the_users_mistakes_ours_and_ctrl_c_have_a_status_each(monkeypatch, cli, error, status, words):
    def fail(args):
        raise error

    monkeypatch.setattr("labkit.cli.machine.run_tiers", fail)
    said = cli("tiers", status=status).err
    assert words in said and ("Traceback" in said) == (status == 1)


def test_a_warning_is_one_line_for_people(monkeypatch, cli):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr("labkit.cli.machine.run_tiers", lambda args: warnings.warn("look here", stacklevel=1) or 0)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert cli("tiers").err.endswith("labkit: look here\n")


def test_a_file_where_a_folder_should_be_is_the_users_to_mend(tmp_path, cli):
    (tmp_path / "file").write_text("")
    write_run(tmp_path / "runs", [0.6, 0.8])
    cli("report", tmp_path / "runs", "--out", tmp_path / "file" / "x.html", status=2)
    (tmp_path / "folder").mkdir()
    cli("report", tmp_path / "runs", "--out", tmp_path / "folder", status=2)
    assert not list(tmp_path.glob(".*.part"))
    assert "is a file, not a folder" in cli("runs list --runs-dir", tmp_path / "file", status=2).err


def test_the_list_of_commands_says_of_each_what_its_module_says():
    for module, commands in COMMANDS.items():
        subparsers = argparse.ArgumentParser().add_subparsers()
        importlib.import_module(f"labkit.cli.{module}").add_parser(subparsers)
        assert {action.dest: action.help for action in subparsers._choices_actions} == commands
