"""Each check takes what is right and nothing else, and each kind says what an answer has to be."""

import ast
import builtins
import contextlib
import errno
import functools
import inspect
import linecache
import operator
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import labkit
from labkit import Run
from labkit.errors import UserError
from labkit_course import check, draw, explain, lab, mine, model_answer, outcome, reference, results
from labkit_course.apparatus import WatchedRun
from labkit_course.checks import TRIES
from labkit_course.exercise import (
    VERDICTS,
    Case,
    Exercise,
    ExerciseError,
    Explanation,
    NotAnswered,
    Statement,
    WrittenExercise,
    WrongAnswer,
    WrongKind,
    changed,
)
from labkit_course.gate import knocked_out
from labkit_course.lab import all_exercises, with_variants
from labkit_course.notebook_file import authored, code_cells, read_notebook
from labkit_course.outcome import Raised, differs
from labkit_course.progress import kept

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
MODULE = "made"  # of `mylab`
NONSENSE = [10**400, object(), [1, 2], {"a": 1}, b"x", float("nan"), "no such thing at all"]


@pytest.mark.parametrize("name", all_exercises())
def test_each_check_takes_what_is_right_and_nothing_else(name):
    exercise = all_exercises()[name]
    assert list(knocked_out(name, exercise)) == []
    for nonsense in NONSENSE:
        with pytest.raises(ExerciseError, match=name):
            exercise.check(name, nonsense)


def test_a_loop_may_report_its_losses_as_floats():
    exercise = all_exercises()["10.loop"]
    exercise.check("10.loop", changed(exercise.reference, "run.step(loss,", "run.step(loss.item(),"))


@pytest.mark.parametrize("method", ["step", "evaluate", "epochs", "batches"])
def test_a_loop_is_checked_with_a_run_that_is_called_as_the_real_one(method):
    real, watched = (list(inspect.signature(getattr(of, method)).parameters) for of in (Run, WatchedRun))
    assert watched == real


@pytest.mark.parametrize("values", ["torch.ones(shape)", "torch.randn(shape).sign()"])
def test_a_models_first_weights_are_spread_over_the_whole_range(values):
    model, values = all_exercises()["10.model"], values.replace("shape", "rows, config.embedding_dim")
    table = f"nn.EmbeddingBag.from_pretrained({values} * rows**-0.5, freeze=False, mode='sum')"
    with pytest.raises(WrongAnswer, match="the first values of two tables"):
        model.check("10.model", changed(model.reference, "make_table(rows, config.embedding_dim)", table))


def doubled(number: float) -> float:
    return 2 * number


def added(number: float) -> float:
    return number + number


def written(reference, *cases, hint="Multiply.", explanation="So.", **more):
    return WrittenExercise(reference, *cases, hint=hint, explanation=explanation, **more)


ONE, THREE = (Case(f"{number}", operator.call, number) for number in (1, 3))
DOUBLE = written(doubled, ONE, THREE, mistakes={(lambda number: number + 1): "Twice, not one more."})


def asking(truth, hint="h", explanation="e", **more):
    """A question whose numbers are the same for all."""
    return Exercise(lambda: truth, lambda random: {}, hint, explanation, **more)


def library_call(imports: str, call: str):
    """Code that leaves its work to a library, imported so."""
    return in_a_cell(f"{imports}\n\n\ndef made(*given):\n    return {call}\n")["made"]


@pytest.mark.parametrize(
    ("replaced", "imports", "call"),
    [
        ("sklearn.metrics.roc_auc_score", "from sklearn.metrics import roc_auc_score as f", "f(*given)"),
        ("torch.bincount", "import torch", "torch.bincount(*map(torch.tensor, given[:1])).tolist()[1] / 2"),
        ("bisect.bisect_left", "from bisect import bisect_left", "bisect_left([0], 1) / 1"),
        ("collections.UserDict", "import collections", "len(collections.UserDict(a=1)) / 1"),
    ],
)
def test_an_answer_that_leaves_its_work_to_the_library_function_it_replaces_is_refused(replaced, imports, call):
    cases = Case("two", operator.call, [0, 1], [0.1, 0.9]), Case("other two", operator.call, [1, 0], [0.1, 0])
    exercise = written(lambda truth, scores: 1.0, *cases, instead_of=(replaced,))
    with pytest.raises(WrongAnswer, match=f"It calls {replaced}, which you are to write yourself"):
        exercise.check("99.made", library_call(imports, call))


