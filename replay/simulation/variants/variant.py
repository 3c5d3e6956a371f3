"""One simulation of several, and its result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from replay.cluster.fitness import Fitness
from replay.cluster.infrastructure import InfrastructureSummary, summarize_infrastructure
from replay.cluster.lives import most_at_once
from replay.simulation.run_plan import RunSettings
from replay.simulation.simulated_run import Run, run
from replay.timeline.watch_engine import Usage
from replay.trace.simulation_summary import SimulationSummary

if TYPE_CHECKING:
    from replay.model.prices import ServerPrices
    from replay.simulation.pace_band import PaceBand
    from replay.twin.twin_config import TwinConfig
    from traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One simulation of several: what was changed (all of it, and what differs among the variants), twin, requests."""

    settings: Mapping[str, str]
    varied: Mapping[str, str]
    twin: TwinConfig
    trace: Trace

    @property
    def name(self) -> str:
        """Return a name that no other variant has, fit for a file: ``max_num_seqs-32``."""
        parts = (f"{key}-{value}" for key, value in self.varied.items())
        return re.sub(r"[^\w.+-]+", "-", "_".join(parts)).strip("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """A variant's result: its summary, what was in use, and the simulated trace.

    ``band``: the same at the slowest and fastest pace of the twin's fit, None without a pace. ``prices``: what a server
    costs, if prices were given.
    """

    variant: Variant
    summary: SimulationSummary
    usage: Usage
    simulated: Trace
    score: Fitness | None = None
    infrastructure: InfrastructureSummary | None = None
    instances_most: int = 0
    band: PaceBand | None = None
    prices: ServerPrices | None = None

    @property
    def is_about_cost(self) -> bool:
        """Whether what the instances cost, or how many there are, is part of the answer."""
        cluster = self.variant.twin.cluster
        if self.infrastructure is None:
            return False
        varies = cluster.failures is not None or any(pool.autoscaler is not None for pool in cluster.pools)
        return varies or bool(cluster.node_pools) or self.infrastructure["cost"] is not None


def simulate_variant(
    variant: Variant, settings: RunSettings, *, prices: ServerPrices | None = None
) -> VariantResult:
    """Simulate a variant. Raises ConfigError if that is not possible."""
    return result_of(run(variant.trace, variant.twin, settings), variant, prices=prices)


def result_of(done: Run, variant: Variant, *, prices: ServerPrices | None = None) -> VariantResult:
    """Return the result of a variant that was simulated."""
    result = VariantResult(
        variant=variant,
        summary=done.summary,
        usage=done.usage,
        simulated=done.trace,
        score=done.score,
        band=done.band,
        prices=prices,
    )
    if variant.twin.is_plain_server:
        return result
    return replace(
        result,
        infrastructure=summarize_infrastructure(done.fleet, done.cluster),
        instances_most=most_at_once(done.fleet.result.infrastructure.lives),
    )
