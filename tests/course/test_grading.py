"""What is right has its points, a cheat costs what it cheated, and none ends the rest."""

import os
import re
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path

import pytest
from nbformat import v4

from labkit_course.build import exercise_version
from labkit_course.exercise import Exercise, ExerciseError
from labkit_course.grading import _definitions, _is_answer, grade, refusal, sandbox
from labkit_course.lab import all_exercises
from labkit_course.notebook_file import SOLUTIONS, code_cells, read_notebook
from labkit_course.progress import RESULTS, recorded_in

NOTEBOOKS = Path(__file__).parents[2] / "notebooks" / SOLUTIONS
LAB = "00_start_here"
CHECK = re.compile(r'^check\("([\w.]+)", (\w+)', re.MULTILINE)
LIMIT_S = 15
CHEATS = {
    "untouched": ("raise NotImplementedError", "NotImplementedError"),
    "its own check": ("import labkit_course\n    return 0", "not yet"),
    "the reference": (
        "from labkit_course.lab import all_exercises as all\n    return all({name!r}[:2])[{name!r}].reference(*given)",
        "calls labkit's answer",
    ),
    "its own verdict": (
        "import labkit_course.exercise as e\n    e.differs = lambda *given: ''\n    return 0",
        "changes labkit",
    ),
    "an end": ("import os\n    os._exit(0)", "ends the process"),
}


@pytest.mark.timeout(900)
def test_right_answers_have_their_points_and_each_cheat_none_of_what_it_cheated():
    cells = code_cells(read_notebook(NOTEBOOKS / f"{LAB}.ipynb"))
    calls = {place: CHECK.search(cell.source) for place, cell in enumerate(cells)}
    written = [place for place, call in calls.items() if call and hasattr(all_exercises()[call[1]], "reference")]
    first, second = written[:2]
    above, pair, below = cells[: first - 1], cells[first - 1 : first + 1], cells[first + 1 : second + 1]
    for cell in [*above, *below[:-2]]:
        cell.metadata.pop("nbgrader", None)
    name, function = calls[first].groups()
    for body, _ in CHEATS.values():
        answer, check = deepcopy(pair)
        answer.source = (
            "import labkit_course\n\nlabkit_course.check = lambda *given: None\n\n"
            f"def {function}(*given, **named):\n    {body.format(name=name)}\n"
        )
        above += [answer, check]
    grade([*above, *pair, *below], LIMIT_S)
    outputs = [cell.outputs[0] for cell in above[-2 * len(CHEATS) + 1 :: 2]]
    for output, (cheat, (_, said)) in zip(outputs, CHEATS.items(), strict=True):
        assert output.output_type == "error" and said in output.evalue, (cheat, output)
    assert [cell.outputs[0].output_type for cell in (pair[1], below[-1])] == ["stream", "stream"]
    endless = f"def {function}(*given, **named):\n    while True:\n        pass"
    assert "is not done after 1 s" in refusal(f'check("{name}", {function})', [endless], 1)


# `make soak` grades all labs, which takes minutes. Lab 60 loads torch.package, which replaces a function of `inspect`.
WHOLE = sorted(NOTEBOOKS.glob("[0-9]*.ipynb") if "LABKIT_SOAK" in os.environ else NOTEBOOKS.glob("60_*.ipynb"))


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_each_right_answer_of_a_lab_has_its_points(path):
    cells = code_cells(read_notebook(path))
    for place, cell in enumerate(cells):
        call = re.search(r"^check\(.*\)$", cell.source, re.MULTILINE)
        if call and cell.metadata.get("nbgrader", {}).get("grade"):
            above = [each.source for each in cells[:place]]
            own = max(filter(lambda own: _is_answer(cells[own]), range(place)))
            name = CHECK.match(call[0])[1]
            recorded = {getattr(all_exercises()[name], "number", ""): None}  # of a run that measured nothing
            assert refusal(call[0], above, 60, own, recorded) == ""


