"""The ranges of a fleet's figures. A figure outside is a mistake, and products of several would overflow."""

from __future__ import annotations

from typing import Final

from replay.model.prices import MOST_PRICE
from replay.numbers.argument_ranges import AVAILABILITY, RATE
from traces import ConfigError
from traces.strict.limits import MOST_TOKENS

Range = tuple[float, float]
RATES: Final[Range] = (RATE.least, RATE.most)
PRICES: Final[Range] = (1e-6, MOST_PRICE)
"""The price of an engine or a GPU for an hour, in any currency."""
FACTORS: Final[Range] = (1.0, 1000.0)
"""How many times too long a prompt may be that is cut."""
FAILURES_PER_DAY: Final[Range] = (0.0, 86_400.0)
"""How often a node fails."""
REPAIR_HOURS: Final[Range] = (0.0, 8_784.0)
"""A year at most."""
LEAST_UP: Final = AVAILABILITY.least
"""Share of the nodes, as the option --availability has it."""

WATTS: Final[Range] = (0.0, 1e6)
OF_PROFILE: Final[dict[str, Range]] = {
    **{
        "w_s": (1e-6, 100.0),
        "h_s": (0.0, 100.0),
        "prefill_token_s": (0.0, 1.0),
        "prefill_pair_s": (0.0, 1e-3),
        "frontend_s": (0.0, 1000.0),
        "frontend_token_s": (0.0, 1.0),
        "output_token_s": (0.0, 1.0),
        "handed_on_s": (0.0, 1.0),
    },
    **{"calibration_context": (1, MOST_TOKENS), "chunk_tokens": (1, 1 << 28), "block_size": (1, 1 << 20)},
    **{"num_blocks": (1, 1 << 30), "max_slots": (1, 1 << 20), "num_gpus": (1, 1 << 16)},
    **{"max_concurrent_batches": (1, 1 << 10), "num_speculative_tokens": (0, 1 << 10)},
    **{"cost_per_hour": (0.0, MOST_PRICE), "idle_w": WATTS, "nominal_w": WATTS},
    **{"power_k": (0.1, 4.0), "power_x0": (0.0, 32.0)},
}
"""Figures of a profile, by name; those with whole ends are counts."""


def in_range(name: str, value: float, ends: Range) -> float:
    """Return a value that is within its range. Raises ConfigError, for NaN too."""
    low, high = ends
    if not low <= value <= high:
        raise ConfigError(f"{name}: got {value:g}, expected {low:,g} to {high:,g}")
    return value
