"""Breaks chosen lines of labkit, one at a time, and runs the tests that name their module: is each noticed?

Run it with the Python of .venv: `python tests/mutations.py`, or `python tests/mutations.py 3:5` for some of them.
The lines stand in mutations.toml; test_house.py keeps the list true.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]


def load_mutations() -> list[dict[str, str]]:
    """Each with its file, the line as it is, and as it is broken."""
    return tomllib.loads((REPOSITORY / "tests" / "mutations.toml").read_text(encoding="utf-8"))["mutation"]


def tests_of(file: str) -> list[str]:
    """The module's doctests and the test files that import it; where there are none, the tests of its topic."""
    package, _, module = file.removesuffix(".py").replace("/", ".").rpartition(".")
    named = (f"{package}.{module} import", f"from {package} import {module}", f"{package}.{module}.")
    topic = REPOSITORY / "tests" / Path(file).parts[1]
    tests = {path: path.read_text(encoding="utf-8") for path in sorted((REPOSITORY / "tests").rglob("test_*.py"))}
    naming = [path for path, text in tests.items() if any(name in text for name in named)]
    return [file, *(str(path.relative_to(REPOSITORY)) for path in naming or [topic])]


def is_noticed(copy: Path, mutation: dict[str, str]) -> bool:
    """Whether a test fails in a copy of the checkout in which the line is broken."""
    path = copy / mutation["file"]
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(mutation["line"], mutation["broken"]), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-m", "not quiet"]
    done = subprocess.run(
        [*command, "--timeout", "300", *tests_of(mutation["file"])],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    path.write_text(whole, encoding="utf-8")
    if done.returncode not in (0, 1, 2):  # passed; failed; could not even be collected
        raise RuntimeError(f"{mutation['file']}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}")
    return done.returncode != 0


def main(chosen: str = ":") -> None:
    first, _, end = chosen.partition(":")
    mutations = load_mutations()[int(first or 0) : int(end) if end else None]
    noticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "labkit"
        subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(copy)], check=True)
        for mutation in mutations:
            found = is_noticed(copy, mutation)
            noticed += found
            words = "noticed" if found else "NOT NOTICED"
            print(f"{words}: {mutation['file']}: {mutation['line']!r} -> {mutation['broken']!r}", flush=True)
    print(f"{noticed} of {len(mutations)} noticed ({noticed / len(mutations):.0%})")


if __name__ == "__main__":
    main(*sys.argv[1:])