@pytest.mark.parametrize(
    ("fault", "exercise"),
    [
        ("refuses variant 1", written(doubled, ONE, THREE, variants=[("2 * ", "")])),
        ("takes code that always gives", written(doubled, ONE)),
        ("does not give the hint for mistake 1", written(doubled, ONE, THREE, mistakes={doubled: "x"})),
        ("takes the constant 5", asking(5)),
        ("has no such hint for the mistake 5", asking(5, mistakes={lambda: 5: "y"})),
        ("refuses the right answer nan", asking(float("nan"))),
        ("needs a rubric", Explanation("one", model="short")),
    ],
)
def test_the_gate_notices_a_check_that_lets_wrong_answers_pass(fault, exercise):
    assert any(fault in line for line in knocked_out("99.made", exercise))


def test_code_that_never_ends_is_stopped(double, monkeypatch):
    monkeypatch.setattr(outcome, "LONGEST_S", 0.1)

    def endless(number):
        while True:
            with contextlib.suppress(Exception):  # which a limit that is one would end in
                sum(range(number))

    with pytest.raises(WrongAnswer, match="it is not done after"):
        check("99.double", endless)


def test_code_that_changes_what_it_is_given_is_refused_and_spoils_nothing():
    given, frame = torch.arange(3.0), [1, 2]
    exercise = written(lambda x, y: x + len(y), Case("three", operator.call, given, frame))
    for wrong in (
        lambda x, y: x.add_(len(y)),
        lambda x, y: (y.append(3), x + 2)[1],
        lambda x, y: (x + len(y), x.fill_(float("nan")))[0],
    ):
        with pytest.raises(WrongAnswer, match="it changes what it is given"):
            exercise.check("99.made", wrong)
    assert given.tolist() == [0, 1, 2] and exercise.check("99.made", lambda x, y: 2 + x)


def test_another_error_than_that_of_a_usual_mistake_has_another_hint():
    def fails(number):
        raise AttributeError("of the usual mistake")

    exercise = written(doubled, ONE, THREE, hint="general", mistakes={fails: "usual"})
    for error, hint in ((AttributeError("of the usual mistake"), "usual"), (AttributeError("other"), "general")):

        def wrong(number, error=error):
            raise error

        with pytest.raises(WrongAnswer, match=f"{hint}$"):
            exercise.check("99.made", wrong)


def in_a_cell(source: str) -> dict:
    """What a notebook's cell defines, whose source IPython keeps as this does."""
    name = f"/nowhere/{len(linecache.cache)}.py"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict = {}
    exec(compile(source, name, "exec"), namespace)
    return namespace


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setitem(all_exercises(), "99.double", DOUBLE)


def test_right_code_is_kept_in_the_students_module_and_wrong_code_is_not(double, tmp_path, capsys):
    assert mine("99.double") is doubled
    assert "labkit's reference, for yours is not in mylab/made.py yet" in capsys.readouterr().out
    right = in_a_cell(
        "import math\n\n\ndef doubled(number):\n    ### BEGIN SOLUTION\n    return math.fsum([number] * 2)\n"
    )
    check("99.double", right["doubled"])
    assert 'It is kept in mylab/made.py; `mine("99.double")` finds it there.' in capsys.readouterr().out
    with pytest.raises(WrongAnswer, match="Twice, not one more"):
        check("99.double", in_a_cell("def doubled(number):\n    return number + 1\n")["doubled"])
    assert mine("99.double")(2) == 4 and "yours" in capsys.readouterr().out
    module = tmp_path / "mylab" / "made.py"
    assert "SOLUTION" not in module.read_text() and "fsum" in module.read_text()
    module.write_text("BEFORE = 1\n\n# --- 99.other\nmore = 2\n")  # what the student wrote beside
    check("99.double", in_a_cell("def doubled(number):\n    return 2 * number\n")["doubled"])
    assert ["BEFORE" in module.read_text(), "more = 2" in module.read_text(), mine("99.double")(3)] == [True, True, 6]
    module.write_text("def doubled(:")
    assert mine("99.double") is doubled and "raises SyntaxError" in capsys.readouterr().out


