"""When each character was said: the likeliest path through the outputs that writes a text.

T' outputs, V alphabet with the blank, S characters.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from labkit.data.speech import BLANK, Alphabet, outputs_needed
from labkit.errors import UserError


def align(log_probabilities: np.ndarray, text: str, outputs_per_s: float) -> pd.DataFrame:
    """The stretch of each character of a text on the likeliest of the paths that write it (Viterbi's algorithm).

    Args:
        log_probabilities: float (T', V).
        text: what was heard or said, in the alphabet's characters.
        outputs_per_s: `Recogniser.outputs_per_s`.

    Returns:
        Columns character, start_s, end_s. CTC's characters are short, and stand where the model was sure of them.

    Raises:
        UserError: the text needs more outputs than there are.
    """
    outputs, needed = len(log_probabilities), outputs_needed(text)
    if needed > outputs:
        raise UserError(
            f"the text {text[:60]!r} needs {needed} outputs, and the audio gives {outputs}: it is not what is said."
        )
    if not text:
        return pd.DataFrame({"character": [], "start_s": [], "end_s": []})
    ids = Alphabet().encode(text)
    labels = np.full(2 * len(ids) + 1, BLANK)  # a blank before, between and after the characters
    labels[1::2] = ids
    may_skip = np.zeros(len(labels), bool)  # the blank between two characters that differ
    may_skip[3::2] = ids[1:] != ids[:-1]
    emitted = log_probabilities[:, labels]  # (T', 2 S + 1)
    score = np.full(len(labels), -np.inf)
    score[:2] = emitted[0, :2]
    steps = np.zeros(emitted.shape, np.int8)
    """How many labels further each output is than the one before it"""
    for output in range(1, outputs):
        ways = np.full((3, len(labels)), -np.inf)
        ways[0] = score
        ways[1, 1:] = score[:-1]
        ways[2, 2:] = np.where(may_skip[2:], score[:-2], -np.inf)
        steps[output] = ways.argmax(0)
        score = ways.max(0) + emitted[output]
    place = len(labels) - 1 - int(score[-2] > score[-1])
    path = np.empty(outputs, np.int64)
    for output in reversed(range(outputs)):
        path[output] = place
        place -= int(steps[output, place])
    spans = [np.flatnonzero(path == 2 * index + 1)[[0, -1]] for index in range(len(ids))]
    starts, ends = np.array(spans, np.float64).T
    return pd.DataFrame(
        {"character": list(text), "start_s": starts / outputs_per_s, "end_s": (ends + 1) / outputs_per_s}
    )
