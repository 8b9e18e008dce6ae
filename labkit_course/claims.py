"""Claims of the papers, a card each: the paper's sentence and number, this machine's, a verdict and one reason."""

import csv
import functools
import io
import re
from collections.abc import Iterable, Mapping
from datetime import date
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from labkit.errors import DataError, UserError
from labkit.hardware import read_cpu
from labkit.json_data import check_shape
from labkit.runs import Kind, replace_text, timestamp
from labkit_course.exercise import VERDICTS, NotAnswered, WrongKind
from labkit_course.progress import keep

MIME = "application/vnd.labkit.claim+json"
FEWEST_WORDS = 5
"""Words that a reason needs at least."""
EVIDENCE = ("id", "verdict", "mine", "reason", "how", "machine", "date", "notebook", "profile")
"""What is kept of a verdict."""
FORMULA = re.compile(r"'*(?:[=@\t\r]|[+-](?!\d))")
"""How a text begins that a spreadsheet would compute; it is written with an apostrophe before it."""


@functools.cache
def all_claims() -> dict[str, dict[str, str]]:
    """By id ("A9"): paper, claim, number, evidence (where it was read) and test (what can test it)."""
    text = (files("labkit_course") / "claims.csv").read_text(encoding="utf-8")
    return {row["id"]: row for row in csv.DictReader(text.splitlines())}


def claim(name: str, mine: str, answer: Any, how: Kind = "measured") -> None:
    """Judge a paper's claim: show its card, and keep it.

    Args:
        name: lab and claim, such as "10.A9": two labs may judge a claim by different tests.
        mine: this machine's number as text, such as "1.8 times the samples/s at batch 4,096".
        answer: the verdict ("holds here", "does not hold here" or "cannot be tested here") and one reason.
        how: where `mine` comes from.

    Raises:
        ExerciseError: there is no verdict yet, or no reason.
        UserError: there is no such claim.
    """
    id = name.rpartition(".")[2]
    if id not in all_claims():
        raise UserError(f"there is no claim {id!r}: the ids are {', '.join(all_claims())}.")
    if how not in get_args(Kind):
        raise UserError(f"claim {id}: how is {how!r}: it is one of {', '.join(get_args(Kind))}.")
    paper = all_claims()[id]
    number = f" ({paper['number']})" if paper["number"] != "–" else ""
    said = f"{paper['paper']}: {paper['claim']}{number}"
    if answer is None or answer is Ellipsis:
        raise NotAnswered(
            f"Claim {id} is not judged yet: {said}. Yours: {mine}. Write the verdict and a reason, "
            f'such as "{VERDICTS[0]}", "...": the verdicts are {", ".join(VERDICTS)}.'
        )
    verdict, reason = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
    if isinstance(answer, str):  # verdict and reason in one text, as one would say them
        verdict = next((each for each in VERDICTS if answer.startswith(each)), answer)
        reason = answer.removeprefix(verdict).lstrip(" ,;:.–-")
    if verdict not in VERDICTS:
        verdicts = ", ".join(map(repr, VERDICTS))
        raise WrongKind(f'Claim {id}: begin with one of {verdicts}, then say why: answer = "{VERDICTS[0]}", "...".')
    if (words := len(str(reason).split())) < FEWEST_WORDS:
        raise WrongKind(
            f"Claim {id}: the reason has {words} words: write a sentence, of {FEWEST_WORDS} words at least."
        )
    cpu = read_cpu()
    facts = {"machine": f"{cpu.available_cores} cores of {cpu.model}"}
    facts |= {"verdict": verdict, "mine": mine, "reason": str(reason), "how": how}
    keep("claim", name, **facts)
    _show({"Paper": said, "Mine": f"{mine} ({how})", "Verdict": verdict, "Reason": str(reason)}, {"id": id} | facts)


def _show(texts: Mapping[str, str], card: Mapping[str, str]) -> None:
    from IPython.display import display

    rows = "".join(f"<tr><th scope='row'>{name}</th><td>{escape(text)}</td></tr>" for name, text in texts.items())
    html = f"<table class='claim'><caption>Claim {card['id']}</caption>{rows}</table>"
    plain = "\n".join(f"{name}: {text}" for name, text in texts.items())
    display({MIME: dict(card) | {"date": timestamp()[:10]}, "text/html": html, "text/plain": plain}, raw=True)


