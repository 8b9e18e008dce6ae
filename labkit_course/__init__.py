"""The course: notebooks that teach, build, run and check themselves."""

import os

from labkit_course.check import check, draw, explain, mine, model_answer, reference
from labkit_course.claims import claim
from labkit_course.guesses import guess, reveal, score_course, score_notebook
from labkit_course.labs import labs_on
from labkit_course.results import results

__all__ = [
    "check", "claim", "draw", "explain", "guess", "labs_on", "mine", "model_answer", "reference", "results", "reveal",
    "score_course", "score_notebook",
]  # fmt: skip

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # before torch loads: its profiler's chatter teaches nothing
