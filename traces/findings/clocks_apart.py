"""Machines that sent one load together, and whose clocks are not known well enough beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traces.header import ProcessInfo

MOST_US: Final = 1000.0
"""By how much the times of two machines may be off each other, µs: what a time of the trace promises."""


def off_by_us(process: ProcessInfo) -> float:
    """Return by how much the times of a process may be off the client's: its clock's error and drift, µs."""
    return (process.clock_error_us or 0.0) + abs(process.clock_drift_us or 0.0)


def clocks_apart(processes: Sequence[ProcessInfo]) -> tuple[ProcessInfo, ...]:
    """Return those whose clocks may be off by more than ``MOST_US``."""
    return tuple(each for each in processes if off_by_us(each) > MOST_US)
