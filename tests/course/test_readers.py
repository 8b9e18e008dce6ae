"""What each reader of the course gets: pages without answers for students, all of them for instructors."""

import re
import shutil
from html import unescape
from pathlib import Path

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from labkit.plots import MIME
from labkit_course.exercise import Explanation
from labkit_course.lab import all_exercises
from labkit_course.notebook_file import SOLUTIONS, canonical, code_cells, read_notebook
from labkit_course.site import build_site
from labkit_course.slides import MOST_SLIDES, build_slides

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LABS = sorted((NOTEBOOKS / SOLUTIONS).glob("*.ipynb"))
SOLUTION = re.compile(r"### BEGIN SOLUTION\n(.*?) *### END SOLUTION", re.DOTALL)


def words(html):
    """The text that a reader sees of a page, with single spaces: code is cut into coloured pieces there."""
    return " ".join(unescape(re.sub(r"<(style|script).*?</\1>|<[^>]+>", "", html, flags=re.DOTALL)).split())


def text_of(path):
    return words(path.read_text(encoding="utf-8"))


def secrets(path):
    """The solutions of a lab, and what graders know of its explanations, as text with single spaces."""
    cells = code_cells(read_notebook(path))
    found = [block for cell in cells for block in SOLUTION.findall(cell.source)]
    for exercise in all_exercises(path.name[:2]).values():
        if isinstance(exercise, Explanation):
            found += filter(None, [exercise.model, exercise.half, *exercise.rubric])
    return [" ".join(each.split()) for each in found]


def test_no_solution_and_no_model_answer_reaches_the_students_notebooks_or_their_site(tmp_path, cli):
    known = {lab.stem: secrets(lab) for lab in LABS}
    for stem, own in known.items():
        source = " ".join(" ".join(cell.source for cell in read_notebook(NOTEBOOKS / f"{stem}.ipynb").cells).split())
        assert own and [each for each in own if each in source] == [], stem
    assert sum(map(len, known.values())) > 400
    (tmp_path / SOLUTIONS).mkdir()
    shown = [lab for lab in LABS if lab.name[:2] in ("10", "30", "34", "60")]
    for lab in shown:
        shutil.copy(lab, tmp_path / SOLUTIONS)
    cli("course site", "--for", "students", "--notebooks", tmp_path, "--out", tmp_path / "s")
    for lab in shown:
        page = text_of(tmp_path / "s" / f"{lab.stem}.html")
        assert [each for each in known[lab.stem] if each in page] == [], lab
        assert "NotImplementedError # YOUR CODE HERE" in page
        guessed = re.findall(r'\bguess\("[\w.]+", ([^,)]+)', page)
        assert {*guessed} == {"..."}, lab
    assert "A DLRM: bottom MLP, embedding tables" in text_of(tmp_path / "s" / "10_train_dlrm.html")  # a drawing's title


def test_instructors_see_solutions_rubrics_and_half_answers(tmp_path):
    lab = NOTEBOOKS / SOLUTIONS / "13_batch_size_and_accuracy.ipynb"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / lab.name).write_bytes(lab.read_bytes())
    page = text_of(build_site(tmp_path / "in", tmp_path / "out").parent / f"{lab.stem}.html")
    assert [each for each in secrets(lab) if each not in page] == []


def slides_in(html):
    """The text of each slide, and of the notes of each."""
    parts = re.split(r"<section\s*>\s*<section\s*>", html)[1:]
    return [[*map(words, part.partition('<aside class="notes">')[::2])] for part in parts]


def test_each_lab_has_five_to_eight_slides_and_they_ask_no_server(tmp_path, cli):
    cli("course slides", "--notebooks", NOTEBOOKS, "--executed", tmp_path, "--out", tmp_path)
    for lab in LABS:
        html = (tmp_path / f"{lab.stem}.slides.html").read_text(encoding="utf-8")
        own, page = slides_in(html), words(html)
        assert 5 <= len(own) <= MOST_SLIDES, lab
        assert "After this notebook you will be able to" in own[0][0] and own[-1][0].startswith("Recap"), lab
        assert all(8 < len(said.split()) < 250 for said, _ in own), lab  # with the words of a drawing
        assert not re.findall(r'src="https?://|<link[^>]*href="https?://|@import', html), lab
        assert [each for each in secrets(lab) if each in page] == [], lab
        has_drawing = any(re.search(r'drawing\("', cell.source) for cell in code_cells(read_notebook(lab)))
        assert ("<desc" in html) == has_drawing, lab


def test_a_slide_has_the_first_figure_of_its_section_and_notes_have_the_rest(tmp_path):
    figure = {"data": [{"y": [1, 2]}], "layout": {}}
    shown = [new_output("display_data", {MIME: figure, "text/plain": "f"}), new_output("display_data", {MIME: figure})]
    texts = [
        "# T\n\nYou can\n\n- a",
        "## One\n\nFirst. Second is $x$. Third.\n\n### Two\n\nMore.",
        "Text.\n\n## End\n\n- b",
    ]
    cells = [new_markdown_cell(text) for text in texts]
    cells.insert(2, new_code_cell("secret = 1", outputs=shown))
    (tmp_path / "10_x.ipynb").write_text(canonical(new_notebook(cells=cells)))
    made, count = build_slides(tmp_path / "10_x.ipynb", tmp_path / "out")
    html = made.read_text(encoding="utf-8")
    own = slides_in(html)
    assert count == len(own) == 3 and [said.split()[0] for said, _ in own] == ["T", "One", "End"]
    assert "Second is x." in own[1][0] and "Third." not in own[1][0] and "Third." in own[1][1] and "More." in own[1][1]
    assert html.count('role="figure"') == 1 and "secret" not in html


def test_slides_are_shown_with_and_without_reveal_and_ask_no_server(browser, tmp_path):
    made, count = build_slides(NOTEBOOKS / SOLUTIONS / "10_train_dlrm.ipynb", tmp_path)
    page, asked = browser.new_context(offline=True).new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: asked.append(str(error)))
    page.goto(made.as_uri())
    heights = page.evaluate(
        "[...document.querySelectorAll('.slides > section')].map((e) => e.offsetHeight / innerHeight)"
    )
    assert len(heights) == count and min(heights) >= 0.99
    assert not page.locator("aside.notes").first.is_visible()
    for name in ("reveal.js", "plugin/notes.js"):
        (tmp_path / "reveal.js" / "dist" / name).parent.mkdir(parents=True, exist_ok=True)
    stand_in = "window.Reveal = {initialize: (how) => { window.began = how.plugins }}"
    (tmp_path / "reveal.js" / "dist" / "reveal.js").write_text(stand_in)
    (tmp_path / "reveal.js" / "dist" / "plugin" / "notes.js").write_text("window.RevealNotes = 'notes'")
    page.reload()
    assert page.evaluate("window.began") == ["notes"]
    assert [url for url in asked if not url.startswith("file:")] == []
    page.context.close()
