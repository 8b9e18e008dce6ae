"""Notebooks run as they should, each planted fault is caught by name, and the pages of the site are whole."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from unittest.mock import Mock

import nbformat
import plotly.graph_objects as go
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from labkit.cli import main
from labkit.errors import UserError
from labkit.plots import PALETTES, describe
from labkit.plots.theme import INK
from labkit_course import literal, worker
from labkit_course.notebook_file import SOLUTIONS, read_notebook
from labkit_course.progress import RESULTS as RECORD
from labkit_course.runner import PLOTLY, Limits, core_shares, count_figures, execution_faults, run_notebooks
from labkit_course.site import build_site

RESULTS = "from labkit_course import results\nresults(one=(1, 0, 2))"
UNANSWERED = "from labkit_course import check\ncheck('01.intensity', ...)"
STDERR = "import sys\nprint('careful', file=sys.stderr)"
HIDDEN = "from ipywidgets import interact\ninteract(lambda x: 1 / 0, x=(0, 1));"
ORPHAN = f"import time; time.sleep(601 + {os.getpid()})"
STARTER = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{ORPHAN}'], start_new_session=True)"
LEAVE_IT = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {STARTER!r}])"
"""Leaves a process without parent and session."""

SOUND = """
import socket, time
from labkit_course import guess, reveal
assert profile == "smoke" and seed == 5
guess("90.a", 1)
reveal("90.a", 2)
server = socket.create_server(("127.0.0.1", 0))  # one of one's own is no network
socket.create_connection(server.getsockname()).close()
socket.getaddrinfo("localhost", 80)
ballast = bytearray(100 * 10**6)
ballast[::4096] = b"x" * len(ballast[::4096])
time.sleep(1.5)
"""
CORES = """
import json, os, time
from pathlib import Path
cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
Path("cores.json").write_text(json.dumps([cores, os.environ["OMP_NUM_THREADS"]]))
while len(list(Path("..").glob("*/cores.json"))) < 2:  # they run at the same time
    time.sleep(0.1)
"""
ODD = "from IPython.display import display\ndisplay({'application/x-odd': 'x', 'text/plain': 'odd'}, raw=True)"
OUT_OF_BOUNDS = "from labkit_course import results\nresults(auc=(1.2, 0.5, 1.0), time=(None, 0, 1))"
NETWORK = """
import socket, subprocess, sys
try:
    socket.create_connection(("192.0.2.1", 80), timeout=2)
except OSError:
    pass
child = 'import socket; socket.getaddrinfo("example.org", 80)'
subprocess.run([sys.executable, "-c", child], capture_output=True)
"""
CHILDS_MEMORY = "b = bytearray(400 * 10**6); b[::4096] = b'x' * len(b[::4096]); import time; time.sleep(600)"


def write(folder: Path, name: str, *sources: str, results: str = RESULTS, parameters: str = "") -> Path:
    """An authored notebook with a parameters cell, these cells, and a results cell."""
    cells = [
        new_code_cell(f'profile = "standard"\n{parameters}', id="parameters", metadata={"tags": ["parameters"]}),
        *(new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(sources)),
        new_code_cell(results, id="results", metadata={"tags": ["results"]}),
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    path = folder / SOLUTIONS / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


def exercise(folder: Path, name: str, *sources: str) -> Path:
    """The same as an exercise notebook."""
    path = write(folder, name, *sources)
    return path.rename(folder / path.name)


def orphans() -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if ORPHAN in (p.info["cmdline"] or [])]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Planted notebooks by name, executed two at a time, as they went."""
    folder = tmp_path_factory.mktemp("planted")
    notebooks = [
        write(folder, "90_sound", SOUND, parameters="seed: int | None = 0"),  # which papermill does not see
        write(folder, "90_exits", "import sys\nsys.exit(0)", "1 + 1"),
        write(folder, "90_faulty", STDERR, HIDDEN, ODD, results=OUT_OF_BOUNDS),
        write(folder, "90_others", NETWORK, LEAVE_IT, results="print(1)"),
        write(folder, "90_unanswered", UNANSWERED),
        exercise(folder, "90_exercise", STDERR, HIDDEN, UNANSWERED),
        # these begin first, together
        write(folder, "91_one", CORES),
        write(folder, "91_other", CORES),
    ]
    own = folder / "own"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_COURSE", str(own))
        ran = run_notebooks(notebooks, folder / "out", parameters={"seed": 5}, jobs=2)
    assert not own.exists(), "guesses of a test are not the reader's"
    return {each.source.stem: each for each in ran}


def test_a_sound_notebook_passes_and_is_measured(executed):
    sound = executed["90_sound"]
    assert (sound.faults, sound.cells) == ([], 4)  # papermill's own cell with the parameters among them
    assert sound.peak_memory_bytes > 100 * 10**6
    assert sound.out.is_file()


