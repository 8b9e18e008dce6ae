"""Labs are as agreed; their two notebooks are made from one source, and drift is noticed."""

import re
import tomllib
from pathlib import Path

import jupytext
import pytest
from nbformat import NotebookNode

from labkit.errors import UserError
from labkit.project import binder_url, colab_url
from labkit_course import build
from labkit_course.build import CODE_STUB, STUB, solutions_version
from labkit_course.exercise import Explanation
from labkit_course.gate import faults
from labkit_course.lab import FOLDER, all_exercises, answer_cell, sources
from labkit_course.notebook_file import SOLUTIONS, authored, canonical, code_cells, read_notebook

NAME = "99_x"
EXPLAINED = next(name for name, exercise in all_exercises("10").items() if isinstance(exercise, Explanation))


def solved(name: str) -> str:
    """The answer to an exercise of code, with nbgrader's markers around its body."""
    head, definition, body = answer_cell(name).partition("def ")
    first, _, body = (definition + body).partition("\n")
    return f"{head}{first}\n    ### BEGIN SOLUTION\n{body}\n    ### END SOLUTION"


def marked(answer: str, call: str) -> str:
    return f"### BEGIN SOLUTION\nanswer = {answer}\n### END SOLUTION\n{call}"


IMPORTS = "from labkit_course import check, claim, explain, guess, model_answer, results, reveal"


def exercise(name: str) -> list[tuple[str, str]]:
    """The cells of an exercise of code."""
    check = f'check("{name}", {name.partition(".")[2]})'
    heading = (f"{name.partition('.')[2]}-prose [markdown]", f"### Exercise {name}")
    return [heading, (f"answer {name}", solved(name)), (f"check {name} points=1", check)]


CELLS = [
    (
        "opening [markdown]",
        "# X\n\nAfter it you will be able to\n\n- count\n\n**Time:** 1 s\n**Prerequisites:** none",
    ),
    ("parameters-prose [markdown]", "What you may change:"),
    ('parameters tags=["parameters"]', 'profile = "standard"'),
    ("checks", "# no cell of the notebooks"),
    ("count [markdown]", "## Count"),
    ("guesses", f"{IMPORTS}\n\n" + "\n".join(f'guess("{name}", 1)' for name in "abc")),
    *exercise("10.interaction"),
    *exercise("20.greedy"),
    ("explain-prose [markdown]", "In words:"),
    (
        f'explain {EXPLAINED} points=2 id="by-hand"',
        marked(f'model_answer("{EXPLAINED}")', f'explain("{EXPLAINED}", answer)'),
    ),
    ("claim-prose [markdown]", "In words:"),
    (
        "claim A4 points=2",
        marked('"holds here", "four bytes a number, and many rows"', 'claim("A4", "102 GB", answer)'),
    ),
    ("reveal-prose [markdown]", "And:"),
    ("reveal", "\n".join(f'reveal("{name}", 1)' for name in "abc")),
    ("results-prose [markdown]", "The numbers:"),
    ('results tags=["results"]', "results(one=(1, 0, 2))"),
    ("recap [markdown]", "## Recap\n\n- Counted.\n\n**Next:** y"),
]


def percent(title: str, body: str) -> str:
    """A cell of a source, whose prose is in comments."""
    lines = body.splitlines()
    if "[markdown]" in title:
        lines = [f"# {line}".rstrip() for line in lines]
    return "\n".join([f"# %% {title}", *lines, "", ""])


SOURCE = "\n".join(percent(*cell) for cell in CELLS)


def write_source(folder: Path) -> Path:
    """The folder of sources that holds this one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.py").write_text(SOURCE, encoding="utf-8")
    return folder


def sound_notebook(folder: Path) -> NotebookNode:
    """The lab's notebook, with its answers; the source is written to `folder`."""
    return solutions_version(write_source(folder) / f"{NAME}.py")


NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def test_the_committed_notebooks_are_in_order(cli, monkeypatch):
    gone_through = []  # test_exercises.py has a test of each check
    monkeypatch.setattr(build, "knocked_out", lambda name, exercise: gone_through.append(name) or ())
    assert "in order" in cli("course build --check --notebooks", NOTEBOOKS).out
    assert gone_through == [*all_exercises()]


