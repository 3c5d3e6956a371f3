"""A capacity where nobody knows how many seats the fitted server has: its interval holds those of all likely numbers.

A fit at light load says how long steps take, and nothing of a limit that was never reached. A file that a fit has
written without having seen the server's flags does not have ``max_num_seqs``; vLLM's default is assumed then.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig

SEATS = "max_num_seqs"
LIKELY = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Numbers of seats that servers are started with; 1,024 is vLLM's default on large GPUs."""
ALIKE = 0.005
"""Capacities that differ by less do not depend on the seats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedSeats:
    """The seats that were assumed, and the capacities, requests/s, with the fewest and the most that are likely."""

    assumed: int
    rate_of_seats: dict[int, float]

    @property
    def is_open(self) -> bool:
        """Whether the capacity depends on them."""
        rates = self.rate_of_seats.values()
        return max(rates) > min(rates) * (1 + ALIKE)

    @property
    def text(self) -> str:
        """Return the sentence about them, with the way out."""
        (fewest, low), *_, (most, high) = sorted(self.rate_of_seats.items())
        return (
            f"how many seats the server has is not known: {SEATS} {self.assumed:,} is assumed; the capacity is "
            f"{low:.4g} requests/s with {fewest:,} and {high:.4g} with {most:,}. Observe with --scrape, or say "
            f"--set engine.{SEATS}=N"
        )


def are_seats_assumed(twin: TwinConfig) -> bool:
    """Return whether a twin is fitted to a server whose number of seats nobody stated."""
    return twin.fitted is not None and SEATS in twin.assumed