def test_a_full_disk_leaves_the_code_that_was_kept_before(double, tmp_path, monkeypatch):
    module = tmp_path / "mylab" / "made.py"
    module.parent.mkdir()
    module.write_text(before := "BEFORE = 1\n\n# --- 99.other\nmore = 2\n")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"mylab: the disk is full .* then try again"):
        check("99.double", in_a_cell("def doubled(number):\n    return 2 * number\n")["doubled"])
    assert (module.read_text(), list(module.parent.iterdir())) == (before, [module])


def test_code_that_leans_on_another_cell_is_right_and_says_why_it_is_not_kept(double, tmp_path, capsys):
    code = in_a_cell("def doubled(number):\n    return two * number\n")
    code["two"] = 2
    check("99.double", code["doubled"])
    assert "not kept for later labs" in capsys.readouterr().out
    assert not (tmp_path / "mylab").exists()


def test_after_three_tries_the_reference_is_offered_and_its_use_is_kept(capsys):
    name = "20.greedy"
    for tries in range(1, TRIES + 1):
        with pytest.raises(UserError, match=f"{tries - 1} are kept"):
            reference(name)
        with pytest.raises(WrongAnswer) as wrong:
            check(name, abs)
        assert (f'reference("{name}")' in str(wrong.value)) == (tries == TRIES)
    reference(name)
    said = capsys.readouterr().out
    assert "def greedy(" in said and "SOLUTION" not in said
    assert [entry["name"] for entry in kept("reference")] == [name]


@pytest.mark.parametrize(
    "answer",
    [
        "mine(NAME)",
        "functools.partial(mine(NAME))",
        "functools.wraps(mine(NAME))(lambda *given: mine(NAME)(*given))",
        "lambda *given: mine(NAME)(*given)",
        "lambda *given: all_exercises()[NAME].reference(*given)",
        "lambda *given: lab.load_lab.__wrapped__(NAME[:2]).greedy(*given)",
        "labkit.hardware.size_text",
        "lambda *given: (sys.setprofile(None), mine(NAME)(*given))[1]",
        "lambda *given: ThreadPoolExecutor(1).submit(mine(NAME), *given).result()",
    ],
)
def test_labkits_own_code_is_no_answer_and_that_it_was_handed_out_is_kept(answer, capsys):
    names = {"NAME": "20.greedy", "mine": mine, "functools": functools, "labkit": labkit, "lab": lab, "sys": sys}
    code = eval(answer, names | {"all_exercises": all_exercises, "ThreadPoolExecutor": ThreadPoolExecutor})
    with pytest.raises(WrongAnswer, match=r"labkit's own code|It calls (labkit's answer|sys.setprofile)"):
        check("20.greedy", code)
    assert [entry["how"] for entry in kept("reference")][:1] == (["mine"] if "mine" in answer else [])


def test_an_answer_keeps_the_parameters_that_later_cells_leave_out_and_an_empty_error_is_no_answer(capsys):
    for code in (lambda work, repeats, clock: 0.0, lambda work, repeats: 0.0):
        with pytest.raises(WrongAnswer, match="without clock, or name it"):
            check("01.best", code)
    assert differs([Raised("")], [1.0], 1e-4) and differs(Raised(""), 1.0, 1e-4)


def test_a_class_that_builds_on_labkits_is_no_answer(capsys):
    class Mine(mine("10.model")):
        pass

    with pytest.raises(WrongAnswer, match="labkit's own code"):
        check("10.model", Mine)


def names_of(source):
    """What a cell binds anywhere, and what it uses."""
    nodes = list(ast.walk(ast.parse(re.sub(r"^[%!]", "# ", source, flags=re.MULTILINE))))
    names = [each for each in nodes if isinstance(each, ast.Name)]
    bound = {each.id for each in names if not isinstance(each.ctx, ast.Load)}
    for each in nodes:
        bound |= {getattr(each, word) for word in ("name", "arg", "asname") if isinstance(getattr(each, word, 0), str)}
    return {each.partition(".")[0] for each in bound}, {each.id for each in names} - bound


