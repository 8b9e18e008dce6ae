"""A defence: questions to a student, drawn from the runs, numbers and code that the student handed in."""

import itertools
import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from random import Random
from typing import Any

from labkit.errors import UserError, certain
from labkit.runs import RunRecord, read_run
from labkit_course.classroom import LARGEST_BYTES, answers_in, latest_hand_ins, students_of
from labkit_course.exercise import is_number
from labkit_course.notebook_file import code_cells, read_notebook
from labkit_course.progress import entries, first_guesses, ratio_error, recorded_in

QUESTIONS = 5
"""To a student"""
READ = re.compile(r"[\w.-]+\.ipynb|progress\.jsonl|runs/([\w.-]+/)*run\.json")
"""Files of an archive that questions are drawn from"""
MOST_RUNS = 50
"""Of an archive, the latest, so that not too many pairs are compared"""
MEASURES = {"time_to_target_s": "reached its target after {:.4g} s", "samples_per_s": "made {:.4g} samples/s"}
"""What two runs are compared by, the first that both have"""


def sheets(place: Path, archives: Sequence[Path], seed: int = 0) -> tuple[list[str], list[str]]:
    """A sheet of questions for each student, as Markdown, and what a person should know of the archives.

    Args:
        place: the course.
        archives: of `labkit course submit`, as `labkit course collect` takes them.
        seed: draws the questions, with the student's name.
    """
    taken, said = latest_hand_ins(place, archives)
    made = []
    for id, student in students_of(place).items():
        own = {lab: path for (name, lab), (_, path) in taken.items() if name == id}
        try:
            found = [_questions(path, [lab for lab in own if own[lab] == path], place) for path in set(own.values())]
        except (UserError, OSError, zipfile.BadZipFile) as error:
            said.append(f"no sheet for {id}: {error}")
            continue
        if own:
            made.append(_sheet(f"{student.name} ({id})", own, drawn(found, Random(f"labkit {seed} {id}")), seed))
    return made, said


def _sheet(who: str, labs: Mapping[str, Path], questions: Sequence[str], seed: int) -> str:
    handed_in = "; ".join(f"{lab} in {path.name}" for lab, path in sorted(labs.items()))
    few = f"Only {len(questions)}, because no more was handed in.\n\n" * (len(questions) < QUESTIONS)
    numbered = "\n".join(f"{place}. {question}" for place, question in enumerate(questions, 1))
    return f"# Defence of {who}\n\nDrawn with seed {seed} from {handed_in}.\n\n{few}{numbered}\n"


def drawn(found: Iterable[Mapping[str, Sequence[str]]], random: Random) -> list[str]:
    """As many questions as a sheet has, of as many kinds as there are."""
    kinds: dict[str, list[str]] = {}
    for each in found:
        for kind, questions in each.items():
            kinds.setdefault(kind, []).extend(questions)
    shuffled = [random.sample(own := sorted({*questions}), len(own)) for _, questions in sorted(kinds.items())]
    random.shuffle(shuffled)
    turns = itertools.chain(*itertools.zip_longest(*shuffled))
    return [question for question in turns if question][:QUESTIONS]


def _questions(archive: Path, labs: Sequence[str], place: Path) -> dict[str, list[str]]:
    """All questions that an archive gives for some of its labs, by their kind."""
    with tempfile.TemporaryDirectory() as name, zipfile.ZipFile(archive) as packed:
        folder = Path(name)
        for member in packed.infolist():
            if READ.fullmatch(member.filename) and member.file_size <= LARGEST_BYTES:
                packed.extract(member, folder)  # which keeps it inside the folder
        numbers = {lab[:2] for lab in labs}
        kept = [entry for entry in entries(folder / "progress.jsonl") if entry["name"][:2] in numbers]
        found = {"guess": [*_of_guesses(kept)], "claim": [*_of_texts(kept)], "run": [*_of_runs(folder / "runs")]}
        found["result"] = [each for lab in labs for each in _of_results(folder / f"{lab}.ipynb")]
        found["code"] = [each for lab in labs for each in _of_code(folder, place, lab)]
    return found


