"""A live JupyterLab, and a browser that looks at its notebooks."""

import contextlib
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
from jupyter_server.serverapp import list_running_servers
from nbformat.v4 import new_code_cell, new_notebook

ERROR = "application/vnd.jupyter.error"
SETTINGS = Path(__file__).parents[1] / "binder" / "jupyter"


class Lab:
    """A JupyterLab server, and a page of a browser in it."""

    def __init__(self, address: str, folder: Path, browser, start: Path):
        self.address, self.folder, self._browser = address, folder, browser
        self._start, self._first_layout = start, start.read_bytes()

    def open(self, name: str, *, first: bool = False):
        """A page that shows a notebook, its kernel idle; `first` has the layout of JupyterLab's first start."""
        page = self._browser.new_context(viewport={"width": 1280, "height": 1600}).new_page()
        if first:
            self._start.write_bytes(self._first_layout)
        page.goto(f"{self.address}/lab/tree/{name}{'' if first else '?reset'}")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=60_000)
        return page

    def run(self, name: str, source: str, shows: str = ".js-plotly-plot .main-svg"):
        """A page that shows a notebook of one cell, which ran without an error, and in it what `shows` selects.

        A kernel that was not connected yet forgets what it was asked: as long as the cell neither waits nor has run, it
        is asked again.
        """
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        notebook = new_notebook(cells=[new_code_cell(source)], metadata={"kernelspec": kernel})
        nbformat.write(notebook, self.folder / name)
        page, waited_at = self.open(name), -math.inf

        def has_run() -> bool:
            nonlocal waited_at
            if page.locator(".jp-Dialog .jp-mod-accept").count():  # such as which kernel, where its start took long
                page.locator(".jp-Dialog .jp-mod-accept").first.click()
            prompt = page.evaluate("document.querySelector('.jp-CodeCell .jp-InputPrompt')?.textContent ?? ''")
            if "*" in prompt:
                waited_at = time.monotonic()
            elif not re.search(r"\d", prompt) and time.monotonic() - waited_at > 5:
                page.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
                page.locator(".lm-Menu-itemLabel", has_text="Run All Cells").first.click()
                waited_at = time.monotonic()
            return re.search(r"\d", prompt) is not None

        wait_for(page, has_run)
        assert page.locator(f".jp-OutputArea-output[data-mime-type='{ERROR}']").all_inner_texts() == []
        page.wait_for_selector(shows, timeout=60_000)
        for words in ("Error displaying widget", "Loading widget...", "model not found", "Failed to load model"):
            assert page.get_by_text(words).count() == 0
        return page


def wait_for(page, what) -> None:
    """Poll until it is so, up to a deadline. `what` is a function, or JavaScript."""
    end = time.monotonic() + 240
    while not (page.evaluate(what) if isinstance(what, str) else what()):
        assert time.monotonic() < end, f"it did not happen: {page.inner_text('body')[-2000:]}"
        page.wait_for_timeout(100)


@contextlib.contextmanager
def serve(folder: Path, home: Path, browser) -> Iterator[Lab]:
    """JupyterLab on a folder; what it keeps about its user goes to another."""
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0"]
    command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={folder}"]
    environment = os.environ | {"HOME": str(home), "JUPYTER_RUNTIME_DIR": str(home / "runtime")}
    environment |= {"JUPYTER_CONFIG_PATH": str(SETTINGS), "LABKIT_COURSE": str(home)}
    environment |= {"JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces")}
    take = [sys.executable, "-m", "jupyter", "lab", "workspaces", "import", str(SETTINGS / "workspace.json")]
    subprocess.run(take, env=environment, check=True, capture_output=True)
    (start,) = (home / "workspaces").iterdir()
    with (home / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            while not (running := list(list_running_servers(home / "runtime"))):
                assert server.poll() is None, (home / "lab.log").read_text()
                time.sleep(0.1)
            yield Lab(running[0]["url"].rstrip("/"), folder, browser, start)
        finally:
            server.terminate()
            server.wait(timeout=60)