def test_a_variant_takes_the_place_of_the_answer_in_its_cell_with_the_imports_that_it_needs():
    cell = f"import math\n\n\n{inspect.getsource(doubled)}\n\nlater = 1\n"
    for variant, line in ((("2 * number", "number * 2"), "number * 2"), (added, "number + number")):
        exercise = written(doubled, ONE, THREE, variants=[variant])
        assert list(knocked_out("99.double", exercise)) == []
        assert exercise.swapped(cell) == cell.replace("2 * number", line)
    assert DOUBLE.swapped(cell) == cell
    for path in authored(NOTEBOOKS):
        cells = code_cells(read_notebook(path))
        with_variants(cells)
        known = {*vars(builtins), "get_ipython"}
        for swapped in cells:
            bound, used = names_of(swapped.source)
            known |= bound
            is_answer = swapped.metadata.get("nbgrader", {}).get("solution")
            assert not is_answer or used <= known, (path.stem, swapped.id, used - known)


def test_each_try_draws_other_cases_and_what_is_right_is_shown_after_three(monkeypatch):
    def cases(random):
        number = random.randrange(10**6)
        return [Case(f"{number}", operator.call, number), ONE]

    drawn = written(doubled, draw=cases)
    assert list(knocked_out("99.drawn", drawn)) == []
    monkeypatch.setitem(all_exercises(), "99.drawn", drawn)
    tried = []
    for tries in range(TRIES + 1):
        with pytest.raises(WrongAnswer, match=r"which is too low|is right") as wrong:
            check("99.drawn", lambda number: 3 * number / 2)
        number = int(re.search(r"Tried with (\d+)", str(wrong.value))[1])
        assert (f"{2 * number:.6g}" in str(wrong.value)) == (tries == TRIES)
        tried.append(number)
    assert len(set(tried)) == len(tried)
    replayed = {number: 2 * number for number in tried}
    with pytest.raises(WrongAnswer):
        check("99.drawn", lambda number: replayed.get(number, 2))


def test_code_that_is_not_written_yet_is_not_a_try(double):
    for empty in (..., None, in_a_cell("def doubled(number):\n    raise NotImplementedError\n")["doubled"]):
        with pytest.raises(NotAnswered, match=r"[Ww]rite"):
            check("99.double", empty)
    with pytest.raises(WrongAnswer, match="raises ZeroDivisionError"):
        check("99.double", lambda number: number / 0)
    assert len(kept("attempt")) == 1


@pytest.mark.parametrize(
    ("found", "right", "said"),
    [
        (torch.ones(2), np.ones(2), ""),
        ([1, 2], (1, 2), ""),
        (np.array([1, 2]), (1, 2), ""),
        (np.float32(1) / 3, 1 / 3, ""),
        (float("nan"), float("nan"), ""),
        (torch.ones(2, 1), torch.ones(2), "the shape (2, 1), and (2,) is right"),
        ({"a": 1}, {"b": 1}, "a dict with the keys 'b' is wanted"),
        ({"a": [1, 5]}, {"a": [1, 2]}, "at ['a'][1] it gives 5, and 2 is right"),
        ([1], [1, 2], "it gives [1], and [1, 2] is right"),
        ("1", 1.0, "it gives '1', and 1.0 is right"),
        (None, 1.0, "1.0 is right"),
        (None, np.ones(2), "it gives None"),
        (True, 1.5, "it gives 1, and 1.5 is right"),
    ],
)
def test_how_answers_differ_is_said_in_words(found, right, said):
    assert said in differs(found, right, 1e-4) and bool(said) == bool(differs(found, right, 1e-4))
    assert "is right" not in (unsaid := differs(found, right, 1e-4, shown=False)).replace("(2,) is right", "")
    assert bool(said) == bool(unsaid)


