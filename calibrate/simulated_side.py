"""The simulated side of a comparison: what the twin makes of an observed trace, or another trace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from calibrate.compare.engine_steps import step_errors
from calibrate.compare.network import client_view, server_view
from calibrate.compare.pair import LATENCIES, PHASES, Pairs, Side, pair_sides, side_of
from calibrate.compare.phases import simulated_phases
from calibrate.compare.rates import Counters
from calibrate.findings import Compared, NamedTrace, Options, Role
from calibrate.run_to_run.twin_runs import runs_again
from traces import saturation_of

if TYPE_CHECKING:
    from replay import TwinConfig
    from sim import Outcomes, Record, Requests, Simulation, Step
    from traces import Trace

MOST_STEPS = 300_000
"""A run of more steps is not taken step by step to be compared with a server's log."""


def against_trace(observed: NamedTrace, simulated: NamedTrace, options: Options) -> Compared:
    """Return a trace compared with another one of the same requests; nothing is simulated."""
    other = simulated.trace if options.network is None else client_view(simulated.trace, options.network)
    pairs = pair_sides(side_of(observed.trace), side_of(other), by=options.pair_by)
    return Compared(
        source=observed,
        role="compared",
        pairs=pairs,
        notes=trace_notes(observed.trace, pairs),
        saturation=saturation_of(observed.trace, seed=options.seed),
        counters=Counters(
            hit_frac=(_counted_hits(observed.trace), _counted_hits(other)),
            preemptions=(_counted(observed.trace, PREEMPTIONS), _counted(other, PREEMPTIONS)),
            num_requests=len(observed.trace),
        ),
        partner=simulated,
    )


def against_twin(source: NamedTrace, config: TwinConfig, options: Options, *, role: Role) -> Compared:
    """Return a trace compared with what the twin makes of it."""
    from replay import check_fits, judge_trace, paced_requests, pacing_of, simulate_trace
    from replay import trace_notes as simulation_notes

    check_fits(config, source.trace)
    met = source.trace if options.network is None else server_view(source.trace, options.network)
    cap = options.max_concurrency
    pacing = pacing_of(met, max_concurrency=cap)
    requests = paced_requests(
        met,
        pacing,
        block_size=config.engine.block_size,
        hash_lookahead=config.engine.num_hash_lookahead_tokens,
    )

    def simulate(twin: TwinConfig, requests: Requests, record: Record) -> tuple[Trace, Simulation]:
        simulated, simulation = simulate_trace(
            met, twin, record=record, max_concurrency=cap, requests=requests
        )
        if options.network is not None:
            simulated = client_view(simulated, options.network)
        return _with_queue_of(source.trace, simulated), simulation

    alike, simulation = simulate(config, requests, "tokens")
    steps = _steps(source, met, config=config, simulation=simulation, max_concurrency=cap)
    side = _timed(side_of(alike), simulation.outcomes, source.trace)
    again = runs_again(
        side.table[list(LATENCIES)].to_numpy(np.float64),
        config,
        requests,
        deviation=options.run_to_run.deviation,
        seed=options.seed,
        simulate=lambda twin, moved: simulate(twin, moved, "none")[0],
    )
    pairs = pair_sides(side_of(source.trace), replace(side, again=again), by=options.pair_by)
    return Compared(
        source=source,
        role=role,
        pairs=pairs,
        notes=(
            *source.remarks,
            *trace_notes(source.trace, pairs, max_concurrency=cap),
            *simulation_notes(source.trace, config, pacing_of(source.trace, max_concurrency=cap)),
        ),
        saturation=saturation_of(source.trace, seed=options.seed),
        counters=_counters(source.trace, simulation.outcomes, alike),
        judged=judge_trace(met, config, pacing, simulation.outcomes),
        steps=None if source.steps is None else step_errors(source.steps, config, simulated=steps or []),
    )


def _with_queue_of(observed: Trace, simulated: Trace) -> Trace:
    """Return ``simulated`` with the queue times that ``observed`` has: the engine's own only where the server told its.

    Otherwise the metric is scheduled - sent on both sides (``traces.metrics``).
    """
    if observed.column("server_queue_us").notna().any():
        return simulated
    return simulated.without_columns("server_queue_us")


def _steps(
    source: NamedTrace,
    met: Trace,
    *,
    config: TwinConfig,
    simulation: Simulation,
    max_concurrency: int | None,
) -> list[Step] | None:
    """Return every simulated step where the server's log of its own is compared with them."""
    from replay import simulate_trace

    if source.steps is None or simulation.num_steps > MOST_STEPS:
        return None
    return simulate_trace(met, config, record="steps", max_concurrency=max_concurrency)[1].steps()


def _timed(side: Side, outcomes: Outcomes, observed: Trace) -> Side:
    """Return the simulated side with its phases; where the server timed its queue, by the server's own clock."""
    is_told = bool(observed.column("server_queue_us").notna().any())
    phases = simulated_phases(outcomes, e2e_us=side.table["e2e_us"].to_numpy(), by_server_clock=is_told)
    return replace(side, table=side.table.assign(**{name: phases[name].to_numpy() for name in PHASES}))


PREEMPTIONS = "vllm:num_preemptions_total"
CACHE_HITS, CACHE_QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"


def _counters(observed: Trace, outcomes: Outcomes, simulated: Trace) -> Counters:
    """Return what the server's /metrics counted during the run, and the simulator over the same requests."""
    from traces import prompt_tokens

    scheduled = outcomes.scheduled_us >= 0
    prompts = float(prompt_tokens(simulated)[scheduled].sum())
    hits = float(outcomes.num_cached_tokens[scheduled].sum()) / prompts if prompts else None
    return Counters(
        hit_frac=(_counted_hits(observed), hits),
        preemptions=(_counted(observed, PREEMPTIONS), float(outcomes.num_preemptions.sum())),
        num_requests=len(observed),
    )


def _counted_hits(trace: Trace) -> float | None:
    hits, queries = _counted(trace, CACHE_HITS), _counted(trace, CACHE_QUERIES)
    return hits / queries if hits is not None and queries else None


def _counted(trace: Trace, name: str) -> float | None:
    """Return by how much a counter grew during the run, over all its labels (engines); None where not recorded."""
    grown = [
        reading.after - reading.before
        for key, reading in trace.header.metrics_delta.items()
        if key.partition("{")[0] == name
    ]
    return sum(grown) if grown else None


def trace_notes(trace: Trace, pairs: Pairs, *, max_concurrency: int | None = None) -> tuple[str, ...]:
    """Return what a reader must know about one trace's comparison."""
    from replay import pacing_of
    from traces import metric_notes

    lines = list(metric_notes(trace).lines())
    if pairs.observed_gaps.basis != "events":
        lines.append(
            "ITL statistics are of each request's mean, since no single gaps are recorded on both sides"
        )
    if pairs.num_token_mismatch:
        lines.append(
            f"{pairs.num_token_mismatch} pairs disagree on their token counts and are compared all the same"
        )
    if (paced := pacing_of(trace, max_concurrency=max_concurrency).note()) is not None:
        lines.append(paced)
    return tuple(lines)
