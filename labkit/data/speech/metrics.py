"""What a recogniser is scored by."""

from __future__ import annotations

SPEECH_METRICS = ("cer", "wer")


def speech_metrics(references: list[str], hypotheses: list[str]) -> dict[str, float]:
    """Character and word error rate over all utterances together.

    >>> speech_metrics(["one two"], ["one too"])["wer"]
    0.5
    """
    import jiwer

    return {
        "cer": float(jiwer.cer(references, hypotheses)),
        "wer": float(jiwer.wer(references, hypotheses)),
    }
