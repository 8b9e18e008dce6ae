"""Claims get cards, verdicts a page with evidence; syllabi and the instructors' table say what the notebooks are."""

import re
from collections import Counter
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from labkit.errors import DataError, UserError
from labkit_course import claim
from labkit_course.claims import MIME, VERDICTS, all_claims, collect, page, read_evidence, write_evidence
from labkit_course.exercise import Exercise, NotAnswered, Statement, WrittenExercise, WrongKind
from labkit_course.expenses import labs_of
from labkit_course.lab import all_exercises, sources
from labkit_course.notebook_file import SOLUTIONS, canonical, code_cells, read_notebook
from labkit_course.progress import kept

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cards(monkeypatch):
    """What is displayed."""
    shown: list[dict] = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))
    return shown


def test_a_card_has_the_papers_words_and_mine_and_is_kept(cards, cli):
    for answer, kind, said in (
        (..., NotAnswered, "Claim A9 is not judged yet: HPCA'21: throughput rises with batch"),
        ("holds here", WrongKind, "the reason has 0 words"),
        (("is so", "one reason of several words"), WrongKind, "'holds here', 'does not hold here'"),
        (("holds here", "because"), WrongKind, "the reason has 1 words: write a sentence"),
    ):
        with pytest.raises(kind, match=said):
            claim("10.A9", "1.8 times", answer)
    assert not cards and not kept("claim")
    claim("10.A9", "1.8 times <as much>", ("holds here", "each step has a fixed cost"))
    (card,) = cards
    assert "1.8 times &lt;as much&gt; (measured)" in card["text/html"] and "throughput rises" in card["text/plain"]
    claim("10.A9", "1.8 times <as much>", "holds here, each step has a fixed cost")  # in one text
    assert cards.pop()["text/html"] == card["text/html"]
    assert card[MIME]["verdict"] == kept("claim", "10.A9")[0]["verdict"] == "holds here"
    said = cli("claims").out
    assert "1.8 times <as much>" in said and f"1 of {len(all_claims())} claims are judged" in said


def test_a_claim_that_nobody_made_is_refused():
    with pytest.raises(UserError, match=r"no claim 'A99': the ids are A1, A2"):
        claim("A99", "1", ("holds here", "one reason of several words"))
    with pytest.raises(UserError, match="measured, recorded"):
        claim("A9", "1", ("holds here", "one reason of several words"), how="guessed")