def test_numbers_are_drawn_for_a_student_and_the_same_each_time(monkeypatch, capsys):
    drawn = Exercise(
        lambda rows: rows * 4,
        hint="Four each.",
        explanation="So.",
        draw=lambda random: {"rows": random.randrange(10**6)},
        mistakes={(lambda rows: rows * 8): "Single precision."},
    )
    monkeypatch.setitem(all_exercises(), "99.drawn", drawn)
    numbers = draw("99.drawn", 7)
    assert draw("99.drawn", 7) == numbers != draw("99.drawn", 8)
    assert f"rows = {numbers['rows']}" in capsys.readouterr().out
    check("99.drawn", 4 * numbers["rows"], 7)
    with pytest.raises(WrongAnswer, match="Single precision"):
        check("99.drawn", 8 * numbers["rows"], 7)
    with pytest.raises(WrongAnswer, match="Four each"):
        check("99.drawn", 4 * numbers["rows"], 8)
    with pytest.raises(UserError, match=r"99\.drawn"):
        draw("99.drown")


@pytest.mark.parametrize(
    ("truth", "more", "answer", "said"),
    [
        *((2.0, {}, answer, None) for answer in (2, np.float32(2), np.array([2.0]), torch.tensor([2.0]))),
        (2.0, {}, np.array([2.0, 2.0]), "a number"),
        (0.3, {"unit": "US dollars"}, "0.30", r"a number \(US dollars\), such as 2.5, without quotes"),
        (100.0, {"relative": 0.01}, 101.0, None),
        (100.0, {"relative": 0.01}, 102.0, "not yet. Think."),
        (351, {}, np.int64(351), None),
        (351, {}, 350, "not yet"),  # a whole number has no tolerance
        (3, {}, 3.5, "an integer"),
        (1, {}, True, "an integer"),
        (2.0, {"mistakes": {lambda: 1.0: "Not one."}}, 1, "Not one"),
    ],
)
def test_an_answer_of_each_kind(truth, more, answer, said):
    exercise = asking(truth, hint="Think.", explanation="So.", **more)
    if said is None:
        assert exercise.check("99.made", answer) == "Exercise 99.made: right. So."
        return
    with pytest.raises(ExerciseError, match=said) as wrong:
        exercise.check("99.made", answer)
    assert wrong.value._render_traceback_() == [str(wrong.value)], "IPython shows words without a traceback"


def test_a_verdict_is_kept_without_a_word_of_whether_it_is_right(capsys):
    results(launch_us=(2.0, 0, 9), median_error=(0.25, 0, 9))
    assert model_answer("01.assistant") == "does not hold here"
    with pytest.raises(NotAnswered, match="in place of the dots"):
        check("01.assistant", ...)
    capsys.readouterr()
    said = []
    for verdict in VERDICTS:
        check("01.assistant", verdict)
        said.append(capsys.readouterr().out.replace(verdict, ""))
    assert len({*said}) == 1 and [entry["verdict"] for entry in kept("verdict")] == [*VERDICTS]
    results(median_error=(float("nan"), 0, 9))
    assert model_answer("01.assistant") == "cannot be tested here"


@pytest.mark.parametrize("bounds", [{}, {"above": 2, "below": 1}])
def test_a_sentence_that_no_number_can_decide_is_named(bounds):
    (fault,) = knocked_out("01.assistant", Statement("x", **bounds))
    assert "write above=NUMBER" in fault


def test_an_explanation_is_kept_and_the_model_answer_unfolds_once_there_is_one(monkeypatch, capsys):
    monkeypatch.setitem(all_exercises(), "99.why", Explanation("a number?", "why?", model="Because " + "it is so " * 9))
    for answer, kind, said in (
        (..., NotAnswered, "with numbers of this notebook"),
        ("As it is.", WrongKind, "3 words"),
    ):
        with pytest.raises(kind, match=said) as wrong:
            explain("99.why", answer)
        assert not re.search(r"Because|a number\?|why\?", str(wrong.value)), "the rubric is for a text that is written"
    for text, nudged in (("In my words <b> " * 8, True), ("In my 3 words <b> " * 8, False)):
        explanation = all_exercises()["99.why"].check("99.why", text)
        assert ["There is no number" in explanation, "<li>why?</li>" in explanation] == [nudged, True]
    explain("99.why", text)
    assert [entry["name"] for entry in kept("explanation")] == ["99.why"]
