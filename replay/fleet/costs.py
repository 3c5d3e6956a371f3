"""What engines cost, in the same two units wherever it is shown: an hour's and a year's."""

from __future__ import annotations

from sim.fleet.energy import HOURS_PER_YEAR

HOUR_WIDTH, YEAR_WIDTH = 11, 13
HEAD = f"{'cost/h':>{HOUR_WIDTH}}{'cost/year':>{YEAR_WIDTH}}"
"""The two columns' heads."""


def cost_text(per_hour: float) -> str:
    """Return a cost in both units."""
    return f"{per_hour:,.2f} an hour, {per_hour * HOURS_PER_YEAR:,.0f} a year"


def cost_cells(per_hour: float | None) -> str:
    """Return a cost as the two columns have it; a dash each without a price."""
    if not per_hour:
        return f"{'-':>{HOUR_WIDTH}}{'-':>{YEAR_WIDTH}}"
    return f"{per_hour:>{HOUR_WIDTH},.2f}{per_hour * HOURS_PER_YEAR:>{YEAR_WIDTH},.0f}"


def per_year(per_hour: float | None) -> float | None:
    """Return a year's cost; None without a price."""
    return per_hour * HOURS_PER_YEAR if per_hour else None
