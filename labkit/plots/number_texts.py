"""Numbers as text: few digits and the unit."""

import math
from numbers import Real

METRIC_LABELS = {
    "auc": "AUC",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "normalised_entropy": "normalised entropy",
    "cer": "CER",
    "wer": "WER",
    "loss": "training loss",
    "ndcg": "NDCG",
}
AXIS_TITLES = {
    "wall_s": "Wall time, evaluation included (s)",
    "train_s": "Training time, without evaluation (s)",
    "samples": "Training samples seen",
    "epochs": "Epochs, passes over the training data",
    "energy_j": "Energy so far (J)",
    "cost_usd": "Cost so far, by the tier's price (US$)",
}


def metric_label(metric: str) -> str:
    """ "AUC" for "auc"; names it does not know are kept."""
    return METRIC_LABELS.get(metric, metric.replace("_", " "))


UNITS = {
    "_gb_per_s": " (GB/s)", "_per_s": " (1/s)", "_ms": " (ms)", "_us": " (µs)", "_s": " (s)", "_bytes": " (bytes)",
    "_mib": " (MiB)", "_gib": " (GiB)", "_gb": " (GB)", "_usd": " (US$)", "_j": " (J)", "_w": " (W)",
}  # fmt: skip
"""By the end of a column's name, which says its unit"""


def column_title(column: str) -> str:
    """A column as the title of an axis, its unit in brackets.

    >>> [column_title(name) for name in ("samples_per_s", "peak_memory_bytes", "batch_size", "auc", "test_auc")]
    ['samples (1/s)', 'peak memory (bytes)', 'batch size', 'AUC', 'test AUC']
    """
    for end, unit in UNITS.items():
        if column.endswith(end):
            return column.removesuffix(end).replace("_", " ") + unit
    is_test = column.startswith("test_")
    return "test " * is_test + metric_label(column.removeprefix("test_"))


def number_text(value: float) -> str:
    """Four figures, without an exponent where a reader would not expect one.

    >>> [number_text(value) for value in (0.012346, 812.44, 24310.0, 2e12)]
    ['0.01235', '812.4', '24,310', '2e+12']
    """
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def value_text(value: object) -> str:
    """A number as `number_text`, or anything else as it is."""
    return number_text(float(value)) if isinstance(value, Real) else str(value)


def rate_text(value: float) -> str:
    """An achieved rate with three figures; a dash where there is none, or it is not known.

    >>> [rate_text(value) for value in (0.0, float("nan"), 2.65, 1234.0)]
    ['–', '–', '2.65', '1.23e+03']
    """
    return f"{value:,.3g}" if value > 0 else "–"


def seconds_text(seconds: float) -> str:
    """A duration with three figures or so."""
    if not math.isfinite(seconds):
        return "not reached"
    if seconds < 300:
        return f"{seconds:.{1 if seconds >= 1 else 2 if seconds >= 0.1 else 3}f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.2f} h"


def count_text(count: float) -> str:
    """A count, shortened from a thousand on."""
    if not math.isfinite(count):
        return "–"
    if count < 1000:
        return f"{count:.0f}"
    return f"{count / 1000:.1f} k" if count < 999_950 else f"{count / 1e6:.2f} M"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def usd_text(usd: float) -> str:
    """Money; tenths of a cent and less in cents."""
    if usd >= 1:
        return f"${usd:.2f}"
    return f"{usd * 100:.{2 if usd >= 0.01 else 3}f} ¢"


def joules_text(joules: float) -> str:
    """Energy with three figures or so."""
    if joules >= 1e6:
        return f"{joules / 1e6:.1f} MJ"
    return f"{joules / 1000:.1f} kJ" if joules >= 1000 else f"{joules:.{2 if joules < 1 else 1}f} J"


def axis_text(value: float, x: str) -> str:
    """A place on the x axis `x` as text.

    >>> [axis_text(value, "wall_s") for value in (0.0421, 0.819, 6.249, 63.44, 1234.0, 9000.0, math.inf)]
    ['0.042 s', '0.82 s', '6.2 s', '63.4 s', '20.6 min', '2.50 h', 'not reached']
    >>> [axis_text(value, "samples") for value in (7, 51200, 1310720)]
    ['7', '51.2 k', '1.31 M']
    >>> [axis_text(value, "cost_usd") for value in (0.000123, 0.0421, 3.5)]
    ['0.012 ¢', '4.21 ¢', '$3.50']
    >>> [axis_text(value, "energy_j") for value in (0.25, 812.4, 45_300.0, 1.27e7)]
    ['0.25 J', '812.4 J', '45.3 kJ', '12.7 MJ']
    """
    words = {"samples": count_text, "epochs": "{:.3g} epochs".format, "energy_j": joules_text, "cost_usd": usd_text}
    return words.get(x, seconds_text)(value) if math.isfinite(value) else "not reached"


def is_not_known(median: float, failed: int, runs: int) -> bool:
    """Whether too many runs were cut off to say when half of them arrive, though half did not fail."""
    return math.isinf(median) and 2 * failed < runs


def budget_words(budget: str) -> str:
    """A budget as part of a sentence: "all cores" for "all-cores".

    >>> [budget_words(name) for name in ("all-cores", "gpu:1", "cores=2,memory=2GiB")]
    ['all cores', 'GPU 1', 'cores=2,memory=2GiB']
    """
    named = {"one-core": "one core", "all-cores": "all cores", "gpu": "the GPU"}
    if budget.startswith("gpu:") and budget[4:].isdigit():
        return f"GPU {budget[4:]}"
    return named.get(budget, budget)
