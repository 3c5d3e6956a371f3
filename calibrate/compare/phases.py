"""Where an error comes from: E2E as client and network, queue, prefill and decode, on both sides."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.compare.metric_errors import Bootstrap
from calibrate.compare.pair import PHASES, Pairs
from traces.statistics.bootstrap import (
    MIN_REQUESTS,
    Estimate,
    Floats,
    block_length,
    finite,
    interval,
    over_resamples,
    weighted_sums,
)

if TYPE_CHECKING:
    from sim import Outcomes

Basis = Literal["server", "simulator"]
PHASE_NAMES = {
    "client_phase_us": "client and network",
    "queue_phase_us": "queue",
    "prefill_phase_us": "prefill",
    "decode_phase_us": "decode",
}
STREAM = 950
"""The stream of random numbers of this module alone."""
BASES: dict[Basis, str] = {
    "server": "as the server timed its requests",
    "simulator": "decode as observed; the error up to the first token is divided as the simulator divides that time",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of a mean request, µs: both sides and the error with its interval. ``share`` of the observed E2E."""

    observed: float | None
    simulated: float | None
    error: Estimate
    share: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The error of E2E by phase, over ``n`` requests. ``basis``: where the observed phases come from."""

    basis: Basis
    n: int
    phases: dict[str, Phase]


def simulated_phases(outcomes: Outcomes, *, e2e_us: Floats, by_server_clock: bool) -> pd.DataFrame:
    """Return ``PHASES`` of simulated requests, NaN where one did not finish; columns of E2E as the client sees it.

    By the server's clock the queue begins when the engine, between two steps, takes the request in. The wait for the
    step in progress is then part of the first phase, else of the queue.
    """
    scheduled = outcomes.scheduled_us
    first, last = (values.astype(np.float64) for values in (outcomes.first_token_us, outcomes.last_token_us))
    joined = outcomes.taken_in_us if by_server_clock else outcomes.queued_us
    finished = (outcomes.scheduled_us >= 0) & (outcomes.last_token_us >= 0) & np.isfinite(e2e_us)
    queue = (scheduled - joined).astype(np.float64)
    prefill, decode = first - scheduled, last - first
    values = (e2e_us - (queue + prefill + decode), queue, prefill, decode)
    return pd.DataFrame(
        {name: np.where(finished, value, np.nan) for name, value in zip(PHASES, values, strict=True)}
    )


def origin_of(pairs: Pairs, *, bootstrap: Bootstrap) -> Origin | None:
    """Return the error of E2E by phase, None where the simulated side has no phases."""
    parts = split(pairs)
    if parts is None:
        return None
    basis, observed, simulated, rows = parts
    n = len(observed)
    e2e = pairs.observed["e2e_us"].to_numpy()[rows]
    error = simulated - observed
    summed = np.column_stack([error, np.ones(n), e2e])
    sums, drawn = summed.sum(axis=0), None
    if n >= MIN_REQUESTS:
        drawn = over_resamples(
            lambda counts: np.column_stack([weighted_sums(counts, each) for each in summed.T]),
            n,
            block_length(error.sum(axis=1)),
            replicates=bootstrap.replicates,
            seed=bootstrap.seed,
            stream=STREAM,
        )
    phases = {}
    for column, name in enumerate(PHASES):
        phases[name] = Phase(
            observed=finite(float(observed[:, column].mean())),
            simulated=finite(float(simulated[:, column].mean())),
            error=_ratio(sums, drawn, (column, -2), level=bootstrap.level),
            share=_ratio(sums, drawn, (column, -1), level=bootstrap.level),
        )
    return Origin(basis=basis, n=n, phases=phases)


def split(pairs: Pairs) -> tuple[Basis, Floats, Floats, NDArray[np.intp]] | None:
    """Return (basis, observed [n, 4], simulated [n, 4], rows) of the requests whose phases are known.

    Only those that the server timed, if they are at least half; else all, divided as the simulator divides them.
    """
    simulated = pairs.simulated[list(PHASES)].to_numpy(dtype=np.float64)
    told = pairs.observed[list(PHASES)].to_numpy(dtype=np.float64)
    is_simulated = np.isfinite(simulated).all(axis=1)
    is_told = is_simulated & np.isfinite(told).all(axis=1)
    if not is_simulated.any():
        return None
    if is_told.sum() * 2 >= is_simulated.sum():
        rows = np.flatnonzero(is_told)
        return "server", told[rows], simulated[rows], rows
    divided = _divided(pairs, simulated)
    rows = np.flatnonzero(is_simulated & np.isfinite(divided).all(axis=1))
    return None if len(rows) == 0 else ("simulator", divided[rows], simulated[rows], rows)


def _divided(pairs: Pairs, simulated: Floats) -> Floats:
    """Return observed phases where only first and last token were seen: TTFT in the simulator's proportions."""
    ttft, e2e = (pairs.observed[name].to_numpy() for name in ("ttft_us", "e2e_us"))
    before = simulated[:, :3]
    total = before.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(total > 0, before / total, np.array([1.0, 0.0, 0.0]))
    return np.column_stack([share * ttft[:, None], e2e - ttft])


def _ratio(sums: Floats, drawn: Floats | None, at: tuple[int, int], *, level: float) -> Estimate:
    """Return one sum over another, by their columns, with the interval of those drawn [replicates, columns]."""
    part, whole = at
    value = float(sums[part] / sums[whole]) if sums[whole] else float("nan")
    if drawn is None:
        return Estimate(value=finite(value))
    return interval(value, drawn[:, part] / drawn[:, whole], level=level)