def test_verdicts_of_executed_notebooks_replace_their_older_ones_and_no_others(tmp_path, cards, cli):
    for id in ("A4", "C2", "A4"):
        claim(id, "2 | 3", ("does not hold here", "one reason of several words"))
    executed = tmp_path / "executed"
    executed.mkdir()
    for name, card in zip(("10_train_dlrm", "40_sharing_a_device", "41_faults"), cards, strict=True):
        cell = new_code_cell("claim(...)", outputs=[new_output("display_data", data=card)])
        (executed / f"{name}.ipynb").write_text(canonical(new_notebook(cells=[cell])), encoding="utf-8")
    docs = tmp_path / "docs"
    docs.mkdir()
    for _ in range(2):
        assert "3 verdicts" in cli("claims --executed", executed, "--out", docs).out
        (executed / "10_train_dlrm.ipynb").unlink(missing_ok=True)  # and its verdict stays
    text = (docs / "reproductions.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("| A4 |"))
    assert "2 \\| 3 (measured, [10_train_dlrm](../notebooks/10_train_dlrm.ipynb)," in line
    assert "2 were tried, some by two notebooks. 0 verdicts say\nthat a claim holds here, 3 that it does not" in text


CARD = {"id": "A9", "verdict": VERDICTS[0], "reason": "each step has a fixed cost", "how": "measured"}
CARD |= {"machine": "2 cores of x", "mine": "1.8 times", "date": "2026-11-28"}


def executed_with(folder: Path, card: object) -> Path:
    cell = new_code_cell("claim(...)", outputs=[new_output("display_data", data={MIME: card})])
    (folder / "10_x.ipynb").write_text(canonical(new_notebook(cells=[cell])), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "card, said",
    [
        ({name: text for name, text in CARD.items() if name != "id"}, "id is missing"),
        (CARD | {"id": "A99"}, "id is 'A99'"),
        (CARD | {"reason": 5}, "reason must be text, not 5"),
        (CARD | {"reason": "because"}, "fewer than 5 words"),
        (CARD | {"verdict": "is so"}, "verdict is 'is so'"),
        (CARD | {"how": "guessed"}, "how is 'guessed'"),
        (CARD | {"date": "yesterday"}, "yesterday"),
        ([CARD], "must be an object"),
    ],
)
def test_a_damaged_card_is_refused_by_notebook_and_field(tmp_path, card, said):
    with pytest.raises(DataError, match=said) as caught:
        collect(executed_with(tmp_path, card), [])
    assert caught.value.file == tmp_path / "10_x.ipynb"


def test_what_a_card_says_makes_no_tag_link_line_column_or_formula(tmp_path):
    hostile = {"mine": '=HYPERLINK("http://x","y")', "machine": "m|x\n\n# Heading <img src=x onerror=alert(1)>"}
    hostile["reason"] = "a b c d | f\n<script>1</script> [x](javascript:alert(1))"
    rows = collect(executed_with(tmp_path, CARD | hostile), [])
    text = page(rows)
    assert not re.search(r"<script|<img|^# Heading|(?<!\\)\[x\]", text, re.MULTILINE)
    (line,) = (line for line in text.splitlines() if line.startswith("| A9 |"))
    assert len(re.findall(r"(?<!\\)\|", line)) == 9
    write_evidence(tmp_path / "a.csv", rows)
    assert "'=HYPERLINK" in (tmp_path / "a.csv").read_text() and read_evidence(tmp_path / "a.csv") == rows


def test_every_verdict_of_the_page_has_its_evidence():
    rows = read_evidence(ROOT / "docs" / "reproductions.csv")
    assert (ROOT / "docs" / "reproductions.md").read_text(encoding="utf-8") == page(rows)
    assert sum(row["verdict"] in VERDICTS[:2] for row in rows) >= 15
    for row in rows:
        assert row["verdict"] in VERDICTS and re.search(r"\d", row["mine"] + row["reason"]), row
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"]) and "cores of" in row["machine"], row
        notebook = (ROOT / "notebooks" / SOLUTIONS / f"{row['notebook']}.ipynb").read_text(encoding="utf-8")
        assert f'claim(\\"{row["notebook"][:2]}.{row["id"]}\\"' in notebook, row


NOTEBOOKS = ROOT / "notebooks"
NAMES = [path.stem for path in sources()]
SOURCES = {name: read_notebook(NOTEBOOKS / SOLUTIONS / f"{name}.ipynb") for name in NAMES}


def student_lines(name: str) -> int:
    """Lines between the markers of a solution, which a student writes; a verdict is a word, and none of them."""
    cells = code_cells(SOURCES[name])
    source = "\n".join(cell.source for cell in cells if cell.id != f"answer-{name[:2]}-assistant")
    solutions = re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", source, re.DOTALL)
    return sum(bool(line.strip()) for solution in solutions for line in solution.splitlines())


def points(name: str) -> Counter[str]:
    """Points of a notebook by what they are for: code, numbers, explain or claim."""
    found: Counter[str] = Counter()
    for cell in code_cells(SOURCES[name]):
        graded = cell.metadata.get("nbgrader", {})
        if graded.get("grade"):
            kind, exercise = re.findall(r'^(check|explain|claim)\("([\w.]+)"', cell.source, re.MULTILINE)[0]
            if kind == "check":
                kinds = {WrittenExercise: "code", Exercise: "numbers", Statement: "verdict"}
                kind = kinds[type(all_exercises()[exercise])]
            found[kind] += graded["points"]
    return found


def row(name: str) -> str:
    """Of a notebook, in the table of docs/instructors.md."""
    source, found = "\n".join(cell.source for cell in code_cells(SOURCES[name])), points(name)
    taken = sorted(each for each in set(re.findall(r'mine\("(\d\d\.\w+)"\)', source)) if each[:2] != name[:2])
    counts = [student_lines(name), *(found[kind] for kind in ("code", "numbers", "explain", "claim"))]
    cells = [f"[{name}](../notebooks/{name}.ipynb)", str(minutes(name)), *map(str, counts), ", ".join(taken) or "–"]
    return f"| {' | '.join(cells)} |"


def test_each_lab_has_one_sentence_of_an_assistant_for_one_point():
    assert {name: points(name)["verdict"] for name in NAMES} == dict.fromkeys(NAMES, 1)


def minutes(name: str, half: str = "") -> int:
    """What a lab states, or its first or second half."""
    stated = re.search(r"\*\*Time:\*\* .*", SOURCES[name].cells[0].source)[0].partition("the machine")[0]
    numbers = [int(number) for number in re.findall(r"\d+", stated)]
    return numbers[["", "first", "second"].index(half)]


def total(table: str) -> tuple[int, int, set[str]]:
    """Stated minutes of a syllabus' table, those that its last row adds up, and its labs; each row must be right."""
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    place, labs, added = head.index("minutes"), head.index("labs"), 0
    named = []
    for cells in rows[:-1]:
        found = re.findall(r"\[(\d\d_\w+)\]\(\S+\)(?:, (first|second) half)?", cells[labs])
        stated = sum(minutes(*each) for each in found)
        assert cells[place] == (str(stated) if found else ""), cells
        added, named = added + stated, named + [name for name, _ in found]
    return added, int(rows[-1][place]), set(named)


@pytest.mark.parametrize("syllabus", sorted((NOTEBOOKS / "syllabi").glob("*.md")), ids=lambda page: page.stem)
def test_a_syllabus_states_the_sum_of_its_labs_minutes(syllabus):
    text, named = syllabus.read_text(encoding="utf-8"), set()
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        added, said, labs = total(table.rstrip())
        assert said == added, syllabus
        named |= labs
    assert named == set(re.findall(r"(\w+)\.ipynb", text))


def test_the_pages_say_how_long_all_labs_take_together():
    hours = sum(map(minutes, NAMES)) / 60
    for name, words in (("instructors", "The minutes add up to {:.0f} hours"), ("course", "take about {:.0f} hours")):
        assert words.format(hours) in (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def test_fourteen_weeks_have_each_lab_after_those_that_it_builds_on():
    order = labs_of(NOTEBOOKS / "syllabi" / "fourteen_weeks.md")
    for place, name in enumerate(order):
        needs = re.search(r"\*\*Prerequisites:\*\* (.*)", SOURCES[name].cells[0].source)[1]
        assert {*re.findall(r"\((\w+)\.ipynb\)", needs)} <= {*order[:place]}, name


@pytest.mark.parametrize("name", NAMES)
def test_instructors_read_minutes_lines_and_points_as_they_are(name):
    assert row(name) in (ROOT / "docs" / "instructors.md").read_text(encoding="utf-8").splitlines()


def test_the_syllabi_together_use_every_notebook_and_next_leads_through_all_in_order():
    pages = sorted((NOTEBOOKS / "syllabi").glob("*.md"))
    targets = {(page, target) for page in pages for target in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8"))}
    assert [target for page, target in targets if not (page.parent / target).exists()] == []
    assert {Path(target).stem for _, target in targets if target.endswith(".ipynb")} == set(NAMES)
    assert len(pages) == 3
    leads = [re.search(r"\*\*Next:\*\*.*?\]\((\w+)\.ipynb\)", SOURCES[name].cells[-1].source)[1] for name in NAMES]
    assert leads[:-1] == NAMES[1:] and leads[-1] in NAMES


def test_most_points_are_for_tested_code_or_graded_text_and_students_write_at_least_600_lines():
    found = sum(map(points, NAMES), Counter())
    assert (found.total() - found["numbers"]) / found.total() >= 0.6
    assert sum(map(student_lines, NAMES)) >= 600
