"""The source of the smallest lab that is as agreed; its notebook runs, too."""

from __future__ import annotations

from pathlib import Path

from nbformat import NotebookNode

from labkit_course.build import solutions_version
from labkit_course.exercise import Explanation
from labkit_course.lab import all_exercises, answer_cell

NAME = "90_x"
EXPLAINED = next(name for name, exercise in all_exercises("10").items() if isinstance(exercise, Explanation))


def solved(name: str) -> str:
    """The answer to an exercise of code, with nbgrader's markers around its body."""
    head, definition, body = answer_cell(name).partition("def ")
    first, _, body = (definition + body).partition("\n")
    return f"{head}{first}\n    ### BEGIN SOLUTION\n{body}\n    ### END SOLUTION"


def marked(answer: str, call: str) -> str:
    return f"### BEGIN SOLUTION\nanswer = {answer}\n### END SOLUTION\n{call}"


SOURCE = f"""\
# %% opening [markdown]
# # X
#
# After it you will be able to
#
# - count
#
# **Time:** 1 s
# **Prerequisites:** none

# %% parameters-prose [markdown]
# What you may change:

# %% parameters tags=["parameters"]
profile = "standard"

# %% checks
# no cell of the notebooks

# %% count [markdown]
# ## Count

# %% guesses
from labkit_course import check, claim, explain, guess, model_answer, results, reveal

guess("a", 1)
guess("b", 1)
guess("c", 1)

# %% interaction-prose [markdown]
# ### Exercise 10.interaction

# %% answer 10.interaction
{solved("10.interaction")}


# %% check 10.interaction points=1
check("10.interaction", interaction)

# %% collapse-prose [markdown]
# ### Exercise 20.collapse

# %% answer 20.collapse
{solved("20.collapse")}


# %% check 20.collapse points=1
check("20.collapse", collapse)

# %% explain-prose [markdown]
# In words:

# %% explain {EXPLAINED} points=2 id="by-hand"
{marked(f'model_answer("{EXPLAINED}")', f'explain("{EXPLAINED}", answer)')}

# %% claim-prose [markdown]
# In words:

# %% claim A4 points=2
{marked('"holds here", "four bytes a number, and many rows"', 'claim("A4", "102 GB", answer)')}

# %% reveal-prose [markdown]
# And:

# %% reveal
reveal("a", 1)
reveal("b", 1)
reveal("c", 1)

# %% results-prose [markdown]
# The numbers:

# %% results tags=["results"]
results(one=(1, 0, 2))

# %% recap [markdown]
# ## Recap
#
# - Counted.
#
# **Next:** y
"""


def write_source(folder: Path) -> Path:
    """The folder of sources that holds this one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.py").write_text(SOURCE, encoding="utf-8")
    return folder


def sound_notebook(folder: Path) -> NotebookNode:
    """The lab's notebook, with its answers; the source is written to `folder`."""
    return solutions_version(write_source(folder) / f"{NAME}.py")
