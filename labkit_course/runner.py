"""Executes notebooks, several at once, each with its own cores, and watches time, memory and network from outside."""

import contextlib
import itertools
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, get_args

import nbformat
import psutil
from nbformat import NotebookNode

from labkit.errors import UserError, did_you_mean
from labkit.hardware import THREAD_VARIABLES, core_order, size_text
from labkit.plots import MIME as PLOTLY
from labkit.process import Child
from labkit.runs import Kind, replace_text
from labkit_course.claims import MIME as CLAIM
from labkit_course.lab import with_variants
from labkit_course.notebook_file import SOLUTIONS, canonical, code_cells, read_notebook
from labkit_course.progress import RESULTS

GUARD = Path(__file__).parent / "offline"
POLL_S = 0.5
"""Between two looks at a notebook's memory, for each of which its processes stand still for some 10 ms."""
WIDGET = "application/vnd.jupyter.widget-view+json"
"""The type of an output that is an interactive view."""
WIDGETS = "application/vnd.jupyter.widget-state+json"
PROVENANCE = get_args(Kind)
ALLOWED_MIME = {"text/plain", "text/html", "text/markdown", PLOTLY, WIDGET, RESULTS, CLAIM}
SHOWN_BY = {"show": "text/html", "claim": CLAIM, "results": RESULTS, "Audio": "text/html"} | dict.fromkeys(
    ("live", "profile_view"), WIDGET
)
"""What a cell has to put out that calls a function of this name."""


@dataclass(frozen=True)
class Limits:
    """What ends a notebook that does not end by itself."""

    cell_s: int = 120
    """Seconds a cell may take."""
    notebook_s: float = 600.0
    """Seconds a notebook may take."""
    memory_bytes: int | None = 2 * 10**9
    """Memory of a notebook's kernel and its children at any moment; None where it is not bounded."""


PROFILES = {
    "smoke": Limits(),
    "standard": Limits(cell_s=600, notebook_s=1800.0),
    "full": Limits(cell_s=3600, notebook_s=3 * 3600.0, memory_bytes=None),
}
"""A cell may train several times for minutes at "standard", and for longer at "full"."""


@dataclass
class Executed:
    """How one notebook went; `out` is the executed one, which is missing where nothing ran."""

    source: Path
    out: Path
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    cells: int = 0
    figures: int = 0
    faults: list[str] = field(default_factory=list)
    note: str = ""
    """The exercise at which an unanswered notebook stopped"""

    @property
    def verdict(self) -> str:
        count = len(self.faults)
        return f"{count} fault{'s' * (count > 1)}" if count else self.note or "passed"


def run_notebooks(
    notebooks: list[Path],
    out: Path,
    *,
    parameters: dict[str, object] | None = None,
    variants: bool = False,
    jobs: int = 1,
    limits: Limits = PROFILES["smoke"],
    say: Callable[[str], None] = lambda words: None,
) -> list[Executed]:
    """Execute notebooks and judge them; one result a notebook, in the order given.

    Args:
        notebooks: one in a folder `solutions` has to run to its end, another stops at its first unanswered exercise.
        out: the folder for the executed notebooks and all that they write.
        parameters: for those that have one of that name; `profile` is "smoke" where it is not given.
        variants: whether another right way to write each exercise takes the place of its answer, where there is one.
        jobs: how many run at once; the cores are shared out among them.
        say: called with a line when a notebook is done; it may be called from several threads.

    Raises:
        UserError: a notebook cannot be read, has no parameter of that name, or would be written over.
        KeyboardInterrupt: after the notebooks under way were ended; nothing of them is left running.
    """
    if (out / SOLUTIONS).is_dir() or out.resolve() in {path.resolve().parent for path in notebooks}:
        raise UserError(f"{out}: there are notebooks that would be replaced: name another folder with --out.")
    name, count = Counter(path.name for path in notebooks).most_common(1)[0]
    if count > 1:
        raise UserError(f"{count} of these notebooks are named {name}: run them one after the other.")
    chosen = _choose_parameters(notebooks, {"profile": "smoke"} | (parameters or {}))
    out.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    shares: SimpleQueue[list[int]] = SimpleQueue()
    for share in core_shares(jobs):
        shares.put(share)

    def run(path: Path) -> Executed:
        cores = shares.get()
        try:
            executed = _execute(path, out, chosen[path], cores, limits, stop, variants)
        finally:
            shares.put(cores)
        say(f"{path.stem}: {executed.verdict} after {executed.seconds:.1f} s")
        return executed

    # later notebooks build on earlier ones and take longer: begun first, they do not end alone
    with ThreadPoolExecutor(jobs) as pool:
        try:
            return list(pool.map(run, notebooks[::-1]))[::-1]
        except KeyboardInterrupt:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _choose_parameters(notebooks: list[Path], parameters: dict[str, object]) -> dict[Path, dict[str, object]]:
    """What of the parameters each notebook takes; papermill would only warn of a name that none has."""
    known = {path: _parameters_of(path) for path in notebooks}
    names = sorted(set().union(*known.values()))
    for name in parameters.keys() - names:
        others = did_you_mean(name, names) if names else "they have none."
        raise UserError(f"these notebooks have no parameter {name!r}: {others}")
    return {path: {name: value for name, value in parameters.items() if name in known[path]} for path in notebooks}