def test_exercise_notebooks_have_no_solution_and_no_guess_and_their_checks_are_locked():
    for source in authored(NOTEBOOKS):
        made = read_notebook(NOTEBOOKS / source.name)
        assert "SOLUTION" not in canonical(made)
        graded = [cell for cell in code_cells(made) if "nbgrader" in cell.metadata]
        answers = [cell for cell in graded if cell.metadata.nbgrader.solution]
        checks = [cell for cell in graded if cell.metadata.nbgrader.grade]
        assert len(checks) >= 2
        assert all(STUB in cell.source or CODE_STUB in cell.source for cell in answers)
        locked = [cell for cell in checks if cell.metadata.nbgrader.locked]
        assert all(cell.metadata.editable is False and cell.metadata.deletable is False for cell in locked)
        assert len(made.cells) == len(read_notebook(source).cells)
        guesses = [line for cell in code_cells(made) for line in cell.source.splitlines() if line.startswith("guess(")]
        assert len(guesses) >= 3
        assert all(re.fullmatch(r'guess\("[\w.]+", \.\.\.(, "[^"]+")?\)', line) for line in guesses), guesses


@pytest.mark.parametrize("source", sources(), ids=lambda path: path.stem)
def test_jupytext_writes_a_source_as_it_stands(source):
    config = tomllib.loads((FOLDER / "jupytext.toml").read_text(encoding="utf-8"))
    form = {"extension": ".py", "format_name": "percent", "cell_markers": config["cell_markers"]}
    text = source.read_text(encoding="utf-8")
    assert jupytext.writes(jupytext.reads(text, "py:percent"), form) == text


def test_a_title_says_id_and_role_and_checks_reach_no_notebook(tmp_path):
    cells = {cell.id: cell for cell in sound_notebook(tmp_path).cells}
    ids = ["interaction-prose", "answer-10-interaction", "check-10-interaction"]
    assert list(cells)[5:8] == ids
    graded = {"schema_version": 3, "task": False}
    answer, check, by_hand = (cells[each].metadata.nbgrader for each in (*ids[1:], "by-hand"))
    assert answer == graded | {"grade": False, "locked": False, "solution": True, "grade_id": ids[1]}
    assert check == graded | {"grade": True, "locked": True, "solution": False, "grade_id": ids[2], "points": 1}
    written = graded | {"grade": True, "locked": False, "solution": True, "points": 2}
    assert by_hand == written | {"grade_id": re.sub(r"[._]", "-", f"explain-{EXPLAINED}")}
    assert cells["parameters"].metadata == {"tags": ["parameters"]}
    assert not any("no cell of the notebooks" in cell.source for cell in cells.values())


def test_an_address_in_one_place_puts_badges_and_the_colab_cell_into_the_notebooks(tmp_path, labs, monkeypatch):
    build.write(tmp_path, labs=labs)
    without = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.ipynb")}
    assert not any("badge" in text or "colab" in text for text in without.values())
    monkeypatch.setattr("labkit.project.REPOSITORY", "https://github.com/ann/kit")
    assert set(build.write(tmp_path, labs=labs)) == set(without)
    for path in without:
        opening, colab, *_ = read_notebook(path).cells
        assert opening.source.startswith("# X\n\n[![Open in Binder](")
        for url in (binder_url(f"notebooks/{NAME}.ipynb"), colab_url(f"notebooks/{NAME}.ipynb")):
            assert "/ann/kit/" in url and f"]({url})" in opening.source
        assert "After it you will be able to" in opening.source
        assert "git+https://github.com/ann/kit@main" in colab.source and compile(colab.source, "colab", "exec")
    assert read_notebook(tmp_path / f"{NAME}.ipynb").cells[1].metadata.jupyter.source_hidden
    assert build.drift(tmp_path, labs) == []


@pytest.mark.parametrize("title", ["", "count"])
def test_a_cell_has_a_title_of_its_own(tmp_path, title):
    path = write_source(tmp_path) / f"{NAME}.py"
    path.write_text(SOURCE.replace("# %% reveal\n", f"# %% {title}\n"), encoding="utf-8")
    with pytest.raises(UserError, match="title of its own"):
        solutions_version(path)


@pytest.fixture
def labs(tmp_path):
    return write_source(tmp_path / "labs")


@pytest.fixture
def folder(tmp_path, labs):
    """The notebooks of one lab."""
    build.write(tmp_path, labs=labs)
    return tmp_path


def run_a_cell(path: Path) -> None:
    notebook = read_notebook(path)
    code_cells(notebook)[0].execution_count = 1
    path.write_text(canonical(notebook), encoding="utf-8")


