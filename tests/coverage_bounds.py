"""How many of a number of 90 % intervals must hold the truth, so that a test fails where too few do."""

from __future__ import annotations

from scipy.stats import binom

NOMINAL = (0.85, 0.97)
"""Intervals that are called 90 % hold the truth so often, in the long run."""
CHANCE = 0.01


def assert_covers(held: int, number: int, *, chance: float = CHANCE) -> None:
    """Fail where intervals that hold the truth 85 to 97 % of the time would do so in this many cases by chance only.

    Of 100 cases 76 to 100 pass: intervals that hold it 60 % of the time have a chance of 1 in 2,000.
    """
    least, most = int(binom.ppf(chance, number, NOMINAL[0])), int(binom.isf(chance, number, NOMINAL[1]))
    assert least <= held <= most, f"{held} of {number} hold the truth, expected {least} to {most}"
