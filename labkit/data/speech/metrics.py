"""What a recogniser is scored by."""

from __future__ import annotations


def speech_metrics(references: list[str], hypotheses: list[str]) -> dict[str, float]:
    """Character and word error rate over all utterances together.

    >>> speech_metrics(["one two"], ["one too"])["wer"]
    0.5
    """
    import jiwer

    return {name: float(getattr(jiwer, name)(references, hypotheses)) for name in ("cer", "wer")}
