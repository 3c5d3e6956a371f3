"""One path from a trace and a twin to an answer: ``run`` simulates, for one server or many, and returns a ``Run``.

The requests are simulated once. Everything else is computed on first use and kept: the summary, the verdict, the pace
band, a cluster's part, the run in stretches of time, single steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from replay.cluster.infrastructure import summarize_infrastructure
from replay.cluster.lives import downs_of
from replay.cluster.over_time import stretches, summarize_over_time
from replay.cluster.simulate import FleetRun
from replay.cluster.waiting_causes import IN_WORDS
from replay.sessions.prefix_hashes import sessions_grow
from replay.sessions.reuse import KVReuse, kv_reuse
from replay.sessions.session_summary import add_cost, cache_needs
from replay.simulation.pace_band import PaceBand, band_parts, pace_band
from replay.simulation.run_plan import Plan, RunSettings, plan
from replay.simulation.run_verdict import LostRequests, judge_run
from replay.trace.simulation_summary import SimulationSummary, offered_rate_per_s, summarize
from replay.trace.summary_text import failures_note, summary_parts
from replay.twin.fitted.fitted_range import note_of_runs, range_of_run
from replay.twin.twin_config import check_fits
from replay.verdict.kv_doubt import KvDoubt, kv_doubt
from sim import Status
from sim.cluster import Exit
from traces import has_tree, meets_slo, shown_time
from traces.facts import AnswerPart, NotebookAnswer, TermRows, terminal_lines
from traces.strict.arguments import TRACE, TWIN, takes

if TYPE_CHECKING:
    import pandas as pd

    from replay.cluster.counterfactual import Counterfactual
    from replay.cluster.fitness import Fitness
    from replay.cluster.over_time import OverTime
    from replay.cluster.summary import ClusterSummary
    from replay.timeline.trace_events import EngineTrack
    from replay.timeline.watch_engine import Usage
    from replay.trace.operator_times import OperatorTimes
    from replay.twin.twin_config import TwinConfig
    from replay.verdict.judged import Judged
    from sim import Simulation
    from sim.cluster import ClusterConfig
    from traces import Trace


NOTED_WAIT = 0.2
"""The share of a request's time from which on its wait is told."""
MOST_LOOKED_AT = 200_000
"""A run of more requests is not simulated once more to see what they wait for."""


@takes(trace=TRACE, twin=TWIN)
def run(trace: Trace, twin: TwinConfig | str | Path, settings: RunSettings | None = None) -> Run:
    """Return the trace simulated by the twin, one server or a cluster; ``twin``: read, or the path of TWIN.yaml.

    Raises TraceError where a row lacks a time or a length, ConfigError where the twin cannot serve the trace.
    """
    return carry_out(plan(trace, twin, settings))


def carry_out(planned: Plan) -> Run:
    """Return a plan's requests simulated, with their tokens' times where they are wanted."""
    keeps_gaps = planned.settings.itl
    fleet = planned.simulated(record="tokens" if keeps_gaps else "spans")
    return Run(plan=planned, trace=_with_gaps(fleet.trace) if keeps_gaps else fleet.trace, fleet=fleet)


