"""`labkit course run` as a command: what it takes, prints and leaves."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.cli import main
from labkit_course import literal

RESULTS = "from labkit_course import results\nresults(one=(1, 0, 2))"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of notebooks with two authored ones: one sound, one that fails."""
    (tmp_path / "notebooks" / "solutions").mkdir(parents=True)
    for name, source in (("10_sound", "assert seed == 7"), ("20_broken", "1 / 0")):
        cells = [
            new_markdown_cell(f"# {name}"),
            new_code_cell('profile = "standard"\nseed = 7', metadata={"tags": ["parameters"]}),
            new_code_cell(source),
            new_code_cell(RESULTS, metadata={"tags": ["results"]}),
        ]
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
        nbformat.write(notebook, tmp_path / "notebooks" / "solutions" / f"{name}.ipynb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_runs_all_and_leaves_notebooks_and_pages(folder, capsys):
    assert main(["course", "run", "--jobs", "2"]) == 1
    said = capsys.readouterr().out
    assert "10_sound" in said and "passed" in said
    assert "20_broken.ipynb: cell" in said and "ZeroDivisionError" in said
    out = folder / "course-run"
    assert {path.name for path in out.glob("*.ipynb")} == {"10_sound.ipynb", "20_broken.ipynb"}
    assert "10_sound.html" in (out / "html" / "index.html").read_text(encoding="utf-8")


def test_the_beginning_of_a_name_or_a_path_chooses_and_a_parameter_is_handed_over(folder, capsys):
    assert main(["course", "run", "10", "--out", "one", "-p", "seed", "8"]) == 1
    assert "AssertionError" in capsys.readouterr().out
    (folder / "my notes.ipynb").write_bytes((folder / "notebooks" / "solutions" / "10_sound.ipynb").read_bytes())
    assert main(["course", "run", "my notes.ipynb", "--out", "two"]) == 0
    assert (folder / "two" / "html" / "my notes.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["3"], "names no notebooks"),
        (["10", "--jobs", "0"], "--jobs is 0"),
        (["10", "-p", "sed", "8"], "Did you mean 'seed'"),
        (["no.ipynb"], "there is no such notebook"),
        (["--notebooks", "elsewhere"], "name another folder"),
        (["10", "--out", "notebooks/solutions"], "would be replaced"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(folder, capsys, arguments, words):
    assert main(["course", "run", *arguments]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (folder / "course-run").exists()
    assert len(list((folder / "notebooks" / "solutions").iterdir())) == 2


@pytest.mark.parametrize(("text", "value"), [("8", 8), ("0.5", 0.5), ("None", None), ("cpu", "cpu"), ("'8'", "8")])
def test_a_parameter_is_a_literal_or_text(text, value):
    assert literal(text) == value
