"""What a live view shows of every counter: the latest value, its history, and why there is none."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from labkit.telemetry.reading import Reading

KEPT = 40
"""Values of a history."""
STALE = 3
"""After so many turns without a word from its source, a value is not shown as one of now."""
BARS = "▁▂▃▄▅▆▇█"


@dataclass
class History:
    """One counter of one device."""

    reading: Reading
    values: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    turn: int = 0
    """The turn in which it was last told"""

    @property
    def bars(self) -> str:
        """The latest values between the least and the most of them.

        >>> History(None, deque([0.0, 1.0, 2.0, 7.0])).bars
        '▁▂▃█'
        """
        if not self.values:
            return ""
        low, high = min(self.values), max(self.values)
        step = (high - low) / (len(BARS) - 1)
        return "".join(BARS[round((value - low) / step)] if step else BARS[0] for value in self.values)


class Latest:
    """Keeps the history of every counter that comes by."""

    def __init__(self):
        self.histories: dict[tuple[str, str, str], History] = {}
        self._turn = 0

    def take(self, readings: Iterable[Reading]) -> None:
        """Take the readings of a turn, oldest first; a turn without any changes nothing."""
        for place, reading in enumerate(readings):
            self._turn += place == 0
            history = self.histories.setdefault(reading[:3], History(reading))
            history.reading, history.turn = reading, self._turn
            if reading.value is not None:
                history.values.append(reading.value)

    def shown(self) -> list[History]:
        """Counters that have a value now, by device and scope."""
        histories = (history for _, history in sorted(self.histories.items()))
        return [each for each in histories if each.reading.value is not None and each.turn > self._turn - STALE]

    def missing(self) -> dict[str, list[str]]:
        """By reason, the counters that have none now."""
        reasons: dict[str, list[str]] = {}
        for (_, _, counter), history in sorted(self.histories.items()):
            if history.reading.value is None:
                reasons.setdefault(history.reading.note or "no reason given", []).append(counter)
        return reasons


def value_text(value: float, unit: str) -> str:
    """A value in the unit that is easiest to read.

    >>> value_text(3 * 2**30, "bytes"), value_text(12.34, "%"), value_text(2.5e9, "bytes/s"), value_text(2, "count")
    ('3 GiB', '12.3 %', '2.5 GB/s', '2')
    """
    if unit == "bytes":
        from labkit.hardware import size_text

        return size_text(value)
    if unit == "bytes/s":
        return f"{value / 1e9:.3g} GB/s"
    number = f"{value:,.1f}" if value % 1 else f"{value:,.0f}"
    return number if unit == "count" else f"{number} {unit}"
