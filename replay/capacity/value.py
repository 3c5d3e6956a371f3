"""What a capacity costs: requests and tokens for what its servers cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replay.simulation.variants.kv_tier import price_per_hour
from traces import ConfigError
from traces.facts import Fact, count, per_s

if TYPE_CHECKING:
    from replay.capacity.capacity import Capacity
    from replay.model.prices import ServerPrices
    from replay.twin.twin_config import TwinConfig

PRICE = "price per hour"
PER_PRICE = "  requests per unit of currency"
"""A unit of what the prices are in: a dollar, a euro."""


def price_of(twin: TwinConfig, prices: ServerPrices | None) -> float | None:
    """Return what all servers of a twin cost in an hour; None without prices. Raises ConfigError if one is missing."""
    if prices is None:
        return None
    if not twin.num_gpus:
        raise ConfigError("--prices: needs the GPU of the twin, expected hardware.gpu in its file")
    missing = [name for name in twin.num_gpus if name not in prices.per_gpu]
    if missing:
        raise ConfigError(f"--prices: got none of {missing[0]}, expected one")
    return price_per_hour(twin, prices)


def value_facts(found: Capacity, price: float | None) -> list[Fact]:
    """Return the price of an hour, the requests for one unit of it, and the price of a million output tokens."""
    if price is None:
        return []
    rate = found.rate_per_s
    tokens = None if rate is None else found.at_capacity.output_tokens_per_s
    return [
        Fact("price_per_hour", PRICE, price, per_s),
        Fact("requests_per_price", PER_PRICE, None if rate is None else rate * 3600 / price, count_of),
        Fact(
            "price_per_million_output_tokens",
            "  of 1M output tokens",
            None if not tokens else price / (3600 * tokens) * 1e6,
            per_s,
        ),
    ]


def count_of(value: float) -> str:
    """Return a number of requests."""
    return count(round(value)) if value >= 100 else per_s(value)


def best_value_line(
    names: Sequence[str], found: Sequence[Capacity], prices: Sequence[float | None]
) -> list[str]:
    """Return the line that names which of several capacities has the most requests for its price; nothing without."""
    ranked = [
        (each.rate_per_s * 3600 / price, name)
        for name, each, price in zip(names, found, prices, strict=True)
        if each.rate_per_s is not None and price
    ]
    if len(ranked) < 2:
        return []
    most, name = max(ranked)
    return [f"most for its price: {name} ({count_of(most)} requests per unit of currency)"]
