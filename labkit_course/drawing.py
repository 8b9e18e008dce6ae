"""Drawings for notebooks: inline SVG, which takes the colours of the theme."""

from pathlib import Path

DRAWINGS = Path(__file__).with_name("drawings")


def drawing(name: str) -> None:
    """Show a drawing of the course, such as "dlrm"; its title and description are its text for screen readers."""
    from IPython.display import display

    svg = (DRAWINGS / f"{name}.svg").read_text(encoding="utf-8")
    title = svg.partition("<title>")[2].partition("</title>")[0]
    display({"text/html": svg, "text/plain": f"A drawing: {title}"}, raw=True)
