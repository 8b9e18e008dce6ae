"""Every authored notebook runs to its end, once, and has its page; figures say what of them was recorded."""

import re
from html import unescape
from itertools import takewhile
from pathlib import Path

import plotly.graph_objects as go
import pytest

from labkit.plots import MIME
from labkit_course.notebook_file import authored, code_cells, read_notebook
from labkit_course.runner import run_notebooks
from labkit_course.site import build_site

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
WITH_RECORDINGS = ("10", "13", "21", "30", "50", "51")
KIND = re.compile(r"\b(measured|recorded|emulated|predicted)\b")


def figures(path):
    """Each figure of an executed notebook, as its reader sees it, with the description that follows it."""
    for cell in code_cells(read_notebook(path)):
        for place, output in enumerate(cell.outputs):
            if shown := output.get("data", {}).get(MIME):
                own = takewhile(lambda later: MIME not in later.get("data", {}), cell.outputs[place + 1 :])
                html = "".join(later.get("data", {}).get("text/html", "") for later in own)
                yield go.Figure(shown["data"], shown["layout"]), unescape(html)


def faults(figure, description):
    """What does not say, in words, by its marks or in the table, whether it was recorded."""
    once = (figure.layout.legend.title.text or "").removesuffix(": ")
    for trace in figure.data:
        if trace.hoverinfo == "skip":  # decoration of a series
            continue
        name = unescape(f"{trace.name} · {once}" if once else trace.name)
        kinds = set(KIND.findall(name))
        if not kinds:
            yield f"{name}: nothing says where it is from"
        if f"<td>{name}" not in description:
            yield f"{name}: is not in the description's table"
        is_heat_map = trace.type == "heatmap"
        if is_heat_map and not kinds <= set(KIND.findall(figure.layout.title.text or "")):
            yield f"{name}: the title does not say it"
        if is_heat_map:
            hollow = bool(trace.xgap)
        elif trace.type == "bar":
            hollow = trace.marker.pattern.fillmode == "replace"
        elif "markers" not in (trace.mode or "markers") or "thin" in str(trace.marker.symbol):
            continue  # without marks, or with crosses, which have no inside
        else:
            hollow = str(trace.marker.symbol).endswith("-open")
        if hollow != ("recorded" in kinds):
            yield f"{name}: is {'hollow' if hollow else 'full'}"


@pytest.mark.quiet
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_authored_notebooks_run_two_at_a_time_and_have_their_pages(tmp_path):
    # the gate runs the answers themselves
    executed = run_notebooks(authored(NOTEBOOKS), tmp_path, variants=True, jobs=2)
    assert {each.source.stem: each.faults for each in executed if each.faults} == {}
    assert [each.source.stem for each in executed if not each.figures] == ["34_clinics"]
    index = build_site(tmp_path, tmp_path / "site")
    for each in executed:
        assert (index.parent / f"{each.out.stem}.html").read_text(encoding="utf-8").count("<h1") == 1
    told = {
        each.source.stem: [fault for shown in figures(each.out) for fault in faults(*shown)]
        for each in executed
        if each.source.stem.startswith(WITH_RECORDINGS)
    }
    assert {name[:2] for name in told} == set(WITH_RECORDINGS) and not any(told.values()), told
