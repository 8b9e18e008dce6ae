"""What papermill lets pass in an executed notebook is noticed."""

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from labkit_course.progress import RESULTS
from labkit_course.runner import PLOTLY, count_figures, execution_faults


def shown_figure():
    layout = {"xaxis": {"title": {"text": "Time (s)"}}, "yaxis": {"title": {"text": "AUC"}}}
    config = {"modeBarButtonsToRemove": ["sendChartToCloud"]}
    figure = {"data": [{"name": "one-core · emulated"}], "layout": layout, "config": config}
    html = "<p>Line chart. Horizontal axis: Time (s).</p><table></table>"
    return [new_output("display_data", data=data) for data in ({PLOTLY: figure}, {"text/html": html})]


def ran(outputs):
    record = new_output("display_data", data={RESULTS: {"auc": {"value": 0.7, "low": 0.5, "high": 1.0}}})
    results = new_code_cell("results()", execution_count=2, outputs=[record], metadata={"tags": ["results"]}, id="b")
    return new_notebook(cells=[new_code_cell("show(figure)", execution_count=1, outputs=outputs, id="a"), results])


def test_a_good_notebook_passes_and_each_of_two_figures_needs_its_own_description():
    figure, words = shown_figure()
    notebook = ran([figure, words])
    assert (execution_faults(notebook), count_figures(notebook)) == ([], 1)
    (found,) = execution_faults(ran([figure, figure, words]))
    assert "no description" in found


@pytest.mark.parametrize(
    ("fault", "plant"),
    {
        "xaxis has no title": lambda figure, outputs: figure["layout"].pop("xaxis"),
        "a figure's xaxis has": lambda figure, outputs: figure["layout"]["xaxis"].update(title={}, matches="x3"),
        "yaxis has no title": lambda figure, outputs: figure["layout"]["yaxis"].pop("title"),
        "does not say where": lambda figure, outputs: figure["data"][0].update(name="one-core"),
        "can be uploaded": lambda figure, outputs: figure.pop("config"),
        "no description": lambda figure, outputs: outputs.pop(),
        "no table": lambda figure, outputs: outputs[1].data.update({"text/html": "<p>Horizontal axis</p>"}),
        "calls show, and no": lambda figure, outputs: outputs.clear(),
        "error in its output": lambda figure, outputs: outputs.append(
            new_output("error", ename="ValueError", evalue="", traceback=[])
        ),
    }.items(),
)
def test_a_fault_in_the_output_is_noticed(fault, plant):
    outputs = shown_figure()
    plant(outputs[0].data[PLOTLY], outputs)
    assert fault in " ".join(execution_faults(ran(outputs)))