def collect(executed: Path, known: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """Verdicts in the order of the claims, one a notebook that judges it: of executed ones in place of known ones."""
    from labkit_course.notebook_file import code_cells, read_notebook  # a student's cell needs no nbformat

    found = {(row["id"], row["notebook"]): dict(row) for row in known}
    for path in sorted(executed.glob("[0-9]*.ipynb")):
        notebook = read_notebook(path)
        profile = notebook.metadata.get("papermill", {}).get("parameters", {}).get("profile", "standard")
        for output in (output for cell in code_cells(notebook) for output in cell.outputs):
            if card := output.get("data", {}).get(MIME):
                _refuse_odd(card, path)
                found[card["id"], path.stem] = card | {"notebook": path.stem, "profile": str(profile)}
    places = list(all_claims())
    return [found[each] for each in sorted(found, key=lambda each: (places.index(each[0]), each[1]))]


def _refuse_odd(card: Any, path: Path) -> None:
    """Refuse a card that `claim` did not make, or that was damaged since."""
    facts = EVIDENCE[:7]
    try:
        check_shape(card, dict[str, str])
        if absent := [name for name in facts if name not in card]:
            raise ValueError(f"{absent[0]} is missing")
        kinds = {"id": tuple(all_claims()), "verdict": VERDICTS, "how": get_args(Kind)}
        if odd := [name for name, known in kinds.items() if card[name] not in known]:
            raise ValueError(f"{odd[0]} is {card[odd[0]]!r:.60}: it is one of {', '.join(kinds[odd[0]])}")
        if len(card["reason"].split()) < FEWEST_WORDS:
            raise ValueError(f"reason has fewer than {FEWEST_WORDS} words")
        date.fromisoformat(card["date"])
    except ValueError as error:
        fix = "Run the notebook again with `labkit course run`, or correct the row of the table."
        raise DataError(f"a claim's card is damaged ({error}).", file=path, fix=fix) from error


def read_evidence(path: Path) -> list[dict[str, str]]:
    """The rows of a table that `write_evidence` made."""
    if not path.is_file():
        return []
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    for row in rows:
        _refuse_odd(row, path)
        row |= {name: text[1:] for name, text in row.items() if text[:1] == "'" and FORMULA.match(text)}
    return rows


def write_evidence(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    import pandas as pd

    safe = ({name: f"'{text}" if FORMULA.match(text) else text for name, text in row.items()} for row in rows)
    replace_text(path, pd.DataFrame(safe, columns=list(EVIDENCE)).to_csv(index=False, lineterminator="\n"))


def page(rows: Iterable[Mapping[str, str]]) -> str:
    """`docs/reproductions.md`: every claim, with the verdicts and their evidence where there are some."""
    rows = list(rows)
    verdicts = [row["verdict"] for row in rows]
    hold, fail, untested = (verdicts.count(each) for each in VERDICTS)
    machines = sorted({_cell(f"{row['machine']} (profile {row['profile']})") for row in rows})
    head = f"""\
# Claims of the papers, tried again

Each claim that the course builds on, and what came of trying it. `make claims` runs the notebooks again and
writes this page from what they put out, which is kept in `reproductions.csv`. Of {len(all_claims())} claims
{len({row["id"] for row in rows})} were tried, some by two notebooks. {hold} verdicts say
that a claim holds here, {fail} that it does not, and {untested} that it cannot be tested here.

Tried on: {"; ".join(machines) or "nothing yet"}. Other machines have other numbers, and may have other verdicts.

Evidence of a claim: S the paper's abstract, A the authors' public artifact, R the abstract of another version,
F a secondary source, M from memory and unchecked.

| id | paper | claim | its number | evidence | here | verdict | reason |
|---|---|---|---|---|---|---|---|
"""
    own = {id: [row for row in rows if row["id"] == id] for id in all_claims()}
    return head + "".join(_line(paper, row) for id, paper in all_claims().items() for row in own[id] or [None])


def _line(paper: Mapping[str, str], row: Mapping[str, str] | None) -> str:
    """One claim's line of the table."""
    if row:
        notebook = f"[{row['notebook']}](../notebooks/{row['notebook']}.ipynb)"
        rest = [f"{_cell(row['mine'])} ({row['how']}, {notebook}, {row['date']})", row["verdict"], _cell(row["reason"])]
    else:
        rest = ["", "not tried", "" if paper["test"] in ("no", "–") else f"would need: {paper['test']}"]
    cells = [*(paper[key].replace("|", "\\|") for key in ("id", "paper", "claim", "number", "evidence")), *rest]
    return f"| {' | '.join(cells)} |\n"


def _cell(text: str) -> str:
    """A text as one line of Markdown, in which it makes no tag, link or column."""
    return re.sub(r"([|\[\]\\])", r"\\\1", escape(" ".join(text.split()), quote=False))
