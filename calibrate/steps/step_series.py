"""The steps of one engine as a fit needs them: what was in each, and which times are known of which steps together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from lazy_dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from sim import StepBatch
from traces import TraceError
from traces.statistics.bootstrap import Floats
from traces.steps import LoggedSteps

Int64s = NDArray[np.int64]

MOST_TOGETHER = 6
"""Steps whose times are taken together, at most."""
MIN_STEPS = 100
"""Known times, at least: seconds of a busy server."""
MIN_PREFILLS = 10
"""So many steps have prompts, at least."""
MOST_REQUESTS = 100_000
"""In one step: more is a mistake."""
LONGEST_US = 10_000_000.0
"""A time beyond this is a wait for work, or a fault of the server's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeries:
    """The n steps of one engine in order, and m observed times.

    ``batch``: what was in them. ``begin_us``, ``end_us``: when each began and was done, µs from any origin; where the
    engine may have waited for work before a step, ``begin_us`` is NaN. ``group`` [n]: which observed time a step is a
    part of. ``took_us`` [m]: how long the steps of each took together, NaN where not known. ``has_prompts`` [m].
    """

    batch: StepBatch
    begin_us: Floats
    end_us: Floats
    group: Int64s
    took_us: Floats
    has_prompts: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.group)

    def known(self) -> NDArray[np.bool_]:
        """Return which of the observed times are known."""
        return np.isfinite(self.took_us)

    def summed(self, step_us: Floats) -> Floats:
        """Return the times of steps [n] added up as the observed ones are [m]."""
        return np.asarray(np.bincount(self.group, step_us), np.float64)


def series_of(logged: LoggedSteps, *, name: str, is_async: bool) -> tuple[list[StepSeries], list[str]]:
    """Return a series for each engine in a log, and remarks on what is left out.

    ``is_async``: whether the server prepares a step while one runs. Raises TraceError where its times are no step
    times, or there are too few.
    """
    if is_async and not logged.is_whole and not logged.has_ends:
        raise TraceError(
            f"{name}: got times of waiting for a step's result, which with async scheduling is less than the step; "
            "expected lines that begin with the time in full (docs/how-to/learn-from-steps.md)"
        )
    if len(logged) == 0:
        raise TraceError(f"{name}: got no steps, expected at least {MIN_STEPS}")
    most = float(max(logged.prefill_requests.max(), logged.decode_requests.max()))
    if most > MOST_REQUESTS:
        raise TraceError(f"{name}: got a step of {most:g} requests, expected at most {MOST_REQUESTS:,}")
    numbers = np.unique(logged.engine)
    parts = [_rows(logged, np.flatnonzero(logged.engine == each)) for each in numbers]
    remarks = [f"{name}: {len(parts)} engines, each taken as a server of its own"] * (len(parts) > 1)
    back = sum(int((np.diff(part.end_us) < 0).sum()) for part in parts)
    gaps = sum(int((np.diff(part.number) > 1).sum()) for part in parts)
    if back:
        remarks.append(f"{name}: the clock goes back {back} times; the steps there are left out")
    if gaps:
        remarks.append(f"{name}: steps are missing in {gaps} places; the times across them are left out")
    found = [_series(part) for part in parts]
    num_known = sum(int(each.known().sum()) for each in found)
    num_prefills = sum(int((each.known() & each.has_prompts).sum()) for each in found)
    for number, least, what in (
        (num_known, MIN_STEPS, "steps"),
        (num_prefills, MIN_PREFILLS, "with prompts"),
    ):
        if number < least:
            raise TraceError(
                f"{name}: got {number} known times of steps{'' if what == 'steps' else ' ' + what}, expected at least "
                f"{least}"
            )
    return found, remarks


def _rows(logged: LoggedSteps, rows: Int64s) -> LoggedSteps:
    held = {each.name: getattr(logged, each.name) for each in fields(logged) if each.name != "is_whole"}
    return replace(logged, **{name: values[rows] for name, values in held.items() if values is not None})


