"""What engines cost, always shown in the same two units: per hour and per year."""

from __future__ import annotations

from sim.fleet.energy import HOURS_PER_YEAR

HEAD, WIDTHS = ("cost/h", "cost/year"), (11, 13)
"""The two columns' heads and widths."""


def cost_text(per_hour: float, currency: str = "") -> str:
    """Return a cost in both units. ``currency``: "USD", or "" of prices that do not say theirs."""
    return f"{per_hour:,.2f}{behind(currency)} an hour, {year_text(per_hour, currency)}"


def year_text(per_hour: float, currency: str = "") -> str:
    """Return a cost of a year in words."""
    return f"{per_hour * HOURS_PER_YEAR:,.0f}{behind(currency)} a year"


def behind(currency: str) -> str:
    """Return what stands behind an amount."""
    return f" {currency}" if currency else ""


def cost_cells(per_hour: float | None) -> tuple[str, str]:
    """Return a cost as the two columns have it; a dash each without a price."""
    return (f"{per_hour:,.2f}", f"{per_hour * HOURS_PER_YEAR:,.0f}") if per_hour else ("-", "-")


def per_year(per_hour: float | None) -> float | None:
    """Return a year's cost; None without a price."""
    return per_hour * HOURS_PER_YEAR if per_hour else None
