"""Reserved against burst over a day: engines by hour, the cheapest number reserved, and what the others cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass
from pathlib import Path

from replay.fleet.check.pool import Verification
from replay.fleet.inputs.fleet_ranges import PRICES, RATES, in_range
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.plans.size import PoolPlan, SizeCheck, plan_pool
from sim.fleet.reserved import HOURS, Reserved, cheapest_reserved, cost_with, day_between
from sim.fleet.sizing import Objective, PoolSize
from traces import ConfigError
from traces.strict.whole_file import is_there, whole_file

MOST_OF_A_DAY = 1 << 16
"""Bytes of a file with 24 rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPlan:
    """A day: ``rates`` in requests/s and ``sizes`` by formula, hour by hour, and three ways to pay for it.

    ``simulated``: the hours' pools as simulation sizes them; empty: by formula alone.
    """

    profile: str
    gpus_per_engine: int
    rates: tuple[float, ...]
    sizes: tuple[PoolSize, ...]
    objective: Objective
    reserved_price: float
    burst_price: float
    best: Reserved
    all_reserved: Reserved
    all_burst: Reserved
    simulated: tuple[PoolPlan, ...] = ()

    @property
    def needed(self) -> tuple[int, ...]:
        """Engines of each hour, those in repair counted."""
        return tuple(each.provisioned for each in self.simulated or self.sizes)

    @property
    def broken_hours(self) -> tuple[int, ...]:
        """The hours in which no number of engines that was tried meets the objective in simulation."""
        return tuple(hour for hour, pool in enumerate(self.simulated) if pool.is_met(self.objective) is False)

    @property
    def ttft_p99_s(self) -> tuple[float, ...]:
        """TTFT of each hour's engines, 99th percentile, seconds; from the simulation, if there is one."""
        if not self.simulated:
            return tuple(each.ttft_p99_s for each in self.sizes)
        return tuple(
            math.nan if each.verified is None else each.verified.ttft_p99.value for each in self.simulated
        )

    @property
    def seen(self) -> tuple[Verification | None, ...]:
        """Each hour's simulation; None where there is none."""
        return tuple(each.verified for each in self.simulated) or (None,) * len(self.rates)

    @property
    def ways(self) -> tuple[tuple[str, Reserved], ...]:
        """The three by name."""
        return (
            ("cheapest", self.best),
            ("all reserved", self.all_reserved),
            ("all burst", self.all_burst),
        )


def rates_of(text: str) -> list[float]:
    """Return the 24 hourly rates of ``--diurnal``: PEAK:TROUGH, or a file with 24 numbers. Raises ConfigError."""
    peak, colon, trough = text.partition(":")
    if colon and not is_there(Path(text)):
        try:
            ends = [in_range("--diurnal", float(each), RATES) for each in (peak, trough)]
            return day_between(ends[0], ends[1])
        except ConfigError:
            raise
        except ValueError as error:  # InvalidConfig is one
            raise ConfigError(
                f"--diurnal: got {text!r}, expected PEAK:TROUGH in requests/s (peak >= trough > 0), or a file"
            ) from error
    try:
        written = whole_file(Path(text), most=MOST_OF_A_DAY).decode()
        rates = [
            float(each) for each in written.replace(",", " ").replace("[", " ").replace("]", " ").split()
        ]
    except OSError as error:
        raise ConfigError(
            f"--diurnal: got {text!r}, expected PEAK:TROUGH, or a file that can be read ({error.strerror})"
        ) from error
    except ValueError as error:
        raise ConfigError(f"--diurnal: got {text}, expected {HOURS} numbers ({error})") from error
    if len(rates) != HOURS:
        raise ConfigError(
            f"--diurnal: got {len(rates)} numbers in {text}, expected {HOURS} rates, of hour 0 to 23"
        )
    return [in_range(f"--diurnal: hour {hour} of {text}", rate, RATES) for hour, rate in enumerate(rates)]


def burst_price_of(text: str, reserved_price: float) -> float:
    """Return an engine's price per hour by ``--burst-price``: a price, or 1.8x the reserved one. Raises ConfigError."""
    try:
        price = float(text[:-1]) * reserved_price if text.endswith("x") else float(text)
    except ValueError:
        price = 0.0
    low, high = PRICES
    if not low <= price <= high:
        raise ConfigError(
            f"--burst-price: got {text!r}, expected a price per engine and hour, {low:g} to {high:,g}, or a factor as "
            "in 1.8x"
        )
    return price


def plan_day(
    source: ProfileSource, needs: Sequence[Need], *, burst_price: float, check: SizeCheck | None = None
) -> DayPlan:
    """Return the day's engines, by formula or with ``check`` simulated, and the cheapest number to reserve.

    ``needs``: of each hour, at one objective. Raises ConfigError, Infeasible.
    """
    price = source.profile.cost_per_hour
    if price <= 0:
        raise ConfigError(f"--profile {source.name}: got no price, expected --prices with the reserved one")
    sizes = tuple(need.size(source.profile) for need in needs)
    simulated = () if check is None else _simulated(source, needs, check)
    needed = [each.provisioned for each in simulated or sizes]
    prices = {"reserved_price": price, "burst_price": burst_price}
    return DayPlan(
        profile=source.name,
        gpus_per_engine=source.profile.num_gpus,
        rates=tuple(need.rate_per_s for need in needs),
        sizes=sizes,
        objective=needs[0].objective,
        reserved_price=price,
        burst_price=burst_price,
        best=cheapest_reserved(needed, **prices),
        all_reserved=cost_with(max(needed), needed, **prices),
        all_burst=cost_with(0, needed, **prices),
        simulated=simulated,
    )


def _simulated(source: ProfileSource, needs: Sequence[Need], check: SizeCheck) -> tuple[PoolPlan, ...]:
    """Return each hour's pool as simulation sizes it; hours of one rate are simulated once."""
    found = dict[float, PoolPlan]()
    for need in needs:
        rate = round(need.rate_per_s, 9)
        if rate not in found:
            found[rate] = plan_pool(source, need, check=check)
    return tuple(found[round(need.rate_per_s, 9)] for need in needs)
