"""The engine's own log of its steps, and the latency model's times of the same steps."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from traces.statistics.bootstrap import Floats, finite

if TYPE_CHECKING:
    from replay import TwinConfig
    from sim import Step
    from traces import Trace

ACCOUNTED = 0.85
"""Share of the time with requests in flight that logged durations must add up to, else they are not step times. A GPU
server's add up to 0.4 to 0.6 (docs/validation.md); a log that times whole steps, to nearly all."""

NEAREST = 5
"""How many simulated steps are averaged for one step of a model with more terms than blackbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSteps:
    """Logged steps: tokens prefilled, sequences that decoded, and how long each took (µs, 0: not known); one a step.

    ``is_by_end``: the durations are from the ends of steps, not the engine's logged elapsed times.
    """

    prefill_tokens: Floats
    decode_tokens: Floats
    duration_us: Floats
    is_by_end: bool = False

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.duration_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepErrors:
    """Logged and predicted durations (µs) of the same steps; ``mape`` and ``bias`` of single steps.

    ``time_error``: all the predicted time over all the logged time, minus 1.
    """

    steps: EngineSteps
    predicted_us: Floats
    mape: float | None
    bias: float | None
    pearson_r: float | None
    time_error: float | None


def read_steps(path: Path) -> EngineSteps | None:
    """Return the steps that ``observe --engine-log`` left in STEM.steps.csv, None where there is no such file.

    If the log has the end of each step, a step's duration is the time since the one before. Its duration is 0
    where the engine may have waited for work: the first step, and one in which nothing decodes. Otherwise the duration
    is the logged one, which ``as_step_times`` checks. Raises TraceError for a file that is not one.
    """
    from traces.steps import read_logged_steps

    if not path.exists():
        return None
    logged = read_logged_steps(path)
    prefill, decode, duration = logged.prefill_tokens, logged.decode_tokens, logged.duration_us
    if not logged.has_ends:
        return EngineSteps(prefill_tokens=prefill, decode_tokens=decode, duration_us=duration)
    since = _since_last(logged.end_us, logged.engine)
    between = np.where(decode > 0, since, 0.0)
    return EngineSteps(prefill_tokens=prefill, decode_tokens=decode, duration_us=between, is_by_end=True)


def _since_last(ends: Floats, engines: Floats) -> Floats:
    """Return how long after the step before of its engine each ended; 0 of an engine's first."""
    since = np.zeros(len(ends))
    for engine in np.unique(engines):
        rows = np.flatnonzero(engines == engine)
        since[rows[1:]] = np.diff(ends[rows])
    return since


def as_step_times(steps: EngineSteps, trace: Trace) -> tuple[EngineSteps | None, str | None]:
    """Return the steps if their durations can be step times, else None, and a remark that says why.

    vLLM logs how long it waited for a step's result. With async scheduling, and on GPUs, that is a part of the step:
    then the durations add up to much less than the time in which requests were in flight.
    """
    if steps.is_by_end or len(steps) == 0:
        return steps, None
    in_flight = _time_in_flight_us(trace)
    if in_flight == 0 or (share := float(steps.duration_us.sum()) / in_flight) >= ACCOUNTED:
        return steps, None
    return None, (
        f"engine steps left out: their logged times add up to {100 * share:.0f} % of the time with requests in flight. "
        "On GPUs vLLM logs the wait for a step's result, not the step (docs/how-to/observe-an-endpoint.md)"
    )


def _time_in_flight_us(trace: Trace) -> float:
    """Return for how long (µs) at least one request was sent and not answered."""
    times = trace.requests[["send_time_us", "last_chunk_time_us"]].dropna().astype(np.float64)
    times = times.sort_values("send_time_us")
    begin, end = times["send_time_us"].to_numpy(), times["last_chunk_time_us"].cummax().to_numpy()
    if len(begin) == 0:
        return 0.0
    before = np.concatenate([[-np.inf], end[:-1]])
    return float(np.maximum(end - np.maximum(begin, before), 0).sum())


def step_errors(logged: EngineSteps, config: TwinConfig, *, simulated: list[Step]) -> StepErrors | None:
    """Return the error of the twin's step times against the log; None if no step has a duration.

    Blackbox is computed for exactly the steps of the log. A model that also depends on contexts, which the log does not
    have, is represented by simulated steps with about as many prefill and decode tokens.
    """
    kept = logged.duration_us > 0
    if not kept.any():
        return None
    steps = EngineSteps(
        prefill_tokens=logged.prefill_tokens[kept],
        decode_tokens=logged.decode_tokens[kept],
        duration_us=logged.duration_us[kept],
    )
    latency = config.latency
    if latency.is_blackbox:
        beta = [float(getattr(latency, name)) for name in ("beta0", "beta1", "beta2")]
        predicted = beta[0] + beta[1] * steps.prefill_tokens + beta[2] * steps.decode_tokens
    elif simulated:
        predicted = _like_simulated(steps, simulated)
    else:
        return None
    relative = predicted / steps.duration_us - 1
    varies = len(steps) > 2 and np.ptp(predicted) > 0 and np.ptp(steps.duration_us) > 0
    return StepErrors(
        steps=steps,
        predicted_us=predicted,
        mape=finite(float(np.abs(relative).mean())),
        bias=finite(float(relative.mean())),
        pearson_r=finite(float(np.corrcoef(predicted, steps.duration_us)[0, 1])) if varies else None,
        time_error=finite(float(predicted.sum() / steps.duration_us.sum() - 1)),
    )


def _like_simulated(steps: EngineSteps, simulated: list[Step]) -> Floats:
    """Return the mean duration of the simulated steps nearest in prefill and decode tokens, each on a log scale."""
    from scipy.spatial import KDTree

    there = np.log1p([[step.P, step.D] for step in simulated])
    durations = np.array([step.dur for step in simulated], dtype=np.float64)
    here = np.log1p(np.column_stack([steps.prefill_tokens, steps.decode_tokens]))
    near = min(NEAREST, len(simulated))
    _, rows = KDTree(there).query(here, k=near)
    return np.asarray(durations[rows.reshape(len(here), near)].mean(axis=1))
