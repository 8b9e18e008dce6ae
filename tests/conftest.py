"""Fixtures shared by all tests, and how pytest-xdist's workers share the machine."""

import json
import os
import shlex
import shutil
import signal
from pathlib import Path
from typing import NamedTuple

import filelock
import pytest
from processes import NoSampler
from xdist.scheduler import LoadFileScheduling

from labkit import process
from labkit.compiled import why_not_compiled
from labkit.hardware import leases
from labkit.telemetry import own_affinity

# beside other tests, threads that wait busily take the cores from those that work
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# no command that a test starts leaves a warm server behind
os.environ.setdefault("LABKIT_WARM_IDLE_S", "0")
# scripts of a list start warm, too: else each would import torch
os.environ.setdefault("LABKIT_WARM", "1")

# Under `make test &` Ctrl-C is ignored, and by all that the tests start, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# no GPU and no sandbox in a container; the rest keeps the browser itself from going online
CHROMIUM = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run --disable-quic"
)


APART = ("tests/test_readme.py",)
"""Files whose tests share nothing, so that workers divide them"""


class _ByFile(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return nodeid if file in APART else file


def pytest_xdist_make_scheduler(config, log):
    """Let each file's tests run in one worker, for they share fixtures; files in the order collected."""
    config.option.loadscopereorder = False  # else a file of one test, however long, comes last
    return _ByFile(config, log)


def pytest_xdist_auto_num_workers(config) -> int:
    """One more than there are cores: many a test waits for processes."""
    return 1 + len(own_affinity())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of `quiet` tests come first, while no other test has to end before they begin."""
    quiet = {item.path for item in items if item.get_closest_marker("quiet")}
    items.sort(key=lambda item: item.path not in quiet)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Run a `quiet` test while no other runs: it locks out the others, who share the lock among them."""
    lock = filelock.ReadWriteLock(shared_folder(item.config) / "quiet.db")
    with lock.write_lock() if item.get_closest_marker("quiet") else lock.read_lock():
        return (yield)


def shared_folder(config: pytest.Config) -> Path:
    """The temporary folder of the whole test run, whichever worker asks."""
    folder = config._tmp_path_factory.getbasetemp()
    return folder.parent if hasattr(config, "workerinput") else folder


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("compiled") and (reason := why_not_compiled()):
        pytest.skip(f"compiled kernels: {reason}")


SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real datasets beside the checkout; tests that need it skip without it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the real datasets beside the checkout (shared/data), which are not here")
    return SHARED_DATA


@pytest.fixture(autouse=True)
def own_cache(pytestconfig, monkeypatch):
    """Keep prepared data out of the user's cache: one folder for the whole test run."""
    cache = shared_folder(pytestconfig) / "labkit-cache"
    monkeypatch.setenv("LABKIT_CACHE", str(cache))
    return cache


@pytest.fixture(autouse=True)
def template():
    """What this process starts is forked from one that has imported torch, as in a notebook's kernel."""
    return (process.own_template() or process.start_template()) if process.is_possible() else None


@pytest.fixture(autouse=True)
def own_core_leases(tmp_path_factory, monkeypatch):
    """Wait for no core that runs outside of these tests hold; the cores that a test took are free after it."""
    monkeypatch.setenv(leases.FOLDER_VARIABLE, str(tmp_path_factory.getbasetemp() / "labkit-cores"))
    monkeypatch.setenv(leases.LEASED_VARIABLE, "")
    yield
    while leases._locks:
        leases._locks.popitem()[1].release()


@pytest.fixture
def no_sampler(monkeypatch):
    """Runs of this process start no sampler, whose imports take a second of a core each."""
    monkeypatch.setattr("labkit.telemetry.Sampler", NoSampler)


class Printed(NamedTuple):
    out: str
    err: str

    @property
    def json(self):
        """What the JSON after all other lines holds."""
        return json.loads(self.out[max(self.out.rfind("\n["), self.out.rfind("\n{")) + 1 :])

    @property
    def text(self) -> str:
        """All of it on one line, however it was wrapped."""
        return " ".join((self.out + self.err).split())


@pytest.fixture
def cli(capfd):
    """`cli("runs list --json", *more_words, status=0)`: what `labkit` prints, which ends with this status."""
    from labkit.cli import main

    def run(command: str, *more: object, status: int = 0) -> Printed:
        capfd.readouterr()
        found = main([*shlex.split(command), *map(str, more)])
        printed = Printed(*capfd.readouterr())
        assert found == status, printed
        return printed

    return run


def pytest_addoption(parser):
    parser.addoption("--update-pictures", action="store_true", help="write the docs' pictures anew (docs/images)")


@pytest.fixture
def picture(request, tmp_path):
    """Takes a picture of a page or an element; with --update-pictures it becomes the one in the docs."""
    committed = Path(__file__).resolve().parents[1] / "docs" / "images"
    folder = committed if request.config.getoption("--update-pictures") else tmp_path

    def take(of, name: str, **options) -> None:
        of.screenshot(path=folder / name, **options)
        assert (folder / name).stat().st_size > 10_000, "an empty picture"
        assert (committed / name).is_file(), "run pytest with --update-pictures"

    return take


@pytest.fixture(scope="module")
def browser_options() -> list[str]:
    """Further options of the browser, for a file of tests to name."""
    return []


@pytest.fixture(scope="module")
def browser(browser_options):
    """A headless Chromium; tests that need it skip without one."""
    playwright_api = pytest.importorskip("playwright.sync_api", reason="needs playwright, which is not installed")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("needs a Chromium browser: none of chromium, chromium-browser, google-chrome is on PATH")
    with playwright_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=[*CHROMIUM.split(), *browser_options])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    """A live JupyterLab on an empty folder."""
    from jupyter_lab import serve  # which imports the server

    with serve(tmp_path_factory.mktemp("lab"), tmp_path_factory.mktemp("home"), browser) as lab:
        yield lab
