"""Grades what a student handed in, each answer in a process of its own, without executing the notebook.

A check sees the imports, functions and classes of the cells above it: what else a cell did, such as to labkit, is gone.
"""

import ast
import contextlib
import dataclasses
import functools
import inspect
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from labkit.hardware import Budget
from labkit.process import Child, Parent
from labkit_course.checks import find, judge
from labkit_course.exercise import Exercise, ExerciseError, Explanation, Statement, WrittenExercise
from labkit_course.lab import all_exercises, load_lab
from labkit_course.progress import recorded_in

START_S = 120.0
"""Seconds in which the libraries of a lab are loaded, which are no fault of an answer."""
MEMORY_BYTES = 4 * 2**30
"""What an answer may use of it"""
TAKES_UP = {"mine", "draw"}
"""What a line above an answer may call and still be run."""


def grade(cells: list[Any], limit_s: float) -> None:
    """Put into the graded code cells of a notebook what nbgrader and those who grade by hand need to see.

    Args:
        cells: the code cells; other outputs stay those of the student's machine.
        limit_s: seconds that an answer may take.
    """
    from nbformat import v4

    recorded = recorded_in(cells)
    for place, cell in enumerate(cells):
        graded = cell.metadata.get("nbgrader", {}).get("grade")
        call = re.search(r'^(check|explain)\("([\w.]+)", .*\)$', cell.source, re.MULTILINE) if graded else None
        if call and call[1] == "explain":
            cell.outputs = [v4.new_output("display_data", {"text/html": find(call[2], Explanation).for_graders()})]
        elif call:
            own = max((each for each in range(place) if _is_answer(cells[each])), default=place - 1)
            said = refusal(call[0], [each.source for each in cells[:place]], limit_s, own, recorded)
            error = v4.new_output("error", ename="NoPoints", evalue=said, traceback=[said])
            cell.outputs = [error if said else v4.new_output("stream", text=f"Exercise {call[2]}: right.\n")]


def _is_answer(cell: Any) -> bool:
    """Whether it is the student's, for a check below it; students add cells between the two."""
    kind = cell.metadata.get("nbgrader", {})
    return bool(kind.get("solution") and not kind.get("grade"))


@functools.cache
def sandbox() -> tuple[tuple[str, ...], str]:
    """The command of a sandbox for an answer, without its folder, and what to say of it.

    bubblewrap's: no network, nothing of this machine's files can be changed, and no other process is seen.
    """
    command = ("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--die-with-parent")
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        why = "is not installed" if isinstance(error, FileNotFoundError) else "cannot make one here"
        return (
            (),
            f"Answers run without a sandbox, as bubblewrap {why}: use an account that reaches nothing else.",
        )
    return command, "Each answer runs in a sandbox: without network, and with files that it can only read."


def refusal(
    call: str, sources: list[str], limit_s: float, own: int = -1, recorded: Mapping[str, float | None] | None = None
) -> str:
    """Why an answer gets no points; empty if it is right.

    Args:
        call: of `check`, as the notebook has it.
        sources: of the code cells above.
        limit_s: seconds that the answer may take.
        own: which of them has the answer.
        recorded: the results of the notebook, which decide over a verdict.
    """
    called: Any = ast.parse(call, mode="eval").body
    name, answer, *student = map(ast.unparse, called.args)
    name, token = ast.literal_eval(name), secrets.token_hex()
    exercise = find(name, Exercise | WrittenExercise | Statement)
    content = {"name": name, "answer": answer, "student": (student or ["0"])[0], "token": token}
    content["above"] = [each for source in sources for each in _definitions(source, source is sources[own])]
    content["own"] = "" if isinstance(exercise, WrittenExercise) else sources[own]  # a number's defines nothing
    with tempfile.TemporaryDirectory() as folder:
        command, _ = sandbox()
        within = (*command, "--bind", folder, folder) if command else ()
        # what a library keeps for later has to go where it can be written
        variables = {"LABKIT_COURSE": folder, "TMPDIR": folder, "NUMBA_CACHE_DIR": folder}
        child = Child("labkit_course.grading", content, environment=variables, grace_s=0, within=within)
        with child as worker, contextlib.suppress(EOFError):
            verdict = worker.next_message(START_S) and worker.next_message(limit_s)
            if verdict is None:
                return f"Exercise {name}: the answer is not done after {limit_s:g} s."
            if verdict.get("token") != token:
                return f"Exercise {name}: the answer gives a verdict of its own."
            if not isinstance(exercise, WrittenExercise) and not verdict["error"]:
                try:
                    if isinstance(exercise, Exercise):
                        exercise.check(name, verdict["value"], verdict["student"])
                    else:
                        exercise.grade(name, verdict["value"], recorded or {})
                except ExerciseError as error:
                    return str(error)
            return verdict["error"]
        return f"Exercise {name}: the answer ends the process that checks it."