@pytest.mark.parametrize(
    ("fault", "plant"),
    {
        f"{NAME}.ipynb: is missing, or is not what": lambda folder: run_a_cell(folder / f"{NAME}.ipynb"),
        f"{NAME}.ipynb: is missing": lambda folder: (folder / f"{NAME}.ipynb").unlink(),
        "77_stray.ipynb: no lab": lambda folder: (folder / "77_stray.ipynb").write_text("{}"),
        "stray.ipynb: no lab": lambda folder: (folder / SOLUTIONS / "stray.ipynb").write_text("{}"),
        f"{SOLUTIONS}/{NAME}.ipynb: is missing, or": lambda folder: run_a_cell(folder / SOLUTIONS / f"{NAME}.ipynb"),
    }.items(),
)
def test_drift_is_named(folder, labs, monkeypatch, cli, fault, plant):
    assert build.write(folder, labs=labs) == build.drift(folder, labs) == []
    plant(folder)
    found = build.drift(folder, labs)
    assert len(found) == 1 and fault in found[0]
    monkeypatch.setattr("labkit_course.drift", lambda _: found, raising=False)
    assert fault in cli("course build --check --notebooks", folder, status=1).out


@pytest.mark.parametrize(
    "work",
    [
        lambda cells: cells[0].update(source="notes = 1"),
        lambda cells: cells[1].update(source=cells[1].source.replace("...", "3")),
        lambda cells: cells[2].update(source=solved("10.interaction")),
    ],
)
def test_answers_are_never_overwritten(folder, labs, work):
    path = folder / f"{NAME}.ipynb"
    notebook = read_notebook(path)
    work(code_cells(notebook))
    answered = canonical(notebook)
    path.write_text(answered, encoding="utf-8")
    (labs / f"{NAME}.py").write_text(SOURCE.replace("may change:", "may change: More."), encoding="utf-8")
    with pytest.raises(UserError, match="there are answers in it"):
        build.write(folder, labs=labs)
    assert path.read_text(encoding="utf-8") == answered
    assert build.write(folder, labs=labs, force=True) == [folder / SOLUTIONS / path.name, path]
    (kept,) = folder.glob("*.bak")
    assert kept.read_text(encoding="utf-8") == answered and "More." in path.read_text(encoding="utf-8")
    assert build.drift(folder, labs) == []


@pytest.mark.parametrize(
    ("fault", "plant"),
    {
        "does not say **Time:**": lambda n: n.cells[0].update(source=n.cells[0].source.replace("**Time:**", "")),
        "2 headings of level 1": lambda n: n.cells[3].update(source="# Count"),
        "skips a heading level": lambda n: n.cells[3].update(source="### Count"),
        "0 cells tagged parameters": lambda n: n.cells[2].metadata.update(tags=["parameter"]),
        "0 cells tagged results": lambda n: n.cells[-2].update(metadata={}),
        "no parameter profile": lambda n: n.cells[2].update(source='profile = "smoke"'),
        'never reveals what guess("a", 1)': lambda n: n.cells[16].update(source="1"),
        "as a line of its own": lambda n: n.cells[4].update(source='guess("a", 1); guess("b", 1)'),
        "has 13 lines": lambda n: n.cells[4].update(source="\n".join(["1"] * 13)),
        "no recap": lambda n: n.cells.pop(),
        "cell answer-10-interaction: is no answer": lambda n: n.cells[6].update(source="answer = 1"),
        "cell by-hand: is no answer": lambda n: n.cells[12].update(source='explain("10.x", "So.")'),
        "has no points": lambda n: n.cells[7].metadata.nbgrader.update(points=0),
        "another kind than its call, claim": lambda n: n.cells[14].metadata.nbgrader.update(solution=False),
        "asks 10.inter, and there is no such": lambda n: n.cells[7].update(source='check("10.inter", interaction)'),
        "'cp is a word' begins as a command": lambda n: n.cells[16].update(
            source=n.cells[16].source + "\ncp is a word"
        ),
        "has no code cell": lambda n: n.cells.__delitem__(slice(1, None)),
    }.items(),
)
def test_a_fault_is_noticed(tmp_path, fault, plant):
    notebook = sound_notebook(tmp_path)
    assert faults(notebook, NAME) == []
    plant(notebook)
    found = faults(notebook, NAME)
    assert any(fault in line for line in found), found