@pytest.mark.parametrize(
    ("name", "faults"),
    {
        "90_exits": ["cell cell-1: never ran"],
        "90_faulty": [
            "stderr: careful",
            "an error is hidden in the widget state: ZeroDivisionError: division by zero",
            "unexpected type: application/x-odd",
            "results: auc is 1.2, not from 0.5 to 1",
        ],
        "90_others": ["no results record", "wanted to connect to 192.0.2.1, example.org"]
        + ["left a process running"] * (sys.platform == "linux"),
        "90_unanswered": ["NotAnswered: Exercise 01.intensity"],
        "90_exercise": ["stderr: careful", "hidden in the widget state"],
    }.items(),
)
def test_a_fault_is_named(executed, name, faults):
    found = executed[name].faults
    assert all(any(fault in each for each in found) for fault in faults), found
    assert orphans() == []
    assert executed["90_exercise"].note == "Exercise 01.intensity is not answered yet"
    assert len(executed["90_exercise"].faults) == 2


def test_what_is_kept_has_words_in_place_of_widgets(executed):
    kept = read_notebook(executed["90_faulty"].out)
    assert "widgets" not in kept.metadata
    assert "interactive view" in str([cell.outputs for cell in kept.cells])


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs CPU affinity")
def test_notebooks_at_once_have_cores_of_their_own(executed):
    own = sorted(os.sched_getaffinity(0))
    assert sorted(core for share in core_shares(len(own)) for core in share) == own
    texts = {(executed[name].out.parent / name / "cores.json").read_text() for name in ("91_one", "91_other")}
    assert len(texts) == min(2, len(own))


@pytest.mark.parametrize(("deaths", "error"), [(1, None), (9, "RuntimeError: Kernel died before replying")])
def test_a_kernel_whose_port_another_took_starts_again(monkeypatch, deaths, error):
    starts = []

    def execute_notebook(**_):
        starts.append(1)
        if len(starts) <= deaths:
            raise RuntimeError("Kernel died before replying to kernel_info")

    monkeypatch.setattr("papermill.execute_notebook", execute_notebook)
    assert str(worker.execute({})).startswith(str(error))
    assert len(starts) == min(deaths + 1, worker.STARTS)


def test_where_no_more_processes_may_be_started_a_notebook_says_so_and_the_next_one_is_tried(tmp_path, monkeypatch):
    no_more = Mock(side_effect=BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
    monkeypatch.setattr("papermill.execute_notebook", no_more)
    assert "`ulimit -u`" in worker.execute({})
    monkeypatch.setattr("subprocess.Popen", no_more)
    both = run_notebooks([write(tmp_path, "90_one"), write(tmp_path, "91_other")], tmp_path / "out")
    assert ["`ulimit -u`" in each.faults[0] for each in both] == [True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux")
def test_what_breaks_a_limit_is_ended_with_all_its_processes(tmp_path):
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    of_a_child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CHILDS_MEMORY!r}])"
    for name, source, limits, fault in (
        ("90_cell", "while True: pass", Limits(cell_s=1), "Timeout"),
        ("90_memory", of_a_child, Limits(memory_bytes=350 * 10**6), "of memory, and 334 MiB is the most"),
        ("90_endless", f"{LEAVE_IT}\nimport time\ntime.sleep(600)", Limits(notebook_s=4), "it took more than 4 s"),
    ):
        (executed,) = run_notebooks([write(tmp_path, name, source)], tmp_path / "out", limits=limits)
        assert fault in executed.faults[0]
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before
    assert orphans() == []


