"""Speech as a recogniser sees it, with the characters that it heard at their times."""

from __future__ import annotations

from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import encoding, named, new_figure

ONE_HUE = ((0.0, "#f2f7fb"), (0.5, "#9cc9e6"), (1.0, "#00436b"))
"""A colour scale from light to dark, which needs no colour vision"""
FRAMES_PER_S = 100
MOST_COLUMNS = 600
"""Widest picture; more frames are averaged, several to a column"""
RANGE_DB = 60
"""Range below the loudest sound; what is quieter has one colour"""


def figure_alignment(log_mel: np.ndarray, characters: pd.DataFrame) -> go.Figure:
    """A spectrogram, and above it each character that was heard, from its beginning to its end.

    Args:
        log_mel: float (frames, bands), natural logarithms of energies, 100 frames per second.
        characters: columns character, start_s, end_s (`labkit.transcription.align`).
    """
    frames, bands = log_mel.shape
    each = -(-frames // MOST_COLUMNS)
    columns = np.add.reduceat(log_mel, np.arange(0, frames, each)) / np.diff([*range(0, frames, each), frames])[:, None]
    loudness = (columns - columns.max()) * 10 / np.log(10)  # dB below the loudest
    seconds = np.arange(len(columns)) * each / FRAMES_PER_S
    text, seen = "".join(characters["character"]), characters["character"].replace(" ", "␣")
    finding = f"Nothing was heard in {frames / FRAMES_PER_S:.2f} s of audio."
    if text:
        finding = (
            f"“{text}” was heard from {characters['start_s'].iloc[0]:.2f} s to {characters['end_s'].iloc[-1]:.2f} s, "
            f"in {len(text)} characters, of {frames / FRAMES_PER_S:.2f} s of audio."
        )
    figure = new_figure("Time (s)", f"Mel band (1 to {bands}: 0 to 8 kHz)", finding)
    figure.add_heatmap(
        x=seconds.tolist(),
        y=list(range(1, bands + 1)),
        z=loudness.clip(-RANGE_DB).round().astype(np.int8).T,  # (bands, columns), a byte each
        colorscale=ONE_HUE,
        colorbar={"title": "dB below<br>the loudest", "thickness": 12},
        **named("log-mel energy", "measured"),
        hovertemplate="%{x:.2f} s, band %{y}: %{z} dB<extra></extra>",
    )
    look = encoding(1)
    gaps = [None] * len(characters)
    at = [value for span in zip(characters["start_s"], characters["end_s"], gaps, strict=True) for value in span]
    figure.add_scatter(
        x=at,
        y=[bands + 3] * len(at),
        mode="lines+markers",
        line={"color": look.color, "width": 4},
        marker={"color": look.color, "symbol": "line-ns-open", "size": 9},  # between neighbours
        hoverinfo="skip",
        showlegend=False,
    )
    figure.add_scatter(
        x=((characters["start_s"] + characters["end_s"]) / 2).tolist(),
        y=[bands + 7] * len(characters),
        mode="text",
        text=[escape(one) for one in seen],
        customdata=characters[["start_s", "end_s"]].to_numpy().round(3).tolist(),
        **named("characters heard", "measured"),
        hovertemplate="%{text}: %{customdata[0]:.2f} to %{customdata[1]:.2f} s<extra></extra>",
    )
    return figure.update_yaxes(range=[0.5, bands + 11]).update_layout(height=420, showlegend=False)
