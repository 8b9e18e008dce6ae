"""The stand-in for torchaudio's extension, tried on a torchaudio made for the test in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXTENSION_THAT_FAILS = "raise OSError('libc10_cuda.so: cannot open shared object file')\n"
USES_EXTENSION = """\
from torchaudio._extension import _IS_ALIGN_AVAILABLE, _IS_TORCHAUDIO_EXT_AVAILABLE, fail_if_no_align
@fail_if_no_align
def forced_align():
    return "aligned"
"""


@pytest.fixture
def made_torchaudio(tmp_path):
    """Write a torchaudio package: `make(extension)`."""

    def make(extension: str) -> Path:
        package = tmp_path / "torchaudio"
        package.mkdir()
        (package / "__init__.py").write_text(USES_EXTENSION)
        (package / "_extension.py").write_text(extension)
        return tmp_path

    return make


def run(code: str, site: Path | None = None) -> subprocess.CompletedProcess:
    """Run Python code in a process that finds `site` first."""
    first = f"import sys; sys.path.insert(0, {str(site)!r})\n" if site else ""
    command = [sys.executable, "-B", "-c", first + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


CALL = "from labkit.data.torchaudio_cpu import import_torchaudio\nmade = import_torchaudio()\n"


def test_an_extension_that_does_not_load_is_replaced_in_this_process_only(made_torchaudio):
    site = made_torchaudio(EXTENSION_THAT_FAILS)
    before = {path: path.read_bytes() for path in site.rglob("*.py")}
    done = run(f"{CALL}print(made._IS_TORCHAUDIO_EXT_AVAILABLE, made._IS_ALIGN_AVAILABLE, made.forced_align())", site)
    assert done.stdout.split() == ["False", "False", "aligned"], done.stderr
    assert {path: path.read_bytes() for path in site.rglob("*.py")} == before
    assert run("import torchaudio", site).returncode != 0


def test_a_torchaudio_that_works_is_left_alone(made_torchaudio):
    works = "_IS_TORCHAUDIO_EXT_AVAILABLE = _IS_ALIGN_AVAILABLE = True\nfail_if_no_align = lambda function: function\n"
    site = made_torchaudio(works)
    done = run(f"{CALL}print(made._IS_TORCHAUDIO_EXT_AVAILABLE, sys.modules['torchaudio._extension'].__file__)", site)
    assert done.stdout.split() == ["True", str(site / "torchaudio" / "_extension.py")], done.stderr


def test_a_second_call_returns_the_same_module(made_torchaudio):
    done = run(f"{CALL}print(import_torchaudio() is made)", made_torchaudio(EXTENSION_THAT_FAILS))
    assert done.stdout.strip() == "True", done.stderr


def test_another_error_inside_torchaudio_is_not_hidden(made_torchaudio):
    done = run(CALL, made_torchaudio("import a_module_that_is_not_there\n"))
    assert "No module named 'a_module_that_is_not_there'" in done.stderr
    assert "UserError" not in done.stderr


def test_without_torchaudio_the_error_says_how_to_install_it():
    done = run(f"import sys\nsys.modules['torchaudio'] = None\n{CALL}")
    assert "UserError" in done.stderr
    assert "pip install torchaudio" in done.stderr


def test_the_installed_torchaudio_computes_features():
    code = "import torch, torchaudio\nprint(torchaudio.transforms.MelSpectrogram(16000)(torch.zeros(1600)).shape[0])"
    done = run(f"{CALL}{code}")
    assert done.stdout.strip() == "128", done.stderr


def test_threads_that_import_first_do_not_take_each_others_import_away(made_torchaudio):
    code = (
        "import concurrent.futures, time\nfrom labkit.data import torchaudio_cpu\n"
        "forget = torchaudio_cpu._forget\n"
        "torchaudio_cpu._forget = lambda: (time.sleep(0.1), forget())\n"  # so long that the others fail, too
        "with concurrent.futures.ThreadPoolExecutor(4) as pool:\n"
        "    print(len({id(made) for made in pool.map(lambda _: torchaudio_cpu.import_torchaudio(), range(4))}))"
    )
    done = run(code, made_torchaudio(EXTENSION_THAT_FAILS))
    assert done.stdout.strip() == "1", done.stderr
