"""Sweeps: grids of runs from a file, one cell after another, resumed where they broke off, and read as a frame."""
