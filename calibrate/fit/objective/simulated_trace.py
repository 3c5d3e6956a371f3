"""One trace simulated: the latencies that the objective compares with the observed ones."""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.objective.exposure import Timeline
from calibrate.fit.objective.fit_trace import FitTrace, in_order
from sim import EngineConfig, LatencyModel, Outcomes, Simulator, Status
from traces import latencies_us
from traces.statistics.bootstrap import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTrace:
    """The simulation of one trace: latencies [4, n], NaN where unfinished, and the timeline."""

    latency_us: Floats
    timeline: Timeline


def simulated(trace: FitTrace, *, engine: EngineConfig, model: LatencyModel) -> SimulatedTrace:
    """Return one trace simulated."""
    outcomes = _outcomes(trace, engine, model)
    done = outcomes.status == Status.OK

    def time(values: NDArray[np.int64]) -> Floats:
        return np.where(done, values, np.nan)

    first, last, joined = (
        time(outcomes.first_token_us),
        time(outcomes.last_token_us),
        time(outcomes.queued_us),
    )
    tokens = outcomes.num_output_tokens.astype(np.float64)
    timeline = Timeline(
        joined=joined,
        prefill=time(outcomes.scheduled_us),
        first=first,
        last=last,
        prefill_tokens=trace.requests.prompt_tokens - time(outcomes.num_cached_tokens),
        output_tokens=tokens,
    )
    done = in_order(
        last, trace.done_rows, start_us=float(outcomes.arrival_us[outcomes.arrival_us >= 0].min())
    )
    latencies = latencies_us(time(outcomes.arrival_us), first, last, output_tokens=tokens)
    return SimulatedTrace(latency_us=np.stack([*latencies, done]), timeline=timeline)


def _outcomes(trace: FitTrace, engine: EngineConfig, model: LatencyModel) -> Outcomes:
    """Return one trace's outcomes, from a free simulator; threads that find none make one more."""
    free = trace.simulators.setdefault(engine, [])
    try:
        simulator = free.pop()
    except IndexError:
        simulator = Simulator(
            trace.requests, engine, closed_loop=trace.closed_loop, max_concurrency=trace.max_concurrency
        )
    outcomes = simulator.outcomes(model)
    free.append(simulator)
    return outcomes
