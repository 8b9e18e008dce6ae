"""What the notebooks say of the papers' claims, collected into one page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from labkit.runs import replace_text
from labkit_course.claims import MIME, VERDICTS, all_claims
from labkit_course.notebook_file import code_cells, read_notebook

EVIDENCE = ("id", "verdict", "mine", "reason", "how", "machine", "date", "notebook", "profile")
"""What is kept of a verdict"""


def collect(executed: Path, known: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """Verdicts in the order of the claims, one a notebook that judges it: of executed ones in place of known ones."""
    found = {(row["id"], row["notebook"]): dict(row) for row in known}
    for path in sorted(executed.glob("[0-9]*.ipynb")):
        notebook = read_notebook(path)
        profile = notebook.metadata.get("papermill", {}).get("parameters", {}).get("profile", "standard")
        for output in (output for cell in code_cells(notebook) for output in cell.outputs):
            if card := output.get("data", {}).get(MIME):
                found[card["id"], path.stem] = card | {"notebook": path.stem, "profile": profile}
    places = list(all_claims())
    return [found[each] for each in sorted(found, key=lambda each: (places.index(each[0]), each[1]))]


def read_evidence(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.is_file() else []


def write_evidence(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, EVIDENCE, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    replace_text(path, text.getvalue())


def page(rows: Iterable[Mapping[str, str]]) -> str:
    """`docs/reproductions.md`: every claim, with the verdicts and their evidence where there are some."""
    rows = list(rows)
    verdicts = [row["verdict"] for row in rows]
    counts = ", ".join(f"{verdicts.count(each)} {each.removesuffix(' here')}" for each in VERDICTS)
    machines = sorted({f"{row['machine']} (profile {row['profile']})" for row in rows})
    head = f"""\
# Claims of the papers, tried again

Each claim that the course builds on, and what came of trying it. `make claims` runs the notebooks anew and
writes this page from what they put out, which is kept in `reproductions.csv`. Of {len(all_claims())} claims
{len({row["id"] for row in rows})} were tried, some by two notebooks: {counts}.

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
        rest = [f"{row['mine']} ({row['how']}, {notebook}, {row['date']})", row["verdict"], row["reason"]]
    else:
        rest = ["", "not tried", "" if paper["test"] in ("no", "–") else f"would need: {paper['test']}"]
    cells = [*(paper[key] for key in ("id", "paper", "claim", "number", "evidence")), *rest]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