@pytest.mark.parametrize(("end", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_nothing_goes_on_without_its_limits_however_the_runner_ends(tmp_path, end, status):
    path = write(tmp_path, "90_planted", f"{LEAVE_IT}\nprint('started', file=open('started', 'w'))\n{ORPHAN}")
    command = [sys.executable, "-m", "labkit", "course", "run", str(path), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, start_new_session=True)
    while not list((tmp_path / "out").rglob("started")):
        assert process.poll() is None
        time.sleep(0.1)
    kernels = psutil.Process(process.pid).children(recursive=True)
    assert len(kernels) >= 2, "a worker and its kernel"
    process.send_signal(end)
    assert process.wait(timeout=60) == status
    assert not psutil.wait_procs([*kernels, *orphans()], timeout=60)[1]


def test_what_cannot_be_is_refused_before_anything_runs(tmp_path):
    path = write(tmp_path, "90_planted")
    other = exercise(tmp_path / "other", "90_planted")
    with pytest.raises(UserError, match=r"2 of these notebooks are named 90_planted\.ipynb"):
        run_notebooks([path, other], tmp_path / "out")
    other.write_text("{")
    with pytest.raises(UserError, match="no notebook that can be read"):
        run_notebooks([other], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def shown_figure():
    layout = {"xaxis": {"title": {"text": "Time (s)"}}, "yaxis": {"title": {"text": "AUC"}}}
    config = {"modeBarButtonsToRemove": ["sendChartToCloud"]}
    figure = {"data": [{"name": "one-core · emulated"}], "layout": layout, "config": config}
    html = "<p>Line chart. Horizontal axis: Time (s).</p><table></table>"
    return [new_output("display_data", data=data) for data in ({PLOTLY: figure}, {"text/html": html})]


def ran(outputs):
    record = new_output("display_data", data={RECORD: {"auc": {"value": 0.7, "low": 0.5, "high": 1.0}}})
    results = new_code_cell("results()", execution_count=2, outputs=[record], metadata={"tags": ["results"]}, id="b")
    return new_notebook(cells=[new_code_cell("show(figure)", execution_count=1, outputs=outputs, id="a"), results])


def test_a_good_notebook_passes_and_each_of_two_figures_needs_its_own_description():
    figure, words = shown_figure()
    notebook = ran([figure, words])
    assert (execution_faults(notebook), count_figures(notebook)) == ([], 1)
    (found,) = execution_faults(ran([figure, figure, words]))
    assert "no description" in found


@pytest.mark.parametrize(
    ("fault", "plant"),
    {
        "xaxis has no title": lambda figure, outputs: figure["layout"].pop("xaxis"),
        "a figure's xaxis has": lambda figure, outputs: figure["layout"]["xaxis"].update(title={}, matches="x3"),
        "yaxis has no title": lambda figure, outputs: figure["layout"]["yaxis"].pop("title"),
        "does not say where": lambda figure, outputs: figure["data"][0].update(name="one-core"),
        "can be uploaded": lambda figure, outputs: figure.pop("config"),
        "no description": lambda figure, outputs: outputs.pop(),
        "no table": lambda figure, outputs: outputs[1].data.update({"text/html": "<p>Horizontal axis</p>"}),
        "calls show, and no": lambda figure, outputs: outputs.clear(),
        "error in its output": lambda figure, outputs: outputs.append(
            new_output("error", ename="ValueError", evalue="", traceback=[])
        ),
    }.items(),
)
def test_a_fault_in_the_output_is_noticed(fault, plant):
    outputs = shown_figure()
    plant(outputs[0].data[PLOTLY], outputs)
    assert fault in " ".join(execution_faults(ran(outputs)))


@pytest.fixture
def folder(tmp_path):
    """A folder with two authored notebooks: one sound, one that fails."""
    for name, source in (("10_sound", "assert seed == 7"), ("20_broken", "1 / 0")):
        write(tmp_path / "notebooks", name, source, parameters="seed = 7")
    return tmp_path


def test_it_runs_all_and_leaves_notebooks_and_pages(folder, cli):
    said = cli("course run --jobs 2", status=1).out
    assert "10_sound" in said and "passed" in said
    assert "20_broken.ipynb: cell" in said and "ZeroDivisionError" in said
    out = folder / "course-run"
    assert {path.name for path in out.glob("*.ipynb")} == {"10_sound.ipynb", "20_broken.ipynb"}
    assert "10_sound.html" in (out / "html" / "index.html").read_text(encoding="utf-8")


def test_the_beginning_of_a_name_or_a_path_chooses_and_a_parameter_is_handed_over(folder, cli):
    (folder / "my notes.ipynb").write_bytes((folder / "notebooks" / "solutions" / "10_sound.ipynb").read_bytes())
    said = cli("course run 10 'my notes.ipynb' --jobs 2 --out two -p seed 8", status=1).out
    assert said.count("AssertionError") == 2 and "20_broken" not in said
    assert (folder / "two" / "html" / "my notes.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["3"], "names no notebooks"),
        (["10", "--jobs", "0"], "--jobs is 0"),
        (["10", "-p", "sed", "8"], "did you mean 'seed'"),
        (["no.ipynb"], "there is no such notebook"),
        (["--notebooks", "elsewhere"], "name another folder"),
        (["10", "--out", "notebooks/solutions"], "would be replaced"),
    ],
)
def test_a_command_that_cannot_be_is_refused_before_anything_runs(folder, cli, arguments, words):
    assert words in cli("course run", *arguments, status=2).text
    assert not (folder / "course-run").exists()
    assert len(list((folder / "notebooks" / "solutions").iterdir())) == 2


@pytest.mark.parametrize(("text", "value"), [("8", 8), ("0.5", 0.5), ("None", None), ("cpu", "cpu"), ("'8'", "8")])
def test_a_parameter_is_a_literal_or_text(text, value):
    assert literal(text) == value


def executed_notebook(title: str, following: str) -> nbformat.NotebookNode:
    """An executed notebook with every kind of output."""
    layout = {"xaxis": {"title": {"text": "Time (s)"}}, "yaxis": {"title": {"text": "AUC"}}}
    layout["shapes"] = [{"type": "line", "x0": 0, "x1": 1, "y0": 0, "y1": 1, "line": {"color": INK["labkit_light"]}}]
    black = {"color": PALETTES["labkit_light"][-1]}
    data = [{"type": "scatter", "x": [1, 2], "y": [0.5, 0.7], "name": "measured", "line": black}]
    frame = '<table border="1"><thead><tr style="text-align: right;"><th>a</th></tr></thead><tr><td>1</td></tr></table>'
    shown = (
        {PLOTLY: {"data": data, "layout": layout}},
        describe(go.Figure(data))._repr_mimebundle_(),
        {"text/html": frame, "text/plain": "a"},
        {RECORD: {}, "text/plain": "auc = 0.7"},
    )
    outputs = [
        new_output("stream", name="stdout", text="plain <b>text</b>\n"),
        *(new_output("display_data", data=each) for each in shown),
        new_output("error", ename="ValueError", evalue="odd", traceback=["\x1b[31mValueError\x1b[0m: odd"]),
    ]
    badge = "[![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/x)"
    cells = [
        new_markdown_cell(f"# {title}\n\n{badge}\n\nYou will be able to\n\n- **count** sheep"),
        new_markdown_cell("## Counting\n\nA *zebra* is no sheep: $n_z > 5$, for `$5` each.\n\n## Kaplan–Meier & co"),
        new_code_cell("a = 1\n" * 6 + "print('</script>', 1 in [1.5])  # no", execution_count=1, outputs=outputs),
        new_markdown_cell(f"## Recap\n\n- Counted.\n\n**Next:** [on]({following}.ipynb), or [not made](77_x.ipynb)"),
    ]
    return new_notebook(cells=cells, metadata={"papermill": {"end_time": "2026-01-02T03:04:05", "duration": 7.0}})


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    for stem, title, following in (("00_one", "One", "10_two"), ("10_two", "Two", "00_one")):
        nbformat.write(executed_notebook(title, following), folder / f"{stem}.ipynb")
    assert main(["course", "site", "--executed", str(folder), "--out", str(folder / "out")]) == 0
    with pytest.raises(UserError, match="labkit course run --out"):
        build_site(folder / "out", folder / "none")
    return folder / "out"


def test_a_page_has_every_output_and_loads_nothing_from_the_network(site):
    page = (site / "00_one.html").read_text(encoding="utf-8")
    for words in (
        "plain &lt;b&gt;text&lt;/b&gt;", '"Time (s)"', "<th>a</th>", "auc = 0.7", "ansi-red-fg",
        'href="10_two.html"', "not made",
        "<details><summary>The figure as text and as a table", "<msub><mi>n</mi><mi>z</mi></msub>", "<code>$5</code>",
        "<summary>Given code</summary>",
    ):  # fmt: skip
        assert words in page
    assert 'href="77' not in page and "badge" not in page
    for path in site.glob("*.html"):
        assert not re.findall(r'(?:src|href)="https?://', path.read_text(encoding="utf-8")), path
    index = (site / "index.html").read_text(encoding="utf-8")
    assert index.index('<a href="00_one.html">One</a>') < index.index('<a href="10_two.html">Two</a>')


def test_nothing_that_a_notebook_brings_runs_on_its_page(tmp_path):
    circle = "<circle r='1' marker-end='url(#a)' fill='url(http://x)'/>"
    hostile = f"<script>alert(1)</script><img src=x onerror='alert(1)'><svg onload='alert(1)'>{circle}</svg>"
    outputs = [
        new_output("display_data", {kind: hostile}) for kind in ("text/html", "image/svg+xml", "application/javascript")
    ]
    cells = [new_markdown_cell(f"# One\n\n{hostile}\n\nKept: <b>bold</b>"), new_code_cell("1", outputs=outputs)]
    nbformat.write(new_notebook(cells=cells), tmp_path / "00_one.ipynb")
    build_site(tmp_path, tmp_path / "out")
    page = (tmp_path / "out" / "00_one.html").read_text(encoding="utf-8")
    assert "alert(1)" not in page
    assert "<b>bold</b>" in page and 'marker-end="url(#a)"' in page and "url(http" not in page


def test_a_browser_draws_the_figure_and_axe_finds_no_serious_fault(browser, site):
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page, problems = browser.new_context(offline=True).new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(request.url))
    for name in ("index", "00_one"):
        page.goto((site / f"{name}.html").as_uri())
        page.evaluate(axe)
        found = page.evaluate("axe.run(document).then((result) => result.violations)")
        serious = [(each["id"], each["nodes"]) for each in found if each["impact"] in ("serious", "critical")]
        assert serious == [], name
    page.wait_for_selector(".plotly-graph-div .main-svg")
    assert problems == []
    page.context.close()
