"""Notebooks run as they should, and each planted fault is caught by name."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.course.junit import write_junit
from labkit.course.notebook_file import SOLUTIONS, read_notebook
from labkit.course.runner import Executed, Limits, core_shares, run_notebooks
from labkit.errors import UserError

RESULTS = "from labkit.course import results\nresults(one=(1, 0, 2))"


def leaves_network() -> bool:
    program = "from labkit.course.isolation import leave_network; raise SystemExit(not leave_network())"
    return subprocess.run([sys.executable, "-c", program]).returncode == 0


def write(
    folder: Path,
    *sources: str,
    name: str = "90_planted",
    results: str = RESULTS,
    parameters: str = 'profile = "standard"',
) -> Path:
    """An authored notebook with a parameters cell, these cells, and a results cell."""
    cells = [
        new_markdown_cell("# Planted", id="title"),
        new_code_cell(parameters, id="parameters", metadata={"tags": ["parameters"]}),
        *(new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(sources)),
        new_code_cell(results, id="results", metadata={"tags": ["results"]}),
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    path = folder / SOLUTIONS / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


def run(tmp_path, *sources: str, limits: Limits | None = None, **more):
    (executed,) = run_notebooks([write(tmp_path, *sources, **more)], tmp_path / "out", limits=limits)
    return executed


def test_a_sound_notebook_passes_and_is_measured(tmp_path):
    executed = run(tmp_path, "assert profile == 'smoke'\nballast = bytearray(100 * 10**6)\nimport time; time.sleep(1)")
    assert executed.faults == []
    assert executed.cells == 4  # papermill's own cell with the parameters among them
    assert executed.peak_memory_bytes > 100 * 10**6
    assert executed.out.is_file()


def test_an_error_in_a_cell_is_named(tmp_path):
    (fault,) = run(tmp_path, "1 / 0").faults
    assert "ZeroDivisionError: division by zero" in fault


def test_an_error_inside_interact_is_found(tmp_path):
    source = "from ipywidgets import interact\ninteract(lambda x: 1 / 0, x=(0, 1));"
    executed = run(tmp_path, source)
    assert "an error is hidden in the widget state: ZeroDivisionError: division by zero" in executed.faults
    kept = read_notebook(executed.out)
    assert "widgets" not in kept.metadata
    assert "interactive view" in str([cell.outputs for cell in kept.cells if cell.cell_type == "code"])


def test_a_notebook_that_exits_midway_is_found(tmp_path):
    faults = run(tmp_path, "import sys\nsys.exit(0)", "1 + 1").faults
    assert "cell cell-1: never ran" in faults


def test_a_misspelt_parameter_is_refused_before_anything_runs(tmp_path):
    path = write(tmp_path)
    with pytest.raises(UserError, match=r"there is no parameter 'profil'. Did you mean 'profile'"):
        run_notebooks([path], tmp_path / "out", parameters={"profil": "smoke"})
    assert not (tmp_path / "out").exists()


def test_a_parameter_of_another_type_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"'profile' is 3, and has to be one such as 'standard'"):
        run_notebooks([write(tmp_path)], tmp_path / "out", parameters={"profile": 3})


def test_a_parameter_goes_to_the_notebooks_that_have_it(tmp_path):
    with_seed = write(tmp_path, "assert seed == 5", name="91_seed", parameters='profile = "standard"\nseed = 0')
    executed = run_notebooks([write(tmp_path), with_seed], tmp_path / "out", parameters={"seed": 5}, jobs=2)
    assert [each.faults for each in executed] == [[], []]


def test_data_is_prepared_before_anything_is_timed(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    parameters = 'profile = "standard"\ndata = "synthetic-small"'
    source = "import os\nfrom pathlib import Path\n"
    source += "assert list((Path(os.environ['LABKIT_CACHE']) / 'clicks').glob('synthetic-small-*'))"
    path, said = write(tmp_path, source, parameters=parameters), []
    for _ in range(2):
        (executed,) = run_notebooks([path], tmp_path / "out", say=said.append)
        assert executed.faults == []
    assert said == ["preparing synthetic-small, which is done once ..."]


@pytest.mark.parametrize("seconds", [0, -5, float("nan")])
def test_a_limit_is_a_number_above_zero(seconds):
    with pytest.raises(UserError, match="seconds above 0"):
        Limits(notebook_s=seconds)


def test_an_endless_cell_is_ended(tmp_path):
    (fault,) = run(tmp_path, "while True: pass", limits=Limits(cell_s=3)).faults
    assert "Timeout" in fault


def test_an_endless_notebook_is_ended_with_all_its_processes(tmp_path):
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    source = "import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    (fault,) = run(tmp_path, source + "time.sleep(600)", limits=Limits(notebook_s=6)).faults
    assert fault == "it took more than 6 s"
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if "import time; time.sleep(600)" in (p.info["cmdline"] or [])
    ]


ORPHAN = "import time; time.sleep(601)"
STARTER = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{ORPHAN}'], start_new_session=True)"
LEAVE_IT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {STARTER!r}])"


def orphans() -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if ORPHAN in (p.info["cmdline"] or [])]


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux")
@pytest.mark.parametrize(("rest", "fault"), [("1 + 1", "left a process"), ("time.sleep(600)", "more than 8 s")])
def test_a_process_without_parent_and_session_is_ended_too(tmp_path, rest, fault):
    executed = run(tmp_path, f"{LEAVE_IT}\nimport time\n{rest}", limits=Limits(notebook_s=8 if "600" in rest else 60))
    assert any(fault in each for each in executed.faults), executed.faults
    assert orphans() == []


@pytest.mark.parametrize(("end", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)])
def test_nothing_goes_on_without_its_limits_however_the_runner_ends(tmp_path, end, status):
    path = write(tmp_path, f"{LEAVE_IT}\nfrom pathlib import Path\nPath('in-the-cell').touch()\n{ORPHAN}")
    command = [sys.executable, "-m", "labkit", "course", "run", str(path), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "out").rglob("in-the-cell")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    kernels = psutil.Process(process.pid).children(recursive=True)
    assert len(kernels) >= 2, "a worker and its kernel"
    process.send_signal(end)
    assert process.wait(timeout=30) == status
    assert not psutil.wait_procs([*kernels, *orphans()], timeout=30)[1]


def test_a_notebook_is_never_written_over(tmp_path):
    path = write(tmp_path)
    before = path.read_bytes()
    with pytest.raises(UserError, match="would replace it"):
        run_notebooks([path], path.parent)
    with pytest.raises(UserError, match="exercise notebooks are there"):
        run_notebooks([path], tmp_path)
    assert path.read_bytes() == before


def test_two_of_one_name_are_refused(tmp_path):
    path = write(tmp_path)
    other = path.parents[1] / path.name
    shutil.copy(path, other)
    with pytest.raises(UserError, match="2 of these notebooks are named 90_planted"):
        run_notebooks([path, other], tmp_path / "out")


def test_an_authored_notebook_is_one_however_it_is_named(tmp_path, monkeypatch):
    path = write(tmp_path, "from labkit.course import check\ncheck('20.outputs', ...)")
    monkeypatch.chdir(path.parent)
    (executed,) = run_notebooks([Path(path.name)], tmp_path / "out")
    assert any("NotAnswered" in fault for fault in executed.faults)


def test_what_all_may_take_together_ends_the_rest(tmp_path):
    paths = [write(tmp_path, "import time; time.sleep(600)", name=f"9{number}_planted") for number in (0, 1)]
    first, second = run_notebooks(paths, tmp_path / "out", limits=Limits(total_s=5))
    assert "all notebooks together took more than 5 s" in second.faults  # the later one begins first
    assert "did not begin within 5 s" in first.faults[0]


def test_three_gigabytes_are_too_many(tmp_path):
    source = (
        "import time\nballast = bytearray(3 * 10**9)\nballast[::4096] = b'x' * len(ballast[::4096])\ntime.sleep(60)"
    )
    if psutil.virtual_memory().available < 4 * 10**9:
        pytest.skip("needs 4 GB of free memory, to use three of them")
    (fault,) = run(tmp_path, source).faults
    assert "of memory, and 1.86 GiB is the most" in fault


def test_memory_of_a_kernels_children_counts(tmp_path):
    child = "b = bytearray(300 * 10**6); b[::4096] = b'x' * len(b[::4096]); import time; time.sleep(60)"
    source = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
    (fault,) = run(tmp_path, source, limits=Limits(memory_bytes=300 * 10**6)).faults
    assert "of memory" in fault


@pytest.mark.parametrize(
    "source",
    [
        "import urllib.request\nurllib.request.urlopen('http://example.com', timeout=5)",
        "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 80), timeout=2)\nexcept OSError:\n    pass",
        "import subprocess, sys\nchild = 'import socket; socket.getaddrinfo(\"example.org\", 80)'\n"
        "subprocess.run([sys.executable, '-c', child], capture_output=True)",
    ],
    ids=["urlopen", "caught", "child"],
)
def test_a_call_to_the_network_is_found_even_where_its_error_is_caught(tmp_path, source):
    assert any("wanted to connect to" in fault for fault in run(tmp_path, source).faults)


@pytest.mark.skipif(not leaves_network(), reason="this system does not give a process a network of its own")
def test_programs_that_are_no_python_have_no_network_either(tmp_path):
    source = "import duckdb\nduckdb.sql('install httpfs')"
    (fault,) = run(tmp_path, source).faults
    assert "httpfs" in fault
    source = "import socket, subprocess, sys\n"
    source += "child = 'import socket; socket.create_connection((\"192.0.2.1\", 80), timeout=5)'\n"
    source += "isolated = subprocess.run([sys.executable, '-I', '-c', child], capture_output=True, text=True)\n"
    source += "assert 'unreachable' in isolated.stderr, isolated.stderr"
    assert run(tmp_path, source).faults == []


def test_a_server_of_ones_own_is_no_network(tmp_path):
    source = (
        "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname()).close()\nsocket.getaddrinfo('localhost', 80);"
    )
    assert run(tmp_path, source).faults == []


def test_a_result_out_of_its_bounds_is_named(tmp_path):
    results = "from labkit.course import results\nresults(auc=(1.2, 0.5, 1.0), time=(None, 0, 1))"
    assert run(tmp_path, results=results).faults == ["results: auc is 1.2, not from 0.5 to 1"]


def test_a_notebook_without_a_results_record_is_found(tmp_path):
    assert any("no results record" in fault for fault in run(tmp_path, results="print(1)").faults)


def test_what_a_cell_writes_to_stderr_is_found(tmp_path):
    (fault,) = run(tmp_path, "import sys\nprint('careful', file=sys.stderr)").faults
    assert fault.endswith("stderr: careful")


def test_an_unexpected_output_type_is_found(tmp_path):
    source = "from IPython.display import display\ndisplay({'application/x-odd': 'x', 'text/plain': 'odd'}, raw=True)"
    assert any("unexpected type: application/x-odd" in fault for fault in run(tmp_path, source).faults)


def test_an_exercise_notebook_stops_at_its_first_unanswered_exercise(tmp_path):
    path = write(tmp_path, "from labkit.course import check\ncheck('20.outputs', ...)")
    exercise = path.parent.parent / path.name
    path.rename(exercise)
    (executed,) = run_notebooks([exercise], tmp_path / "out")
    assert executed.faults == []
    assert executed.note == "Exercise 20.outputs is not answered yet"


def test_faults_before_the_first_unanswered_exercise_count(tmp_path):
    sources = (
        "import sys\nprint('careful', file=sys.stderr)",
        "from ipywidgets import interact\ninteract(lambda x: 1 / 0, x=(0, 1));",
        "from labkit.course import check\ncheck('20.outputs', ...)",
    )
    path = write(tmp_path, *sources)
    exercise = path.parent.parent / path.name
    path.rename(exercise)
    (executed,) = run_notebooks([exercise], tmp_path / "out")
    assert "careful" in executed.faults[0] and "ZeroDivisionError" in executed.faults[1]
    assert executed.note == "Exercise 20.outputs is not answered yet"


def test_an_authored_notebook_may_not_stop_there(tmp_path):
    (fault,) = run(tmp_path, "from labkit.course import check\ncheck('20.outputs', ...)").faults
    assert "NotAnswered" in fault and "20.outputs" in fault


def test_guesses_of_a_test_are_not_the_readers(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_COURSE", str(tmp_path / "own"))
    executed = run(tmp_path, "from labkit.course import guess, reveal\nguess('90.a', 1)\nreveal('90.a', 2)")
    assert executed.faults == []
    assert not (tmp_path / "own").exists()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs CPU affinity")
def test_notebooks_at_once_have_cores_of_their_own(tmp_path):
    own = sorted(os.sched_getaffinity(0))
    assert sorted(core for share in core_shares(len(own)) for core in share) == own
    source = "import os, json\nfrom pathlib import Path\n"
    source += (
        "Path('cores.json').write_text(json.dumps([sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS']]))"
    )
    paths = [write(tmp_path, source, name=f"9{number}_planted") for number in (0, 1)]
    run_notebooks(paths, tmp_path / "out", jobs=2)
    texts = {(tmp_path / "out" / path.stem / "cores.json").read_text() for path in paths}
    assert len(texts) == min(2, len(own))


def test_notebooks_run_at_the_same_time(tmp_path):
    """Each waits for a file that the other writes."""
    source = "from pathlib import Path\nimport time\n(Path('..') / '{0}').touch()\n"
    source += "while not (Path('..') / '{1}').exists(): time.sleep(0.1)"
    paths = [write(tmp_path, source.format(own, other), name=f"9{own}_planted") for own, other in ((0, 1), (1, 0))]
    assert all(e.passed for e in run_notebooks(paths, tmp_path / "out", jobs=2, limits=Limits(cell_s=60)))


def test_the_junit_file_has_a_case_a_notebook(tmp_path):
    executed = [run(tmp_path, "1 + 1"), run(tmp_path, "1 / 0", name="91_planted")]
    write_junit(executed, tmp_path / "junit.xml")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert cases["90_planted"].find("failure") is None
    assert "ZeroDivisionError" in cases["91_planted"].find("failure").text


def test_colours_of_a_terminal_do_not_break_the_junit_file(tmp_path):
    executed = Executed(tmp_path / "90_x.ipynb", tmp_path / "x", faults=["\x1b[31mred\x1b[0m and \x00 \x08"])
    write_junit([executed], tmp_path / "junit.xml")
    (failure,) = ElementTree.parse(tmp_path / "junit.xml").getroot().iter("failure")
    assert failure.text == "red and  "


def test_a_file_that_is_no_notebook_is_refused(tmp_path):
    path = tmp_path / "90_odd.ipynb"
    path.write_text("{")
    with pytest.raises(UserError, match="no notebook that can be read"):
        run_notebooks([path], tmp_path / "out")