def _parameters_of(path: Path) -> set[str]:
    """What lines of the cell tagged `parameters` assign. Papermill's own reading misses `seed: int | None = None`."""
    cells = [cell.source for cell in read_notebook(path).cells if "parameters" in cell.metadata.get("tags", ())]
    return set(re.findall(r"^(\w+) *(?::[^=\n]*)?=(?!=)", cells[0] if cells else "", re.MULTILINE))


def core_shares(jobs: int) -> list[list[int]]:
    """The cores this process may use, dealt out to `jobs` jobs; jobs share cores where there are too few."""
    cores = core_order()
    return [cores[job::jobs] or [cores[job % len(cores)]] for job in range(jobs)]


def _execute(
    path: Path,
    out: Path,
    parameters: dict[str, object],
    cores: list[int],
    limits: Limits,
    stop: threading.Event,
    variants: bool,
) -> Executed:
    executed, work = Executed(path, out / path.name), (out / path.stem).resolve()
    work.mkdir(parents=True, exist_ok=True)
    network, given = work / "network.txt", path.resolve()
    if variants:
        notebook, given = read_notebook(path), work / path.name
        with_variants(code_cells(notebook))
        given.write_text(canonical(notebook), encoding="utf-8")
    for old in (executed.out, network):
        old.unlink(missing_ok=True)
    environment = dict.fromkeys(THREAD_VARIABLES, str(len(cores))) | {
        "LABKIT_COURSE": str(work / "course"),
        "LABKIT_NETWORK_REPORT": str(network),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(GUARD), os.environ.get("PYTHONPATH")])),
    }
    papermill = {
        "input_path": str(given),
        "output_path": str(executed.out.resolve()),
        "parameters": parameters,
        "execution_timeout": limits.cell_s,
        "cwd": str(work),
    }
    content = {"cores": cores, "environment": environment, "papermill": papermill}
    began = time.monotonic()
    try:
        with Child("labkit_course.worker", content) as worker:
            error, left = _watch(worker, executed, limits, stop)
    except UserError as refused:  # the system allows no more processes
        error, left = str(refused), ()
    executed.seconds = time.monotonic() - began
    if network.exists():
        hosts = sorted(set(network.read_text(encoding="utf-8").split()))
        executed.faults.append(f"it wanted to connect to {', '.join(hosts)}, and has to run offline")
    executed.faults += [f"it left a process running: {each}" for each in left]
    _judge(executed, error)
    return executed


def _watch(
    worker: Child, executed: Executed, limits: Limits, stop: threading.Event
) -> tuple[str | None, Sequence[str]]:
    """Wait for the worker, or for a limit; return what ended the notebook before its end, and what it left running."""
    until = time.monotonic() + limits.notebook_s
    while not stop.is_set():
        try:
            if message := worker.next_message(POLL_S):
                return message["error"], message["left"]
        except EOFError:
            return f"its worker ended without an answer: {worker.stderr_tail()}", ()
        if time.monotonic() > until:
            return f"it took more than {limits.notebook_s:g} s", ()
        memory = _memory_below(worker.pid)
        executed.peak_memory_bytes = max(executed.peak_memory_bytes, memory)
        if limits.memory_bytes is not None and memory > limits.memory_bytes:
            most = size_text(limits.memory_bytes)
            return f"its kernel took {size_text(memory)} of memory, and {most} is the most", ()
    return "it was interrupted", ()


