"""Processes that write runs: whether one still lives."""

from __future__ import annotations

import os

import psutil

CLOCK_TOLERANCE_S = 2.0
"""Linux derives the time a process began from the boot time, which moves when the clock is set."""


def process_started(pid: int) -> float | None:
    """When a process began, in seconds since 1970; None where none of that number runs."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return round(process.create_time(), 1)
    except psutil.Error:
        return None


def is_alive(pid: int, started: float) -> bool:
    """Whether the process of that number that began then still runs; numbers are used again."""
    now = process_started(pid)
    return now is not None and abs(now - started) < CLOCK_TOLERANCE_S


def own_process() -> tuple[int, float]:
    """This process' pid and when it began."""
    return os.getpid(), process_started(os.getpid())
