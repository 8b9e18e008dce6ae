"""py-spy: the real one on small programs where it may run, and stacks in its form."""

import sys

import pytest
from fake_tools import arguments, fake_tool

from labkit.errors import DataError, UserError
from labkit.hardware.tools import Tool, which
from labkit.profiling.tools import py_spy
from labkit.profiling.tools.py_spy import py_spy_command, python_functions, read_py_spy, why_no_py_spy
from labkit.profiling.tools.run_tool import run_tool

STACKS = """\
<module> (train.py:8);main (train.py:7);fib (train.py:3) 2
<module> (train.py:8);main (train.py:7);fib (train.py:3);fib (train.py:3);fib (train.py:2) 5
<module> (train.py:8);main (train.py:7) 1
<module> (train.py:8);load (my data (1).py:40);read (lib.so) 2
"""
# In the form of py-spy 0.4.3 with --subprocesses: a program starts another one with -c, whose text is on the stack.
TWO_PROCESSES = """\
process 3369:"python p.py";process 3374:"/usr/bin/python -c import time; e=time.time()
def spin():
  while True: pass
spin() ; print(1)" 1
process 3369:"python p.py";process 3374:"/usr/bin/python -c import time; e=time.time()
def spin():
  while True: pass
spin() ; print(1)";<module> (<string>:4);spin (<string>:3) 37
process 3369:"python p.py";thread (3369);<module> (p.py:8) 2
"""


def read(folder, text):
    path = folder / "stacks.txt"
    path.write_text(text)
    return read_py_spy(path)


def test_stacks_become_a_tree_of_calls(tmp_path):
    frame = read(tmp_path, STACKS)
    assert list(frame.columns) == ["stack", "function", "file", "line", "samples", "self_samples", "share"]
    tree = frame.set_index("stack")
    root, main = "<module> (train.py:8)", "main (train.py:7)"
    assert tree.loc[[(root,)], "samples"].tolist() == [10]
    assert tree.loc[[(root, main)], ["samples", "self_samples"]].values.tolist() == [[8, 1]]
    assert tree.loc[[(root, main, "fib (train.py:3)")], ["samples", "self_samples"]].values.tolist() == [[7, 2]]
    assert frame["self_samples"].sum() == 10 and frame["share"].sum() == pytest.approx(1)
    assert frame["samples"].is_monotonic_decreasing


def test_places_have_file_and_line_where_py_spy_knows_them(tmp_path):
    places = read(tmp_path, STACKS).set_index("function")
    assert places.loc["load", ["file", "line"]].tolist() == ["my data (1).py", 40]
    assert places.loc["read", "file"] == "lib.so" and places["line"].isna().loc["read"]


def test_a_function_that_calls_itself_counts_once_a_sample(tmp_path):
    functions = python_functions(read(tmp_path, STACKS)).set_index("function")
    assert functions.loc["fib", ["samples", "self_samples"]].tolist() == [7, 7]
    assert functions.loc["main", ["samples", "self_samples"]].tolist() == [8, 1]
    assert functions.loc["<module>", ["samples", "self_samples"]].tolist() == [10, 0]
    assert functions["self_samples"].sum() == 10
    assert functions.index[0] == "fib" and functions.loc["fib", "share"] == 0.7


