"""What is about to be simulated: the requests, the twin, and what is to be measured of the run."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from replay.cluster.over_time import LOOKS, POINTS
from replay.cluster.simulate import FleetRun, simulate_fleet
from replay.numbers.argument_ranges import CONCURRENCY, TIME_US
from replay.trace.measured_window import EVERYTHING, MeasuredPart
from replay.trace.pacing import Loop, Pacing, pacing_of
from replay.trace.request_columns import At
from replay.trace.trace_notes import trace_notes
from replay.twin.config_read import twin_of
from replay.twin.twin_config import check_fits
from traces import is_warmup
from traces.strict.arguments import check_fields

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from sim import Record
    from traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How to simulate and what to measure.

    ``at``, ``loop``, ``max_concurrency``: what decides when requests are sent (``replay.pacing_of``). ``itl``: keep
    every token's time. ``measured``: which requests statistics are of. ``slo_us``: latency limits by metric.
    ``horizon_us``: the run's end. ``decides``: keep a cluster's routing decisions; ``counterfactual``: simulate again
    with so many of them changed. ``fitness_weights``: of the run's score, by figure. ``operator_times``: also how long
    each operator took. ``checks_memory``: simulate other sizes of a KV cache whose size nobody told.
    """

    at: At = "auto"
    loop: Loop = "auto"
    max_concurrency: int | None = None
    itl: bool = False
    measured: MeasuredPart = EVERYTHING
    slo_us: Mapping[str, float] = field(default_factory=dict)
    horizon_us: int | None = None
    decides: bool = False
    counterfactual: int | None = None
    fitness_weights: Mapping[str, float] = field(default_factory=dict)
    operator_times: bool = False
    checks_memory: bool = True

    def __post_init__(self) -> None:
        """Check the numbers. Raises ConfigError."""
        check_fields(self, max_concurrency=CONCURRENCY, horizon_us=TIME_US)

    def of_further_run(self) -> RunSettings:
        """Return the same for a run of which the summary alone is wanted."""
        return replace(self, itl=False, decides=False, counterfactual=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is about to be simulated: the requests ``asked``, the twin, and what decides when they are sent."""

    asked: Trace
    twin: TwinConfig
    pacing: Pacing
    settings: RunSettings

    @property
    def has_gateway(self) -> bool:
        """Whether the gateway is part of the answer: for a cluster, and where rounds wait for answers."""
        return not self.twin.is_plain_server or self.pacing.has_rounds

    def notes(self) -> tuple[str, ...]:
        """Return what the trace gives that the simulation does not follow."""
        return trace_notes(self.asked, self.twin, self.pacing)

    @property
    def is_watched(self) -> bool:
        """Whether the first run is looked at; with several KV cache groups that takes several times as long."""
        return self.has_gateway or not self.twin.engine.kv_cache_groups

    def simulated(self, *, record: Record, is_watched: bool | None = None) -> FleetRun:
        """Simulate the requests, once; ``is_watched``: with looks on the way, unless steps are recorded."""
        how, is_seen = self.settings, record != "steps"
        is_watched = is_seen and (self.is_watched if is_watched is None else is_watched)
        return simulate_fleet(
            self.asked,
            self.twin.cluster,
            self.pacing,
            record=record,
            records_decisions=(how.decides or how.counterfactual is not None) and is_seen,
            points=(POINTS if self.has_gateway else LOOKS) if is_watched else None,
            until_us=how.horizon_us,
            keeps_logs=not (is_seen and self.has_gateway)
            or how.measured != EVERYTHING
            or bool(is_warmup(self.asked).any()),
            has_gateway=self.has_gateway,
        )


def plan(trace: Trace, twin: TwinConfig | str | Path, settings: RunSettings | None = None) -> Plan:
    """Return what will be simulated. Raises ConfigError where the twin cannot serve the trace."""
    how, twin = settings or RunSettings(), twin_of(twin)
    check_fits(twin, trace)
    pacing = pacing_of(trace, how.loop, at=how.at, max_concurrency=how.max_concurrency, simulates_rounds=True)
    return Plan(asked=trace, twin=twin, pacing=pacing, settings=how)
