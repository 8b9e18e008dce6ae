"""`import labkit` and the commands that do not compute start without the heavy libraries."""

import importlib
import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "pandas", "plotly", "scipy", "pyarrow")
# Runs a command of labkit as the console script does, then says which heavy libraries that imported.
PROGRAM = """
import json, sys
if sys.argv[1:]:
    from labkit.cli import main
    try:
        main(sys.argv[1:])
    except SystemExit as end:
        assert not end.code, end.code
else:
    import labkit, labkit.cli
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
COMMANDS = ("", "--version", "--help", "train --help", "run --help", "tiers", "runs --help", "data --help")


@pytest.mark.parametrize("command", COMMANDS)
def test_starts_without_heavy_libraries(command, tmp_path):
    program = [sys.executable, "-c", PROGRAM, *command.split()]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {*json.loads(done.stdout.splitlines()[-1])} & {*HEAVY}


def test_an_import_of_a_package_that_moved_says_where_it_is():
    with pytest.raises(ModuleNotFoundError, match=r"labkit\.course is labkit_course now"):
        importlib.import_module("labkit.course")
