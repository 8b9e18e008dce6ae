"""The course: notebooks that teach, build, run and check themselves."""

import os

from labkit.course.check import check, draw, explain, mine, model_answer, reference
from labkit.course.claims import claim
from labkit.course.guesses import guess, reveal, score_course, score_notebook
from labkit.course.labs import labs_on
from labkit.course.results import results

__all__ = [
    "check", "claim", "draw", "explain", "guess", "labs_on", "mine", "model_answer", "reference", "results", "reveal",
    "score_course", "score_notebook",
]  # fmt: skip

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # before torch loads: its profiler's chatter teaches nothing
