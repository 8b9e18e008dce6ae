"""Sweeps: grids of runs from a file, one cell after another, resumed where they broke off, and read as a frame."""

from labkit.launch.sweep_frame import read_sweep

__all__ = ["read_sweep"]