def test_an_answer_in_the_sandbox_has_no_network_and_changes_no_file(tmp_path):
    if not sandbox()[0]:
        pytest.skip(sandbox()[1])
    name = next(name for name, exercise in all_exercises().items() if isinstance(exercise, Exercise))
    attempts = {
        f"open({str(tmp_path / 'x')!r}, 'w')": "Read-only file system",
        "socket.create_connection(('127.0.0.1', 9))": "refused",  # of its own, empty loopback
        f"os.kill({os.getpid()}, 0)": "No such process",
    }
    tried = "".join(f"try: {each}\nexcept OSError as error: said.append(error)\n" for each in attempts)
    answer = f"import os, socket\nsaid = []\n{tried}raise ValueError(said)"
    said = refusal(f'check("{name}", answer)', [answer], LIMIT_S, 0)
    assert all(words in said for words in attempts.values()), said


def test_a_number_is_judged_where_its_answer_does_not_run_and_an_untouched_one_has_no_points():
    name = next(name for name, exercise in all_exercises().items() if isinstance(exercise, Exercise))
    (path,) = NOTEBOOKS.glob(f"{name[:2]}_*.ipynb")
    cells = code_cells(exercise_version(read_notebook(path)))
    place = next(place for place, cell in enumerate(cells) if f'check("{name}"' in cell.source)
    call = re.search(r"^check\(.*\)$", cells[place].source, re.MULTILINE)[0]
    above = [cell.source for cell in cells[:place]]
    assert "not answered yet" in refusal(call, above, LIMIT_S)
    exercise = all_exercises()[name]
    right = exercise.truth(**exercise.numbers(0))
    peek = f"import labkit_course.lab as lab\nanswer = lab.all_exercises()[{name!r}].truth(**numbers)"
    for answer in ("answer = 1e9", peek):
        assert refusal(call, [*above[:-1], answer], LIMIT_S) != "", answer
    cells[place - 1].source = f"answer = {right}"
    tried = v4.new_code_cell("answer = 2  # tried, and not handed in")
    cells[place].metadata.nbgrader.update(grade=True)
    grade([*cells[:place], tried, cells[place]], LIMIT_S)
    assert cells[place].outputs[0].output_type == "stream"


@pytest.mark.parametrize(
    ("value", "verdict", "words"),
    [
        (0.3, "does not hold here", ""),
        (0.3, "holds here", "not_training is 0.3, and the sentence needs it below 0.1, so it does not hold here"),
        (0.3, "cannot be tested here", "does not hold here"),
        (0.02, "holds here", ""),
        (0.102, "holds here", ""),  # next to the bound every verdict is right
        (0.102, "cannot be tested here", ""),
        (None, "cannot be tested here", ""),
        (None, "holds here", "is none"),
        (float("nan"), "cannot be tested here", ""),
        (0.3, "yes", "write one of"),
        ("0.3", "does not hold here", "has no result not_training"),  # written by another program
        ("absent", "does not hold here", "run all of it"),
    ],
)
def test_a_verdict_is_graded_by_the_number_that_was_handed_in_with_it(value, verdict, words):
    record = {} if value == "absent" else {"not_training": {"value": value, "low": 0, "high": 1}}
    outputs = [v4.new_output("display_data", {RESULTS: record})]
    numbers = recorded_in([v4.new_code_cell("results()", metadata={"tags": ["results"]}, outputs=outputs)])
    with pytest.raises(ExerciseError, match=words) if words else nullcontext():
        all_exercises()["00.assistant"].grade("00.assistant", verdict, numbers)


def test_functions_of_each_kind_are_defined_for_the_answers_below_them():
    cell = "import math\n\ndef one():\n    pass\n\nasync def two():\n    pass\n\nclass Three:\n    pass\n\nprint(1)"
    assert [each.split("(")[0].split(":")[0] for each in _definitions(cell, own=False)] == [
        "import math", "def one", "async def two", "class Three",
    ]  # fmt: skip
