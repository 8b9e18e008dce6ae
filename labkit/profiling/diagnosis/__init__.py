"""What to change in a slow step, and how much faster training can become by it at most."""

from labkit.profiling.diagnosis.case import Case, Device, Faults, Finding
from labkit.profiling.diagnosis.rules import diagnose

__all__ = ["Case", "Device", "Faults", "Finding", "diagnose"]
