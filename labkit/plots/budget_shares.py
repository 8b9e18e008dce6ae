"""What budgets leave of a device: shares found under them beside predicted ones."""

from __future__ import annotations

from html import escape

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import encoding

PATTERNS = {"arithmetic": {False: "", True: "/"}, "bandwidth": {False: ".", True: "x"}}
"""Beside colour, by quantity and by whether it is predicted."""


def figure_budget_shares(shares: pd.DataFrame, *, template: str = "labkit_light") -> go.Figure:
    """Bars of each budget: arithmetic and bandwidth, each as found, and predicted where something predicts it.

    Args:
        shares: columns budget, quantity ("arithmetic" or "bandwidth"), share (%) and provenance.
        template: "labkit_light" or "labkit_dark".
    """
    figure = go.Figure(layout={"template": template, "barmode": "group"})
    colors = {quantity: encoding(number, template).color for number, quantity in enumerate(shares["quantity"].unique())}
    for (quantity, provenance), own in shares.groupby(["quantity", "provenance"], sort=False):
        name = escape(f"{quantity} · {provenance}")
        figure.add_bar(
            x=own["budget"],
            y=own["share"],
            name=name,
            marker={
                "color": colors[quantity],
                "pattern": {"shape": PATTERNS[quantity][provenance == "predicted"]},
            },
            hovertemplate=f"%{{x}}<br>{name}: %{{y:.3g}} %<extra></extra>",
        )
    figure.update_xaxes(title_text="Budget")
    figure.update_yaxes(title_text="Of the whole device (%)", rangemode="tozero")
    words = "; ".join(
        f"{row.budget}: {row.arithmetic:.0f} % of the arithmetic and {row.bandwidth:.0f} % of the bandwidth"
        for row in shares[shares["provenance"] != "predicted"]
        .pivot(index="budget", columns="quantity", values="share")
        .reindex(shares["budget"].unique())
        .reset_index()
        .itertuples()
    )
    figure.update_layout(meta={"finding": f"Left by the budget: {words}."})
    return figure