def _definitions(cell: str, own: bool) -> Iterator[str]:
    """The statements of a cell that define something and do nothing else; of what is no Python, none.

    Args:
        own: whether it has the answer, which may compute what its code uses.
    """
    with contextlib.suppress(SyntaxError):
        lines = [line for line in cell.splitlines() if not line.startswith(("%", "!"))]
        yield from (ast.unparse(each) for each in ast.parse("\n".join(lines)).body if _defines(each, own))


def _defines(statement: ast.stmt, own: bool) -> bool:
    """Whether a statement imports, defines, or names what needs no call but those that take something up."""
    if isinstance(statement, ast.Assign):
        called = {ast.unparse(each.func) for each in ast.walk(statement) if isinstance(each, ast.Call)}
        return all(isinstance(each, ast.Name) for each in statement.targets) and (own or called <= TAKES_UP)
    if isinstance(statement, ast.AnnAssign):
        return own
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


# --- in the process of one answer


def main() -> None:
    parent = Parent()
    Budget("an answer", cores=None, memory_bytes=MEMORY_BYTES).cap_memory()
    task = parent.content
    name, verdict = task["name"], {"token": task["token"], "error": ""}
    exercise = find(name, Exercise | WrittenExercise | Statement)
    if isinstance(exercise, Exercise):  # the parent has its truth
        for known in (all_exercises(name[:2]), load_lab(name[:2]).EXERCISES):
            known[name] = dataclasses.replace(exercise, truth=lambda **_: float("nan"), mistakes={})
    os.chdir(os.environ["LABKIT_COURSE"])
    before, names = _labkits_code(), {"__name__": "__main__"}
    parent.tell("loaded")
    try:
        for statement in task["above"]:
            with contextlib.suppress(Exception):  # of a line that needs one that was not run
                exec(statement, names)
        exec(task["own"], names)
        answer, student = (eval(task[each], names) for each in ("answer", "student"))
        if not isinstance(exercise, WrittenExercise):
            with contextlib.suppress(AttributeError, ValueError, RuntimeError):
                answer = answer.item()  # of numpy or torch
            plain = isinstance(answer, int | float | str) or answer in (None, ...)
            verdict |= {"value": (None if answer is ... else answer) if plain else repr(answer), "student": student}
        else:
            judge(name, exercise, answer)
        now = _labkits_code()
        if any(now.get(each) != code for each, code in before.items()):
            verdict["error"] = f"Exercise {name}: the answer changes labkit or a library."
    except Exception as error:  # whatever an answer raises
        verdict["error"] = str(error) if isinstance(error, ExerciseError) else f"{type(error).__name__}: {error}"
    parent.tell("graded", **verdict)


def _labkits_code() -> dict[str, int]:
    """What the names in this package, and in what judges with it, stand for, to notice that one was replaced."""
    judges = ("labkit_course.", "numpy ", "builtins ", "inspect ", "math ")
    modules = [sys.modules[name] for name in sorted(sys.modules) if f"{name} ".startswith(judges)]
    owners = [
        (module, owner) for module in modules for owner in [module, *filter(inspect.isclass, vars(module).values())]
    ]
    return {
        f"{module.__name__} {owner.__name__} {name}": id(getattr(value, "__code__", value))
        for module, owner in owners
        for name, value in vars(owner).items()
        if (owner, name) != (inspect, "getfile")  # torch.package replaces it, which an answer may load
    }


if __name__ == "__main__":
    main()
