"""One path from a trace and a twin to an answer: ``run`` simulates, for one server and for many, and ``Run`` tells.

The requests are simulated once. What else is asked of a run is worked out when it is first asked for, and kept:
the summary, the verdict, the pace band, what a cluster did, the run in stretches of time, single steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from replay.pace_band import PaceBand, pace_band
from replay.run_verdict import judge_run
from replay.trace.measured_window import EVERYTHING, Measured
from replay.trace.pacing import Loop, Pacing, paced_requests, pacing_of, waits_for_answers
from replay.trace.requests import At
from replay.trace.simulate import simulate_trace
from replay.trace.simulation_summary import Summary, offered_rate_per_s, summarize, table
from replay.trace.trace_notes import trace_notes
from replay.twin.config import as_cluster_of_one, check_fits
from replay.twin.fitted.fitted_range import note_of_runs, range_of_run
from sim import Status

if TYPE_CHECKING:
    import pandas as pd

    from replay.cluster.over_time import OverTime
    from replay.cluster.simulate import FleetRun
    from replay.cluster.summary import ClusterSummary
    from replay.timeline.trace_events import EngineSteps
    from replay.timeline.watch import Usage
    from replay.trace.operator_times import OperatorTimes
    from replay.twin.config import TwinConfig
    from replay.verdict.judged import Judged
    from sim import Record, Requests, Simulation
    from sim.cluster import ClusterConfig
    from traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How to simulate and what to measure.

    ``at``, ``loop``, ``max_concurrency``: what decides when requests are sent (``replay.pacing_of``). ``itl``: keep
    every token's time. ``measured``: which requests statistics are of. ``slo_us``: latency limits by metric.
    ``horizon_us``: the run's end. ``decides``: keep a cluster's routing decisions.
    """

    at: At = "auto"
    loop: Loop = "auto"
    max_concurrency: int | None = None
    itl: bool = False
    measured: Measured = EVERYTHING
    slo_us: Mapping[str, float] = field(default_factory=dict)
    horizon_us: int | None = None
    decides: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is about to be simulated: the requests ``asked``, the twin, and what decides when they are sent.

    ``is_one``: whether the twin is one server, which is simulated as a cluster of one where rounds wait for answers.
    """

    asked: Trace
    twin: TwinConfig
    pacing: Pacing
    settings: RunSettings
    is_one: bool

    def notes(self) -> tuple[str, ...]:
        """Return what the trace gives that the simulation does not follow."""
        return trace_notes(self.asked, self.twin, self.pacing)

    def run(self) -> Run:
        """Return the requests simulated, with their tokens' times where they are wanted."""
        how, twin = self.settings, self.twin
        record: Record = "tokens" if how.itl else "spans"
        requests: Requests | None = None
        fleet: FleetRun | None = None
        if twin.cluster is None:
            requests = paced_requests(self.asked, self.pacing, block_size=twin.engine.hash_block_size)
            simulated, simulation = self.on_one_server(record=record, requests=requests)
        else:
            fleet = self.on_cluster(twin.cluster, record=record)
            simulated, simulation = fleet.trace, fleet.simulation
        return Run(
            plan=self,
            trace=_with_gaps(simulated) if how.itl else simulated,
            simulation=simulation,
            fleet=fleet,
            requests=requests,
        )

    def on_one_server(self, *, record: Record, requests: Requests | None) -> tuple[Trace, Simulation]:
        """Return the requests simulated by one server; ``requests``: as paced, where they are at hand."""
        how = self.settings
        return simulate_trace(
            self.asked,
            self.twin,
            at=how.at,
            closed_loop=how.loop,
            record=record,
            max_concurrency=how.max_concurrency,
            horizon_us=how.horizon_us,
            requests=requests,
        )

    def on_cluster(self, cluster: ClusterConfig, *, record: Record) -> FleetRun:
        """Return the requests simulated by a cluster."""
        from replay.cluster.over_time import POINTS
        from replay.cluster.simulate import simulate_fleet
        from traces import is_warmup

        how = self.settings
        if record == "steps":
            return simulate_fleet(self.asked, cluster, self.pacing, record=record, until_us=how.horizon_us)
        return simulate_fleet(
            self.asked,
            cluster,
            self.pacing,
            record=record,
            records_decisions=how.decides,
            points=POINTS,
            until_us=how.horizon_us,
            keeps_logs=how.measured != EVERYTHING or bool(is_warmup(self.asked).any()),
        )


def plan(trace: Trace, twin: TwinConfig, settings: RunSettings | None = None) -> Plan:
    """Return what will be simulated. Raises ConfigError where the twin cannot serve the trace."""
    how = settings or RunSettings()
    check_fits(twin, trace)
    is_one = twin.cluster is None
    if is_one and waits_for_answers(trace, how.loop, max_concurrency=how.max_concurrency):
        twin = as_cluster_of_one(twin)
    pacing = pacing_of(
        trace,
        how.loop,
        at=how.at,
        max_concurrency=how.max_concurrency,
        simulates_rounds=twin.cluster is not None,
    )
    return Plan(asked=trace, twin=twin, pacing=pacing, settings=how, is_one=is_one)


