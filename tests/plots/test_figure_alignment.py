"""The spectrogram with the characters that were heard."""

import numpy as np
import pandas as pd
import pytest

from labkit.plots.descriptions import describe
from labkit.plots.timelines import MOST_COLUMNS, RANGE_DB, figure_alignment

HEARD = pd.DataFrame({"character": list("a <"), "start_s": [0.2, 0.4, 0.6], "end_s": [0.3, 0.44, 1.0]})


def sound(frames: int) -> np.ndarray:
    """Log-mel energies of a loud second among quiet ones."""
    energies = np.full((frames, 80), -13.0)
    energies[100:200] = 0.0
    return energies


def test_characters_stand_above_the_spectrogram_at_their_times():
    figure = figure_alignment(sound(300), HEARD)
    heat, spans, text = figure.data
    assert (heat.type, text.mode, spans.hoverinfo) == ("heatmap", "text", "skip")
    assert np.asarray(heat.z).shape == (80, 300) and heat.x[-1] == 2.99
    assert (np.min(heat.z), np.max(heat.z)) == (-56, 0) and -RANGE_DB < -56  # 13 / ln(10) * 10 dB
    assert list(text.text) == ["a", "␣", "&lt;"]
    assert list(text.x) == pytest.approx([0.25, 0.42, 0.8])
    assert list(spans.x) == [0.2, 0.3, None, 0.4, 0.44, None, 0.6, 1.0, None]
    assert min(text.y) > 80 and figure.layout.yaxis.range[1] > max(text.y)
    assert "(s)" in figure.layout.xaxis.title.text and "kHz" in figure.layout.yaxis.title.text
    assert all("· measured" in trace.name for trace in (heat, text))
    assert describe(figure).table["text"].dropna().tolist() == ["a", "␣", "<"]
    assert "“a <” was heard from 0.20 s to 1.00 s, in 3 characters, of 3.00 s" in describe(figure).text


def test_a_long_recording_makes_no_larger_figure():
    long = figure_alignment(sound(60_000), HEARD)
    assert np.asarray(long.data[0].z).shape[1] == MOST_COLUMNS
    assert np.max(long.data[0].z[0][1:2]) == np.max(long.data[0].z), "the second second is the loud one"
    assert len(long.to_json()) < 100_000


def test_nothing_heard_is_said():
    figure = figure_alignment(sound(50), HEARD.iloc[:0])
    assert "Nothing was heard in 0.50 s" in describe(figure).text