def _series(logged: LoggedSteps) -> StepSeries:
    """Return one engine's steps. Records without work, which say that it idles, only part their neighbours."""
    works = logged.prefill_tokens + logged.decode_tokens > 0
    follows = np.concatenate([[False], (np.diff(logged.number) == 1) & works[:-1]])[works]
    logged = _rows(logged, np.flatnonzero(works))
    took = _own_times(logged, follows)
    group = _groups(logged, follows, together=logged.is_whole or logged.has_ends)
    ends = logged.end_us if logged.has_ends else np.cumsum(np.nan_to_num(took))
    return StepSeries(
        batch=_batch(logged),
        begin_us=np.where(follows & np.isfinite(took), ends - took, np.nan),
        end_us=ends,
        group=group,
        took_us=np.asarray(np.bincount(group, took), np.float64),  # NaN of one is NaN of all
        has_prompts=np.bincount(group, logged.prefill_tokens) > 0,
    )


def _own_times(logged: LoggedSteps, follows: NDArray[np.bool_]) -> Floats:
    """Return how long each step took, µs, NaN where it is not known.

    From the end of the step before, where ends are logged: not known where nothing decodes, since the engine may have
    waited for work.
    """
    if logged.is_whole or not logged.has_ends:
        took = logged.duration_us
    else:
        took = np.concatenate([[np.nan], np.diff(logged.end_us)])
        took = np.where(follows & (logged.decode_tokens > 0), took, np.nan)
    return np.where((took > 0) & (took < LONGEST_US), took, np.nan)


def _groups(logged: LoggedSteps, follows: NDArray[np.bool_], *, together: bool) -> Int64s:
    """Return which observed time each step is a part of.

    vLLM notes the end of a step only when it has launched the next one. To launch a step with prompts takes long, so
    the step before it seems too long by as much, and the last of such steps too short: of all together the time is
    right.
    """
    if not together:
        return np.arange(len(logged))
    steps = np.arange(len(logged))
    goes_on = (logged.prefill_tokens > 0) & follows
    place = steps - np.maximum.accumulate(np.where(goes_on, 0, steps))
    return np.asarray(np.cumsum(place % MOST_TOGETHER == 0) - 1, np.int64)


def _batch(logged: LoggedSteps) -> StepBatch:
    """Return what is in the steps, estimated where the log does not say it.

    A log that has tokens but no contexts: prompts of one step are equally long, and the request that has decoded
    longest ends first.
    """
    prompts = np.maximum(logged.prefill_requests, 1.0)
    nothing = np.zeros(len(logged))
    cached = nothing if logged.prefill_cached is None else logged.prefill_cached
    variance = nothing if logged.prompt_variance is None else logged.prompt_variance
    mean, spread = logged.prefill_tokens / prompts, np.where(cached > 0, 0.0, variance)
    pairs = logged.prefill_tokens * cached / prompts + prompts * (mean * (mean + 1) + spread) / 2
    context = np.array(list(_contexts(logged))) if logged.decode_context is None else logged.decode_context
    columns = {
        "num_prefill_tokens": logged.prefill_tokens,
        "num_decode_tokens": logged.decode_tokens,
        "decode_context_tokens": context,
        "prefill_pairs": pairs,
        "num_prefill_seqs": logged.prefill_requests,
        "prefill_context_tokens": cached + logged.prefill_tokens,
    }
    return StepBatch(**{name: np.rint(values).astype(np.int64) for name, values in columns.items()})


def _contexts(logged: LoggedSteps) -> Iterator[float]:
    """Yield how many KV entries the decodes of each step read. Requests from before the log have usual prompts."""
    sizes = logged.prefill_tokens / np.maximum(logged.prefill_requests, 1.0)
    usual = float(logged.prefill_tokens.sum() / max(logged.prefill_requests.sum(), 1.0))
    born: deque[float] = deque()  # each request's tokens less the number of steps before its first
    total = 0.0
    for step in range(len(logged)):
        decoding = int(logged.decode_requests[step])
        while len(born) > decoding:
            total -= born.popleft()
        while len(born) < decoding:
            born.append(usual - step)
            total += usual - step
        yield total + decoding * (step + 1)
        new = int(logged.prefill_requests[step])
        born.extend([float(sizes[step]) - step - 1] * new)
        total += (float(sizes[step]) - step - 1) * new