def _memory_below(pid: int) -> int:
    """Bytes of all children's memory; pages that several share count once where the system says which."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                memory = process.memory_full_info()
                total += getattr(memory, "pss", memory.rss)
    return total


def _judge(executed: Executed, error: str | None) -> None:
    """Note what is wrong, then keep the notebook without its widgets."""
    notebook = read_notebook(executed.out) if executed.out.exists() else nbformat.v4.new_notebook()
    code = code_cells(notebook)
    executed.cells = sum(cell.execution_count is not None for cell in code)
    executed.figures = count_figures(notebook)
    unanswered = re.search(r"NotAnswered: ((?:Exercise|Claim) .*?):", error or "")
    if unanswered and executed.source.resolve().parent.name != SOLUTIONS:
        executed.note = unanswered[1]
        executed.faults += faults_until_stopped(notebook)
    elif error:
        executed.faults.append(error)
    else:
        executed.faults += execution_faults(notebook)
    if code:
        drop_widgets(notebook)
        replace_text(executed.out, canonical(notebook))


# --- what papermill lets pass in a notebook that it executed


def execution_faults(notebook: NotebookNode) -> list[str]:
    """What is wrong with an executed notebook, a line each, naming the cell."""
    code = code_cells(notebook)
    found = [f"cell {cell.id}: never ran" for cell in code if cell.execution_count is None]
    found += output_faults(notebook, code)
    tagged = [cell.outputs for cell in code if "results" in cell.metadata.get("tags", [])]
    records = list(_of_type(RESULTS, itertools.chain(*tagged)))
    if not records:
        return [*found, "gave no results record: call labkit_course.results in a cell tagged results"]
    return found + [
        f"results: {name} is {entry['value']:g}, not from {entry['low']:g} to {entry['high']:g}"
        for name, entry in itertools.chain(*(record.items() for record in records))
        if entry["value"] is not None and not entry["low"] <= entry["value"] <= entry["high"]
    ]


def faults_until_stopped(notebook: NotebookNode) -> list[str]:
    """What is wrong with the cells of a notebook that ran before the one whose error stopped it."""
    return output_faults(notebook, [cell for cell in code_cells(notebook) if cell.execution_count is not None][:-1])


def output_faults(notebook: NotebookNode, cells: list[NotebookNode]) -> list[str]:
    """What is wrong with what these cells put out, and with the state of the notebook's widgets."""
    found = [f"cell {cell.id}: {fault}" for cell in cells for fault in _cell_faults(cell)]
    hidden = _errors_in(notebook.metadata.get("widgets", {}).get(WIDGETS, {}))
    return found + [f"an error is hidden in the widget state: {error}" for error in hidden]


def count_figures(notebook: NotebookNode) -> int:
    return sum(1 for cell in code_cells(notebook) for _ in _of_type(PLOTLY, cell.outputs))


def drop_widgets(notebook: NotebookNode) -> None:
    """Leave words where interactive views are: their state weighs megabytes, and without a kernel they do nothing."""
    notebook.metadata.pop("widgets", None)
    for output in (output for cell in code_cells(notebook) for output in cell.outputs):
        if output.get("data", {}).pop(WIDGET, None) is not None:
            output.data["text/plain"] = "(An interactive view is here while the notebook runs.)"


def _of_type(mime: str, outputs: Any) -> Iterator[Any]:
    return (output.data[mime] for output in outputs if mime in output.get("data", {}))


def _errors_in(content: Any) -> Iterator[str]:
    """The error outputs anywhere inside: widgets keep theirs deep in their state."""
    if isinstance(content, dict) and content.get("output_type") == "error":
        yield f"{content.get('ename')}: {content.get('evalue')}"
    elif isinstance(content, dict | list):
        for value in content.values() if isinstance(content, dict) else content:
            yield from _errors_in(value)


def _cell_faults(cell: NotebookNode) -> Iterator[str]:
    for error in _errors_in(cell.outputs):
        yield f"error in its output: {error}"
    written = "".join(output.text for output in cell.outputs if output.get("name") == "stderr")
    yield from (f"stderr: {line}" for line in written.splitlines() if line.strip())
    shown = {mime for output in cell.outputs for mime in output.get("data", {})}
    for name, mime in SHOWN_BY.items():
        if re.search(rf"\b{name}\(", cell.source) and mime not in shown:
            yield f"calls {name}, and no {mime} came out"
    if shown - ALLOWED_MIME:
        yield f"an output of an unexpected type: {', '.join(sorted(shown - ALLOWED_MIME))}"
    for place, output in enumerate(cell.outputs):
        if PLOTLY in output.get("data", {}):
            # its own description stands before the next figure
            rest = itertools.takewhile(lambda later: PLOTLY not in later.get("data", {}), cell.outputs[place + 1 :])
            yield from _figure_faults(output.data[PLOTLY], "".join(_of_type("text/html", rest)))


def _figure_faults(figure: dict[str, Any], description: str) -> Iterator[str]:
    for axis in ("xaxis", "yaxis"):
        shown = figure["layout"].get(axis, {})
        if other := shown.get("matches"):  # "x3": the panel below has the title
            shown = figure["layout"].get(f"{axis}{other[1:]}", {})
        if not shown.get("title", {}).get("text"):
            yield f"a figure's {axis} has no title"
    legend = [figure["layout"].get("legend", {}).get("title", {}).get("text", "")]
    legend += [trace.get("name", "") for trace in figure["data"]]
    if not any(word in name for name in legend for word in PROVENANCE):
        yield "a figure's legend does not say where its numbers come from"
    if "sendChartToCloud" not in figure.get("config", {}).get("modeBarButtonsToRemove", []):
        yield "a figure can be uploaded from its toolbar"
    if "Horizontal axis" not in description:
        yield "a figure has no description as text: pass it to show()"
    elif "<table" not in description:
        yield "a figure's description has no table"