def _times_of(summary: SimulationSummary) -> dict[str, float]:
    """Return the times that may hang on the KV cache's size, by name, µs."""
    of = {"TTFT": summary["ttft_us"], "E2E": summary["e2e_us"]}
    return {
        f"{name} {statistic}": value
        for name, times in of.items()
        for statistic, value in (("mean", times["mean"]), ("p99", times["p99"]))
        if value is not None
    }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Run(NotebookAnswer):
    """A simulated run: its plan, its results, and what can be derived from them.

    ``trace``: the requests with the simulator's outcomes. ``fleet``: what is known of the servers, one or many.
    """

    drawn_by: ClassVar[str] = "replay.drawn_answers:of_run"

    plan: Plan
    trace: Trace
    fleet: FleetRun

    def __repr__(self) -> str:
        """Return the run in a line: requests, servers, TTFT and TPOT, and the verdict."""
        number = len(self.fleet.result.instances)
        servers = "1 server" if number == 1 else f"{number} servers"
        told = [f"{len(self.trace):,} requests on {servers}"]
        for name, p99 in (("TTFT", self.summary["ttft_us"]["p99"]), ("TPOT", self.summary["tpot_us"]["p99"])):
            told += [] if p99 is None else [f"{name} p99 {shown_time(p99)}"]
        told += [] if self.judged is None else [self.judged.verdict]
        return f"<Run: {', '.join(told)}>"

    @property
    def simulation(self) -> Simulation:
        """The run as one simulation, all servers together."""
        return self.fleet.simulation

    @property
    def twin(self) -> TwinConfig:
        """The twin that was simulated."""
        return self.plan.twin

    @property
    def cluster(self) -> ClusterConfig:
        """All servers, and the gateway in front of them."""
        return self.twin.cluster

    @cached_property
    def summary(self) -> SimulationSummary:
        """The part of the document that is of all requests: throughput, latencies, counts, and the verdict."""
        found = summarize(
            self.simulation,
            self.trace,
            engine=self.twin.engine,
            slo_us=self.plan.settings.slo_us,
            measured=self.plan.settings.measured,
            tier=self.twin.tier,
            kv_block_bytes=self.twin.kv_block_bytes,
        )
        if self.plan.settings.operator_times:
            found["operator_times"] = self.operator_times
        if (sessions := found["groups"]["sessions"]) is not None:
            bill = summarize_infrastructure(self.fleet, self.twin.cluster)
            add_cost(sessions, gpu_hours=bill["gpu_hours"], cost=bill["cost"])
        if self.kv_reuse is not None:
            found["kv_needed"] = cache_needs(self.kv_reuse, self.twin.engine)
        if self._is_paced_by_answers:
            return found
        found["offered_rate_per_s"] = (
            None if self.plan.pacing.is_by_answers else offered_rate_per_s(self.trace)
        )
        if (judged := self.judged) is not None:
            found["verdict"], found["load"] = judged.verdict, judged.facts
            found["verdict_stretches"] = list(judged.stretches)
        return found

    @cached_property
    def kv_reuse(self) -> KVReuse | None:
        """The hits of KV caches of every size on sessions' prompts; None if the trace does not say what they share."""
        asked = self.plan.asked  # whose sessions are the run's, and are looked for once
        is_tree = has_tree(asked.table) and "num_parent_hashes" in asked.table
        if not (is_tree or sessions_grow(asked)):
            return None
        scheduled = self.simulation.outcomes.scheduled_us
        order = np.argsort(scheduled, kind="stable")
        served = order[scheduled[order] >= 0]
        return kv_reuse(self.fleet.work.requests, served, block_size=self.twin.engine.hash_block_size)

    @cached_property
    def judged(self) -> Judged | None:
        """The verdict; None of a run that a horizon cut, and of one whose pace the answers set."""
        outcomes = self.simulation.outcomes
        if self._is_paced_by_answers or bool((outcomes.status == Status.UNFINISHED).any()):
            return None
        result = self.fleet.result
        handed = None if result.split is None else result.split.transfer_end_us
        lives = result.infrastructure.lives
        downs = downs_of(lives, self.cluster.instance_names, result.duration_us)
        return judge_run(
            outcomes,
            self.twin,
            self.plan.pacing,
            work=self.fleet.work,
            refused=result.exit == Exit.REFUSED,
            lost=LostRequests(left_us=result.left_us, handed_us=handed, downs=downs),
            limit_us=self.plan.settings.slo_us.get("ttft"),
            cancelled=self.trace.cells("cancel_time_us"),
        )

    @property
    def _is_paced_by_answers(self) -> bool:
        return self.plan.pacing.is_by_answers and self.plan.pacing.users != 0

    @cached_property
    def outside(self) -> str | None:
        """How far the run goes beyond what the twin was fitted to; None where it does not, or it is unknown."""
        if self.twin.fitted is None:
            return None
        is_cluster = not self.twin.is_plain_server
        seen = range_of_run(self.trace).within(self.twin.most_seats)
        return note_of_runs(self.twin.fitted, [seen], is_cluster=is_cluster)

    @cached_property
    def band(self) -> PaceBand | None:
        """The run's figures at the slowest and fastest pace of the fit: two further runs; None without a pace."""
        plain = self.plan.settings.of_further_run()
        is_beyond = self.outside is not None or self.twin.outside_server is not None

        def simulate(twin: TwinConfig) -> SimulationSummary:
            done = carry_out(replace(self.plan, twin=twin, settings=plain))
            return summarize(done.simulation, done.trace, slo_us=plain.slo_us, measured=plain.measured)

        return pace_band(self.twin, self.summary, is_beyond=is_beyond, simulate=simulate)

    @cached_property
    def kv_doubt(self) -> KvDoubt | None:
        """How far the run hangs on a KV cache whose size nobody told: at most two further runs; else None.

        None also of a long run, and of one in which nothing was answered.
        """
        plain = self.plan.settings.of_further_run()
        own = _times_of(self.summary)
        if len(self.trace) > MOST_LOOKED_AT or not own:
            return None

        def measure(twin: TwinConfig) -> dict[str, float]:
            check_fits(twin, self.plan.asked)
            done = carry_out(replace(self.plan, twin=twin, settings=plain))
            return _times_of(
                summarize(done.simulation, done.trace, slo_us=plain.slo_us, measured=plain.measured)
            )

        return kv_doubt(self.twin, own, measure)

    @cached_property
    def of_cluster(self) -> ClusterSummary | None:
        """What a cluster adds to the document; None without a cluster."""
        if self.twin.is_plain_server:
            return None
        from replay.cluster.late_scaling import late_scaling
        from replay.cluster.summary import summarize_cluster
        from replay.timeline.watch_fleet import waited_us

        found = summarize_cluster(
            self.fleet,
            self.cluster,
            measured=self.plan.settings.measured,
            kv_block_bytes=self.twin.kv_block_bytes,
            waited_us=waited_us(self.fleet, self.cluster),
        )
        if self.judged is not None:
            slo_us = self.plan.settings.slo_us
            missed = ~meets_slo(self.latencies(), slo_us) if slo_us else None
            found["pathologies"] += late_scaling(
                self.judged.stretches, self.fleet, self.cluster, missed=missed
            )
        return found

    @cached_property
    def over_time(self) -> OverTime | None:
        """The run in stretches; None where it took no time."""
        if self.simulation.duration_us == 0:
            return None
        found = stretches(self.watched, self.twin.peaks)
        return None if found is None else summarize_over_time(found, self.watched, self.cluster)

    @cached_property
    def usage(self) -> Usage:
        """Seats, queue and KV cache in use over time."""
        from replay.timeline.watch_fleet import watched_fleet, watched_server

        watched = watched_fleet if self.plan.has_gateway else watched_server
        return watched(self.watched, self.cluster)

    @cached_property
    def watched(self) -> FleetRun:
        """The run with its looks: the same, or once more with them where it is several times as fast without."""
        return self.fleet if self.plan.is_watched else self.plan.simulated(record="spans", is_watched=True)

    @property
    def waiting(self) -> str | None:
        """The line that says how long requests wait, and for what; None where it is a small part of their time."""
        queue, whole = self.summary["queue_us"]["mean"], self.summary["e2e_us"]["mean"]
        if queue is None or whole is None:
            return None
        queue += self._mean_kv_wait_us
        if queue < NOTED_WAIT * whole:
            return None
        told = f"requests wait {shown_time(queue)} on average until they are served, of {shown_time(whole)} in all"
        cause = self.usage.waits_for if len(self.trace) <= MOST_LOOKED_AT else None
        return told if cause in (None, "none") else f"{told}: for {IN_WORDS.get(cause, cause)}"

    @property
    def _mean_kv_wait_us(self) -> float:
        """How long answered requests waited for KV to move, from the end of its computing on, on average, µs."""
        split = self.fleet.result.split
        if split is None:
            return 0.0
        is_ok = self.simulation.outcomes.status == Status.OK
        waits_us = np.where(split.transfer_end_us >= 0, split.transfer_end_us - split.prefilled_us, 0)[is_ok]
        return float(waits_us.mean()) if len(waits_us) else 0.0

    @cached_property
    def stepped(self) -> FleetRun:
        """The same simulation with its steps recorded, one at a time: the engines are deterministic."""
        return self.plan.simulated(record="steps")

    @cached_property
    def operator_times(self) -> OperatorTimes:
        """How much of the steps' time each operator took, on all servers and on each."""
        from replay.trace.operator_times import times_of

        return times_of(self.stepped.result.instances, self.twin)

    def step_lines(self, *, with_operators: bool = False) -> Iterator[str]:
        """Yield every step as a line of JSON, of a cluster with its instance; ``with_operators``: what each took."""
        from replay.trace.operator_times import operators_of_steps
        from replay.trace.step_lines import step_line

        for each in self.stepped.result.instances:
            named = {} if self.twin.is_plain_server else {"instance": each.name}
            steps = each.written.steps()
            took: list[dict[str, float]] | None = None
            if with_operators:
                took = operators_of_steps(steps, self.cluster.pools[each.pool].latency)
            for i, step in enumerate(steps):
                yield step_line(step, {**named, **({} if took is None else {"operators": took[i]})})

    def engine_steps(self) -> list[EngineTrack]:
        """Return every step of every engine, taken one at a time."""
        from replay.timeline.trace_events import EngineTrack

        return [
            EngineTrack(
                name="engine" if self.twin.is_plain_server else each.name,
                steps=each.written.steps(),
                num_blocks=self.cluster.pools[each.pool].engine.num_gpu_blocks,
            )
            for each in self.stepped.result.instances
        ]

    def latencies(self) -> pd.DataFrame:
        """Return TTFT, TPOT, ITL, E2E and the queue's time of each request, µs, NaN where it has none."""
        from traces import request_metrics

        return request_metrics(self.trace)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """How far the run goes beyond the fit, how near to saturation it is, what requests wait for, and what fails."""
        header, p50 = self.trace.header, self.summary["ttft_us"]["p50"]
        is_recorded = header.source is not None or header.mode == "real"
        judged = None if self.judged is None else self.judged.text(p50, is_recorded=is_recorded)
        found = (self.outside, judged, self.waiting, failures_note(self.summary["num_by_status"]))
        return tuple(note for note in found if note is not None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything to know before the figures are used: of the twin, of the trace, and the run's own notes."""
        return (*self.twin.notes, *self.plan.notes(), *self.notes)

    @cached_property
    def score(self) -> Fitness | None:
        """The run's score by the weights that were asked for; None without any."""
        from replay.cluster.fitness import fitness

        weights = self.plan.settings.fitness_weights
        return fitness(self.summary, weights) if weights else None

    @cached_property
    def counterfactuals(self) -> list[Counterfactual] | None:
        """What each of the changed routing decisions was worth, a further run each; None where nobody asked."""
        if (number := self.plan.settings.counterfactual) is None:
            return None
        from replay.cluster.counterfactual import counterfactuals

        return counterfactuals(self.fleet, self.cluster, num=number, seed=self.twin.seed)

    def document(self) -> dict[str, object]:
        """Return what ``vtwin run --json`` prints, after up to four further runs for what the first left open."""
        from replay.twin.config_write import name_of

        doubt = self.kv_doubt if self.plan.settings.checks_memory else None
        latency = {"model": name_of(self.twin.latency), "reason": self.twin.latency_reason or None}
        return {
            **self.summary,
            **self._document_of_cluster(),
            **({} if doubt is None else {"kv_doubt": doubt.document()}),
            "over_time": self.over_time,
            **({} if self.score is None else {"fitness": self.score}),
            **({} if self.band is None else {"pace_band": self.band}),
            "latency": latency,
            "unanswered": self.twin.unanswered_document,
            "warnings": list(self.warnings),
        }

    def _document_of_cluster(self) -> Mapping[str, object]:
        """Return what a cluster adds to the document; nothing for one server."""
        if self.of_cluster is None:
            return {}
        from replay.cluster.decisions import summarize_regret

        decisions, changed = self.fleet.result.decisions, self.counterfactuals
        return {
            **self.of_cluster,
            **({} if decisions is None else {"regret": summarize_regret(decisions, self.cluster)}),
            **({} if changed is None else {"counterfactuals": changed}),
        }

    @property
    def parts(self) -> list[AnswerPart]:
        """The terminal's text about the requests as a whole."""
        return summary_parts(self.summary, unanswered=self.twin.unanswered_keys)

    @property
    def answer_parts(self) -> list[AnswerPart]:
        """The terminal's text: the requests, the pace band, the score, and a cluster's part."""
        parts = [*self.parts, *band_parts(self.band)]
        if self.score is not None:
            from replay.cluster.fitness import fitness_row

            parts.append(TermRows([fitness_row(self.score)]))
        if self.of_cluster is None:
            return parts
        from replay.cluster.counterfactual import counterfactual_parts
        from replay.cluster.summary import cluster_parts

        return [*parts, *cluster_parts(self.of_cluster), *counterfactual_parts(self.counterfactuals or [])]

    def __str__(self) -> str:
        """Return the table that the terminal shows."""
        return "\n".join(terminal_lines(self.parts, width=None))


def _with_gaps(simulated: Trace) -> Trace:
    """Return the trace with the columns that a simulation without token times brings itself."""
    from traces import request_latencies

    gaps = request_latencies(simulated)
    return simulated.with_columns(**{name: np.round(gaps[name], 3) for name in ("itl_mean_us", "itl_p99_us")})
