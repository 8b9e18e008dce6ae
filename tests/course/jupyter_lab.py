"""A real JupyterLab server for browser tests."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook


class Lab:
    """A server and a page of a browser in it."""

    def __init__(self, address: str, folder: Path, browser):
        self.address, self.folder, self._browser = address, folder, browser

    def write(self, name: str, *sources: str) -> None:
        """Write a notebook of code cells."""
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        cells = [new_code_cell(source) for source in sources]
        nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), self.folder / name)

    def open(self, name: str, **options):
        """A page that shows a notebook, its kernel idle."""
        page = self._browser.new_context(viewport={"width": 1280, "height": 1600}, **options).new_page()
        page.goto(f"{self.address}/lab/tree/{name}?reset")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=60_000)
        return page

    def run_all(self, page, timeout_s: float = 240) -> None:
        """Run all cells and wait until none is waiting.

        A kernel that was not connected yet forgets what it was asked, and the prompts become empty again. So where no
        cell has been waiting for some seconds and not all have run, it is asked once more.
        """
        empty_since = -math.inf

        def all_ran() -> bool:
            nonlocal empty_since
            prompts = page.evaluate(PROMPTS)
            if prompts and all(re.search(r"\[\d+\]", prompt) for prompt in prompts):
                return True
            if any("[*]" in prompt for prompt in prompts):
                empty_since = time.monotonic()
            elif prompts and time.monotonic() - empty_since > 5:
                page.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
                page.locator(".lm-Menu-itemLabel", has_text="Run All Cells").first.click()
                empty_since = time.monotonic()
            return False

        wait_for(page, all_ran, timeout_s)


PROMPTS = "[...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map((prompt) => prompt.textContent)"


def wait_for(page, what: Callable[[], bool], deadline_s: float) -> None:
    """Poll until it is so; a deadline, not a measurement."""
    end = time.monotonic() + deadline_s
    while not what():
        if time.monotonic() > end:
            shot = Path(tempfile.gettempdir()) / "labkit-browser-test.png"
            page.screenshot(path=shot)
            raise AssertionError(f"it did not happen within {deadline_s} s: {shot} shows the page")
        page.wait_for_timeout(100)


@contextlib.contextmanager
def serve(folder: Path, home: Path, browser) -> Iterator[Lab]:
    """JupyterLab on a folder; what it keeps about its user goes to `home`."""
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "LABKIT_COURSE": str(home / "course"),
    }
    with (home / "lab.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0",
             "--IdentityProvider.token=", f"--ServerApp.root_dir={folder}", "--LabApp.check_for_updates_class="
             "jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None"],
            env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield Lab(_address(home / "runtime", server, home / "lab.log"), folder, browser)
        finally:
            server.terminate()
            try:
                server.wait(timeout=20)
            except subprocess.TimeoutExpired:
                server.kill()


def _address(runtime: Path, server: subprocess.Popen, log: Path) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()
        for path in runtime.glob("jpserver-*.json"):
            try:
                address = json.loads(path.read_text())["url"].rstrip("/")
                urllib.request.urlopen(f"{address}/api/status", timeout=5).close()
                return address
            except (OSError, ValueError, KeyError):
                pass
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start: {log.read_text()}")
