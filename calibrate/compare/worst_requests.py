"""The requests that the twin gets most wrong, with the phases of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass

import numpy as np

from calibrate.compare.pair import PHASES, Pairs
from calibrate.compare.phases import split
from traces.statistics.bootstrap import finite

MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstRequest:
    """One request: where to find it, how wrong its E2E is, and ``PHASES`` of both sides, µs.

    ``observed_phases`` is (TTFT, rest) where the server did not time its phases; ``simulated_phases`` likewise where
    the other side is no simulation of ours.
    """

    trace: str
    request_id: str
    arrival_us: float
    prompt_tokens: float | None
    output_tokens: float | None
    in_flight: int
    observed_e2e_us: float
    simulated_e2e_us: float
    rel_error: float
    observed_phases: tuple[float, ...]
    simulated_phases: tuple[float, ...]


def worst_of(pairs: Pairs, names: Sequence[str], *, most: int = MOST) -> tuple[WorstRequest, ...]:
    """Return the requests whose E2E is furthest off in proportion, the worst first; ``names`` of the traces."""
    observed, simulated = (side["e2e_us"].to_numpy() for side in (pairs.observed, pairs.simulated))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(observed > 0, simulated / observed - 1, np.nan)
    order = np.argsort(-np.abs(relative), kind="stable")
    chosen = order[np.isfinite(relative[order]) & (relative[order] != 0)][:most]
    parts = split(pairs)
    timed = parts is not None and parts[0] == "server"
    return tuple(
        WorstRequest(
            trace=names[int(pairs.requests["trace"].iloc[row])],
            request_id=str(pairs.requests["request_id"].iloc[row]),
            arrival_us=float(pairs.requests["arrival_us"].iloc[row]),
            prompt_tokens=finite(float(pairs.requests["prompt_tokens"].iloc[row])),
            output_tokens=finite(float(pairs.requests["output_tokens"].iloc[row])),
            in_flight=int(pairs.requests["in_flight"].iloc[row]),
            observed_e2e_us=float(observed[row]),
            simulated_e2e_us=float(simulated[row]),
            rel_error=float(relative[row]),
            observed_phases=_phases(pairs, int(row), observed=True, timed=timed),
            simulated_phases=_phases(pairs, int(row), observed=False, timed=True),
        )
        for row in chosen
    )


def _phases(pairs: Pairs, row: int, *, observed: bool, timed: bool) -> tuple[float, ...]:
    side = pairs.observed if observed else pairs.simulated
    phases = side[list(PHASES)].iloc[row].to_numpy(dtype=np.float64)
    if timed and bool(np.isfinite(phases).all()):
        return tuple(float(value) for value in phases)
    ttft, e2e = (float(side[name].iloc[row]) for name in ("ttft_us", "e2e_us"))
    return (ttft, e2e - ttft) if np.isfinite(ttft) else (e2e,)
