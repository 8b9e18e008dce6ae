"""A box and a button to answer with, by keyboard or mouse; a typed call does the same."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from html import escape
from typing import Any


def offer(name: str, unit: str, take: Callable[[Any], None]) -> None:
    """Show a box for a number where a notebook is open; what `take` prints or raises is shown.

    Args:
        name: what is answered, which the box is called by.
        unit: of the number.
        take: is given the answer.
    """
    from IPython import get_ipython

    if getattr(get_ipython(), "kernel", None) is None:  # a script has nowhere to show it
        return
    import ipywidgets as widgets
    from IPython.display import display

    label = f"{name}{f' ({unit})' if unit else ''}"
    wide = {"description_width": "initial"}
    box = widgets.Text(placeholder="a number", description=label, style=wide, continuous_update=False)
    button, said = widgets.Button(description="Answer", tooltip=f"Answer {name}"), widgets.HTML()

    def press(_: Any) -> None:
        words = io.StringIO()
        with contextlib.redirect_stdout(words):
            try:
                take(_number(box.value))
            except Exception as error:  # of whatever kind: it is told here, where the button is
                print(error)
        said.value = f"<p role='status'>{escape(words.getvalue())}</p>"

    button.on_click(press)
    display(widgets.VBox([widgets.HBox([box, button]), said]))


def _number(text: str) -> float | str:
    """A number where the text is one; else the text, which whoever takes it refuses."""
    try:
        return float(text)
    except ValueError:
        return text