def run(trace: Trace, twin: TwinConfig, settings: RunSettings | None = None) -> Run:
    """Return the trace simulated by the twin, one server or a cluster.

    Raises TraceError where a row lacks a time or a length, ConfigError where the twin cannot serve the trace.
    """
    return plan(trace, twin, settings).run()


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A simulated run: what was planned, what came of it, and what else can be told of it.

    ``trace``: the requests with the simulator's outcomes. ``fleet``: what else is known of a cluster, None of one
    server; ``requests``: of one server, as paced.
    """

    plan: Plan
    trace: Trace
    simulation: Simulation
    fleet: FleetRun | None
    requests: Requests | None

    @property
    def twin(self) -> TwinConfig:
        """The twin that was simulated."""
        return self.plan.twin

    @property
    def cluster(self) -> ClusterConfig | None:
        """The cluster; None of one server."""
        return self.twin.cluster

    @cached_property
    def summary(self) -> Summary:
        """The document that ``--json`` prints: throughput, latencies, counts, and the verdict."""
        found = summarize(
            self.simulation,
            self.trace,
            engine=self.twin.engine,
            slo_us=self.plan.settings.slo_us,
            measured=self.plan.settings.measured,
        )
        if self._is_paced_by_answers:
            return found
        found["offered_rate_per_s"] = (
            None if self.plan.pacing.is_by_answers else offered_rate_per_s(self.trace)
        )
        if (judged := self.judged) is not None:
            found["verdict"], found["load"] = judged.verdict, judged.facts
        return found

    @cached_property
    def judged(self) -> Judged | None:
        """The verdict; None of a run that a horizon cut, and of one whose pace the answers set."""
        outcomes = self.simulation.outcomes
        if self._is_paced_by_answers or bool((outcomes.status == Status.UNFINISHED).any()):
            return None
        return judge_run(outcomes, self.twin, self.plan.pacing, requests=self.requests, fleet=self.fleet)

    @property
    def _is_paced_by_answers(self) -> bool:
        return self.plan.pacing.is_by_answers and self.plan.pacing.users != 0

    @cached_property
    def outside(self) -> str | None:
        """How far the run goes beyond what the twin was fitted to; None where it does not, or nobody knows."""
        if self.twin.fitted is None:
            return None
        is_cluster = self.twin.cluster is not None
        return note_of_runs(self.twin.fitted, [range_of_run(self.trace)], is_cluster=is_cluster)

    @cached_property
    def band(self) -> PaceBand | None:
        """What the run comes to at the paces that the fit leaves open: two runs more; None where the twin says none."""
        plain = replace(self.plan.settings, itl=False, decides=False)

        def simulate(twin: TwinConfig) -> Summary:
            done = replace(self.plan, twin=twin, settings=plain).run()
            return summarize(done.simulation, done.trace, slo_us=plain.slo_us, measured=plain.measured)

        return pace_band(self.twin, is_beyond=self.outside is not None, simulate=simulate)

    @cached_property
    def of_cluster(self) -> ClusterSummary | None:
        """What a cluster adds to the document; None of one server."""
        if self.fleet is None or self.cluster is None or self.plan.is_one:
            return None
        from replay.cluster.summary import summarize_cluster

        return summarize_cluster(self.fleet, self.cluster, measured=self.plan.settings.measured)

    @cached_property
    def over_time(self) -> OverTime | None:
        """The run in stretches; one server is simulated once more for it. None of a run that took no time."""
        if self.fleet is None or self.cluster is None:
            from replay.timeline.one_server import server_over_time

            return server_over_time(self.plan.asked, self.twin, self.plan.pacing, self.simulation)
        from replay.cluster.over_time import stretches, summarize_over_time

        found = stretches(self.fleet, self.twin.peaks)
        return None if found is None else summarize_over_time(found, self.fleet, self.cluster)

    @cached_property
    def usage(self) -> Usage:
        """Seats, queue and KV cache in use over time; one server is simulated once more for it."""
        if self.fleet is None or self.cluster is None:
            from replay.timeline.watch import watched

            plan = self.plan
            return watched(plan.asked, plan.twin, plan.pacing, duration_us=self.simulation.duration_us)
        from replay.timeline.watch_fleet import watched_fleet

        return watched_fleet(self.fleet, self.cluster)

    @cached_property
    def stepped(self) -> Simulation:
        """The same simulation of one server with its steps recorded, one at a time: the engine is deterministic."""
        return self.plan.on_one_server(record="steps", requests=self.requests)[1]

    @cached_property
    def operator_times(self) -> OperatorTimes:
        """How much of one server's step time each operator took."""
        from replay.trace.operator_times import times_of

        return times_of(self.stepped, self.twin)

    def engine_steps(self) -> list[EngineSteps]:
        """Return every step of every engine, taken one at a time."""
        from replay.timeline.trace_events import EngineSteps

        if self.cluster is None:
            num_blocks = self.twin.engine.num_gpu_blocks
            return [EngineSteps(name="engine", steps=self.stepped.steps(), num_blocks=num_blocks)]
        pools = self.cluster.pools
        return [
            EngineSteps(
                name=each.name,
                steps=each.written.steps(),
                num_blocks=pools[each.pool].engine.num_gpu_blocks,
            )
            for each in self.plan.on_cluster(self.cluster, record="steps").result.instances
        ]

    def latencies(self) -> pd.DataFrame:
        """Return TTFT, TPOT, ITL, E2E and the queue's time of each request, µs, NaN where it has none."""
        from traces import request_metrics

        return request_metrics(self.trace)

    def __str__(self) -> str:
        """Return the table that the terminal shows."""
        return table(self.summary, unanswered=self.twin.unanswered_keys)

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def _with_gaps(simulated: Trace) -> Trace:
    """Return the trace with the columns that a simulation without token times brings itself."""
    from traces import request_latencies

    gaps = request_latencies(simulated)
    return simulated.with_columns(**{name: np.round(gaps[name], 3) for name in ("itl_mean_us", "itl_p99_us")})
