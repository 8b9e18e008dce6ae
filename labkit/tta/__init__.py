"""Time to accuracy: from evaluation curves to the time, samples and money a target costs."""

from labkit.tta.bootstrap import band
from labkit.tta.cost import Cost, cost_usd, with_cost
from labkit.tta.curves import curves, default_target, run_table
from labkit.tta.energy import with_energy
from labkit.tta.energy_account import EnergyAccount, energy_account
from labkit.tta.summary import summary
from labkit.tta.survival import survival, survival_curve, time_against_target
from labkit.tta.thresholds import crossings, higher_is_better

__all__ = [
    "Cost",
    "EnergyAccount",
    "band",
    "cost_usd",
    "crossings",
    "curves",
    "default_target",
    "energy_account",
    "higher_is_better",
    "run_table",
    "summary",
    "survival",
    "survival_curve",
    "time_against_target",
    "with_cost",
    "with_energy",
]
