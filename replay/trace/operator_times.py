"""How much of a run's step time each operator took: roofline, physics and profiled know of operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from replay.twin.config_write import name_of
from sim.latency import operator_times
from traces import ConfigError
from traces.facts import AlignedRows

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from sim import Simulation


class OperatorTime(TypedDict):
    """One operator's time in all steps, and its share of the time of all steps."""

    us: float
    frac: float | None


class OperatorTimes(TypedDict):
    """All steps' time, µs, and by operator, the longest first.

    ``rest_us``: rounding, scatter, and what settings of the engine add: blocks that come back, grammars, adapters,
    encoders, drafts.
    """

    step_time_us: int
    by_operator: dict[str, OperatorTime]
    rest_us: float


def check_has_operators(twin: TwinConfig) -> None:
    """Raise ConfigError for a latency model that knows of no operators."""
    from sim.latency import Physics, Profiled, Roofline

    if not isinstance(twin.latency, Physics | Profiled | Roofline):
        raise ConfigError(
            f"--operator-times: got latency model {name_of(twin.latency)}, expected roofline, physics or profiled: its "
            "coefficients belong to no operator"
        )


def times_of(simulation: Simulation, twin: TwinConfig) -> OperatorTimes:
    """Return what each operator took; ``simulation`` recorded its steps."""
    batch, durations = simulation.step_batches()
    total = int(durations.sum())
    sums = {name: float(part.sum()) for name, part in (operator_times(twin.latency, batch) or {}).items()}
    return OperatorTimes(
        step_time_us=total,
        by_operator={
            name: OperatorTime(us=round(us, 3), frac=us / total if total else None)
            for name, us in sorted(sums.items(), key=lambda item: -item[1])
            if us
        },
        rest_us=round(total - sum(sums.values()), 3),
    )


def operator_grid(times: OperatorTimes) -> AlignedRows:
    """Return a table: operator, seconds, share."""
    total = times["step_time_us"]
    took = {name: each["us"] for name, each in times["by_operator"].items()} | {"rest": times["rest_us"]}
    rows = [(name, f"{us / 1e6:z,.3f}", f"{us / total:z.1%}" if total else "-") for name, us in took.items()]
    return AlignedRows([("operator", "seconds", "of steps"), *rows], (-20, 12, 12))
