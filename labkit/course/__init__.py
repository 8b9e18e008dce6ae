"""The course: notebooks that teach, build, run and check themselves."""

from labkit.course.exercise import check
from labkit.course.guesses import guess, reveal, score_course, score_notebook
from labkit.course.labs import labs_on
from labkit.course.results import results

__all__ = ["check", "guess", "labs_on", "results", "reveal", "score_course", "score_notebook"]
