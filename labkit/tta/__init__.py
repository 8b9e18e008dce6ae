"""Time to accuracy: from evaluation curves to the time, samples and money a target costs."""

from labkit.tta.cost import Cost, cost_usd, with_cost
from labkit.tta.curves import curves, default_target, run_table
from labkit.tta.energy import EnergyAccount, energy_account, with_energy
from labkit.tta.sooner import SpeedUp, speed_up
from labkit.tta.summary import summary
from labkit.tta.survival import band, survival, survival_curve
from labkit.tta.thresholds import crossings, higher_is_better

__all__ = [
    "Cost", "EnergyAccount", "SpeedUp", "band", "cost_usd", "crossings", "curves", "default_target", "energy_account",
    "higher_is_better", "run_table", "speed_up", "summary", "survival", "survival_curve", "with_cost", "with_energy",
]  # fmt: skip