def test_processes_are_kept_apart_whatever_their_command_lines_hold(tmp_path):
    frame = read(tmp_path, TWO_PROCESSES)
    assert frame["self_samples"].sum() == 40
    child = "process 3374: /usr/bin/python -c import time, e=time.time() def spin(): w…"
    assert ("process 3369: python p.py", child, "<module> (<string>:4)") in frame["stack"].tolist()
    functions = python_functions(frame)
    assert functions["function"].tolist() == ["spin", "<module>", "<module>"]
    assert functions["file"].tolist() == ["<string>", "p.py", "<string>"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (STACKS[:90], "stacks.txt, line 2: this line has no number of samples at its end. .*record once more"),
        (TWO_PROCESSES + "cut off\n", "stacks.txt, line 10: this line"),
        ("", "stacks.txt: py-spy took no sample. Let the program run longer"),
    ],
)
def test_damage_is_told_with_its_place_and_remedy(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read(tmp_path, text)


def test_a_run_with_py_spy_on_path_is_sampled_and_read(tmp_path, monkeypatch):
    (tmp_path / "of_elsewhere").write_text(STACKS)
    body = f'while [ "$1" != --output ]; do shift; done\ncp {tmp_path}/of_elsewhere "$2"'
    tool = fake_tool("py-spy", body, tmp_path / "bin", monkeypatch)
    output = tmp_path / "stacks.txt"
    run_tool(py_spy_command(output, ["python", "train.py"], rate_hz=250), refusals=py_spy.REFUSALS, show=False)
    assert len(read_py_spy(output)) == 7
    called = arguments(tool)
    assert called[called.index("--rate") + 1] == "250" and called[-3:] == ["--", "python", "train.py"]
    run_tool(py_spy_command(output, 4321, duration_s=5, subprocesses=True), show=False)
    assert arguments(tool)[-5:] == ["--duration", "5", "--subprocesses", "--pid", "4321"]


# Said by py-spy 0.4.3: to an ordinary user about root's process, to root without CAP_SYS_PTRACE; and, from its
# repository (pull request 459), to root in a container.
@pytest.mark.parametrize(
    "said",
    [
        "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'",
        "Error: Failed to get process executable name. Check that the process is running.\n\nCaused by:\n"
        "    0: Permission denied (os error 13)",
        "Permission Denied\n\nIt looks like you are running in a docker container. Please make sure you started your "
        "container with the SYS_PTRACE capability.",
    ],
)
def test_a_system_that_forbids_it_is_told_with_what_to_do(tmp_path, monkeypatch, said):
    (tmp_path / "said").write_text(said)
    fake_tool("py-spy", f"cat {tmp_path}/said >&2; exit 1", tmp_path / "bin", monkeypatch)
    with pytest.raises(UserError, match=r"macOS run it with sudo.*--cap-add=SYS_PTRACE.*ptrace_scope=0"):
        run_tool(py_spy_command(tmp_path / "x", 1), refusals=py_spy.REFUSALS, show=False)


@pytest.mark.parametrize(("scope", "may", "is_told"), [("1", False, False), ("2", False, True), ("2", True, False),
                                                       ("3", True, True), (None, False, False)])  # fmt: skip
def test_a_kernel_that_forbids_it_is_known_before(tmp_path, monkeypatch, scope, may, is_told):
    monkeypatch.setattr(py_spy, "find_profiler", lambda name: Tool("py-spy", "/x/py-spy", "0.4.3", works=True))
    monkeypatch.setattr(py_spy.sys, "platform", "linux")
    monkeypatch.setattr(py_spy, "PTRACE_SCOPE", tmp_path / "ptrace_scope")
    monkeypatch.setattr(py_spy, "has_capability", lambda name: may)
    if scope:
        (tmp_path / "ptrace_scope").write_text(scope)
    assert (why_no_py_spy() is not None) == is_told


def test_a_missing_py_spy_is_told_with_where_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # beside which it would be found, too
    assert "pip install py-spy" in why_no_py_spy()


PROGRAM = """\
import sys, time
def dig(depth):
    return sum(range(200)) if depth == 0 else dig(depth - 1)
def work(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        dig(20)
work(float(sys.argv[1]))
print("done")
"""


@pytest.fixture
def program(tmp_path):
    if which("py-spy") is None:
        pytest.skip("needs py-spy, which is not on PATH (pip install py-spy)")
    if why := why_no_py_spy():
        pytest.skip(f"needs a py-spy that may look: {why}")
    path = tmp_path / "dug.py"
    path.write_text(PROGRAM)
    return path


def record(*arguments, **options):
    try:
        return run_tool(py_spy_command(*arguments, **options), refusals=py_spy.REFUSALS, show=False, timeout_s=60)
    except UserError as error:
        if str(error) == py_spy.FORBIDDEN:
            pytest.skip(f"needs a py-spy that may look: {error}")
        raise


def test_the_real_py_spy_finds_where_a_program_spends_its_time(tmp_path, program):
    output = tmp_path / "stacks.txt"
    assert "done\n" in record(output, [sys.executable, str(program), "1"], rate_hz=200)
    functions = python_functions(read_py_spy(output)).set_index("function")
    assert functions.index[0] == "dig" and functions.loc["dig", "share"] > 0.5
    assert functions.loc["work", "samples"] >= functions.loc["dig", "samples"]
    whole = functions["self_samples"].sum()
    assert functions.loc["dig", "samples"] <= whole  # though it is on the stack up to 21 times
    assert functions.loc["dig", "file"].endswith("dug.py")


def test_the_real_py_spy_tells_apart_the_processes_a_program_starts(tmp_path, program):
    output = tmp_path / "stacks.txt"
    start = f"import subprocess, sys; x = 'a;b'\nsubprocess.run([sys.executable, {str(program)!r}, '1'])"
    record(output, [sys.executable, "-c", start], rate_hz=200, subprocesses=True)
    frame = read_py_spy(output)
    assert python_functions(frame)["function"].tolist()[0] == "dig"
    digging = next(
        stack for stack, function in zip(frame["stack"], frame["function"], strict=True) if function == "dig"
    )
    assert [part.startswith("process ") for part in digging[:3]] == [True, True, False]


def test_the_real_py_spy_says_when_there_is_no_such_program(tmp_path, program):
    with pytest.raises(
        UserError, match=r"py-spy ended with status 1: Error: Failed to create process 'no-such-program'"
    ):
        record(tmp_path / "x", ["no-such-program"])
