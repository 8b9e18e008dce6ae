"""Time to accuracy: from evaluation curves to the time, samples and money a target costs."""

from labkit.tta.batch_size import by_batch_size
from labkit.tta.cost import Cost, cost_usd, on_front, priced, with_cost
from labkit.tta.curves import curves, default_target, run_table
from labkit.tta.energy import EnergyAccount, energy_account, window_energy, windows_by_name, with_energy
from labkit.tta.sooner import SpeedUp, speed_up
from labkit.tta.summary import summary
from labkit.tta.survival import band, survival, survival_curve
from labkit.tta.thresholds import crossings, higher_is_better

__all__ = [
    "Cost", "EnergyAccount", "SpeedUp", "band", "by_batch_size", "cost_usd", "crossings", "curves", "default_target",
    "energy_account", "higher_is_better", "on_front", "priced", "run_table", "speed_up", "summary", "survival",
    "survival_curve", "window_energy", "windows_by_name", "with_cost", "with_energy",
]  # fmt: skip
