"""A market of runs: an allowance buys trainings on rented GPUs, and recordings answer what came of them."""

import functools
import math
from dataclasses import dataclass
from random import Random

from labkit.errors import UserError
from labkit.runs import recorded

RECORDING, JOB = "zeus-nsdi23", "deepspeech2 on librispeech"
USUAL_USD_PER_H = {"P100": 0.25, "V100": 1.0, "RTX 6000": 1.0, "A40": 1.0}
"""Prices are drawn between half and twice these: by one price list every student would have the same best offer"""


@dataclass(frozen=True)
class Offer:
    """One way to train DeepSpeech2 to the target."""

    device: str
    batch_size: int
    usd_per_h: float


@dataclass(frozen=True)
class Bought:
    """What came of a run that was paid for."""

    offer: Offer
    reached: bool
    cost_usd: float
    """Until the target; else until its end, or until the money was spent"""
    best: float
    """Lowest word error rate that it came to, of those recorded"""
    cut_off: bool
    """Whether the money was spent before its end: then it may still have reached the target later"""


@dataclass(frozen=True)
class _Training:
    """A recorded training, by the seconds from its start."""

    end_s: float
    reached_s: dict[float, float]
    """When it first met each word error rate"""


@functools.cache
def _recorded() -> dict[tuple[str, int], list[_Training]]:
    runs, curves = recorded(RECORDING, job=JOB, power_limit_w="max")
    met = {name: dict(zip(own["value"], own["wall_s"], strict=True)) for name, own in curves.groupby("run")}
    found: dict[tuple[str, int], list[_Training]] = {}
    for row in runs.sort_values("seed").to_dict("records"):
        training = _Training(row["wall_s"], met.get(row["run"], {}))
        found.setdefault((row["device"], int(row["batch_size"])), []).append(training)
    return found


class Market:
    """The offers and the allowance of one student. Times are recorded (You et al. 2023), prices are drawn.

    Args:
        student: draws the prices, and which recorded training answers first.
        allowance_usd: what may be spent in all.
        target: word error rate that a run has to reach.
    """

    def __init__(self, student: int = 0, allowance_usd: float = 75.0, target: float = 0.35):
        known = sorted({value for own in _recorded().values() for training in own for value in training.reached_s})
        if target not in known:
            raise UserError(f"target {target:g} was not recorded: give one of {', '.join(map(str, known))}.")
        random = Random(f"market {student}")
        prices = {name: round(usual * 2 ** random.uniform(-1, 1), 2) for name, usual in USUAL_USD_PER_H.items()}
        self.target, self.left_usd, self.history = target, allowance_usd, list[Bought]()
        self._trainings = {
            Offer(device, batch_size, prices[device]): random.sample(own, len(own))  # in the order of their answers
            for (device, batch_size), own in _recorded().items()
        }

    @property
    def offers(self) -> list[Offer]:
        """All that may be bought."""
        return list(self._trainings)

    def buy(self, offer: Offer, most_usd: float | None = None) -> Bought:
        """Train once with the next seed; after the last recorded seed the first one answers again.

        Args:
            offer: one of `offers`.
            most_usd: what to spend at most; the run is cut off there. By default, all that is left.

        Raises:
            UserError: there is no such offer, or that much is not left. Nothing is spent then.
        """
        most = self.left_usd if most_usd is None else most_usd
        if offer not in self._trainings:
            raise UserError(f"{offer} is not offered: take one of market.offers.")
        if not 0 < most <= self.left_usd:
            raise UserError(f"${most:.2f} cannot be spent: ${self.left_usd:.2f} of the allowance are left.")
        trainings = self._trainings[offer]
        training = trainings[sum(each.offer == offer for each in self.history) % len(trainings)]
        cost_usd, reached = self._cost(offer, training)
        spent, is_cut = min(cost_usd, most), cost_usd > most
        seen = [wer for wer, wall_s in training.reached_s.items() if wall_s * offer.usd_per_h / 3600 <= spent]
        self.left_usd -= spent
        self.history.append(Bought(offer, reached and not is_cut, spent, min(seen, default=math.inf), is_cut))
        return self.history[-1]

    def _cost(self, offer: Offer, training: _Training) -> tuple[float, bool]:
        """What a training costs until the target, or until its end; and whether it gets there."""
        hits = [wall_s for wer, wall_s in training.reached_s.items() if wer <= self.target]
        return min(hits, default=training.end_s) * offer.usd_per_h / 3600, bool(hits)

    def expected_usd(self, offer: Offer) -> float:
        """The grader's: what the target costs with restarts, all that its seeds spend over those that reach it."""
        costs = [self._cost(offer, training) for training in self._trainings[offer]]
        reached = sum(each for _, each in costs)
        return sum(cost for cost, _ in costs) / reached if reached else math.inf

    def regret(self, offer: Offer) -> float:
        """The grader's: how much more the target costs with this offer than with the best one, as a share of that."""
        return self.expected_usd(offer) / min(map(self.expected_usd, self.offers)) - 1