def _said(value: Any) -> str:
    """A student's text or number, on one line and without markup."""
    text = f"{value:.4g}" if is_number(value) else " ".join(str(value).split())
    return escape(text if len(text) <= 300 else f"{text[:297]}...", quote=False)


def _of_guesses(kept: Iterable[dict[str, Any]]) -> Iterator[str]:
    for name, made in first_guesses(kept).items():
        is_close = ratio_error(made.value, certain(made.truth)) < 1.25
        more = "What made it so close?" if is_close else "What did you not think of? How would you guess it now?"
        guessed = " ".join(filter(None, [_said(made.value), _said(made.unit)]))
        yield f"You guessed {guessed} for {_said(name)}, and it was {_said(made.truth)}. {more}"


def _of_texts(kept: Iterable[dict[str, Any]]) -> Iterator[str]:
    last = {(entry.get("kind"), entry["name"]): entry for entry in kept}
    for (kind, name), entry in last.items():
        if kind == "claim":
            yield (
                f"On claim {_said(name)} you have “{_said(entry.get('mine'))}” and the verdict “"
                f"{_said(entry.get('verdict'))}”. Which number would have given another verdict, and what else could "
                "explain yours?"
            )
        elif kind == "explanation":
            asked = "Where did you read these numbers, and what follows if one is wrong?"
            yield f"On {_said(name)} you wrote: “{_said(entry.get('text'))}” {asked}"


def _of_results(path: Path) -> Iterator[str]:
    for name, value in recorded_in(code_cells(read_notebook(path))).items():
        if is_number(value):
            yield (
                f"Lab {path.stem[:2]} ends with {_said(name)} = {_said(value)}. How was it measured or computed, in "
                "which unit, and how far would it move if you ran the lab again?"
            )


def _of_code(folder: Path, place: Path, lab: str) -> Iterator[str]:
    given = {line.strip() for line in answers_in(place / "release" / lab / f"{lab}.ipynb").splitlines()}
    for line in {line.strip() for line in answers_in(folder / f"{lab}.ipynb").splitlines()} - given:
        if len(line) >= 20 and not re.match(r"#|import |from |def |class |\"|'|answer = \(?[\"']", line):
            asked = "What is it for, and what would go wrong without it?"
            yield f"Your answers to lab {lab[:2]} have the line `{line}`. {asked}"


def _of_runs(folder: Path) -> Iterator[str]:
    records = []
    for path in sorted(folder.rglob("run.json"), key=lambda path: path.parent.name)[-MOST_RUNS:]:
        try:
            records.append(read_run(path.parent))
        except (UserError, ValueError):
            continue  # a damaged record gives no question
    for one, other in itertools.combinations(records, 2):
        yield from _of_pair(one, other)
    for run in records:
        result = run.result or {}
        if is_number(result.get("wall_s")):
            ended = f"took {_said(result['wall_s'])} s and ended as “{_said(run.status)}”"
            asked = "What took most of that time, and how do you know?"
            yield f"Run {_said(run.id)} under the budget {_said(run.ran_under)} {ended}. {asked}"


def _of_pair(one: RunRecord, other: RunRecord) -> Iterator[str]:
    """A question about two runs of one job that differ in one setting, and that came out differently."""
    first, second = _settings(one), _settings(other)
    differ = [name for name in first if name in second and first[name] != second[name]]
    results: Any = one.result or {}, other.result or {}
    measure = next((name for name in MEASURES if all(is_number(result.get(name)) for result in results)), None)
    if first.keys() == second.keys() and len(differ) == 1 and differ[0] != "job" and measure:
        name, words = differ[0], MEASURES[measure]
        yield (
            f"Run {_said(one.id)} had {name} {_said(first[name])} and {words.format(results[0][measure])}; run "
            f"{_said(other.id)} had {name} {_said(second[name])} and {words.format(results[1][measure])}. Nothing else "
            "that you set differs. Why did it come out so, and is the difference more than noise?"
        )


def _settings(run: RunRecord) -> dict[str, Any]:
    """The settings in which runs of a job may differ, by name."""
    train: Mapping[str, Any] = run.config.get("train", {})
    plain = {name: value for name, value in train.items() if isinstance(value, str | int | float | bool)}
    return plain | {"job": run.config.get("job", run.name), "budget": run.ran_under, "seed": run.seed}
