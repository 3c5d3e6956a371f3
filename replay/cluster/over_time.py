"""A run over time: figures of each instance and of the fleet in each stretch of time, for the JSON and the page."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from sim import Status

if TYPE_CHECKING:
    from replay.cluster.simulate import FleetRun
    from sim import Int64s, Outcomes
    from sim.cluster import ClusterConfig, Split
    from sim.latency import PeakTimes

Floats = NDArray[np.float64]

POINTS = 60
"""Stretches that a run is divided into, at least; at most twice as many."""
LOOKS = 400
"""Looks at a run of one server, at least, which cost little; at most twice as many."""
MOST_INSTANCES = 64
"""Instances that the JSON has series of; a larger fleet has its own and its pools' only."""
DIGITS = 4


class Series(TypedDict):
    """What an instance, a pool or the fleet did: a number per stretch of time.

    ``num_waiting``, ``num_running``: requests at its end, of a pool and the fleet their sum. ``kv_usage_frac``: KV
    blocks in use at its end, None where the cache is unbounded. ``busy_frac``: share of the stretch spent in steps.
    ``num_routed``, ``num_completed``: requests sent there, and finished there, within it.
    ``mfu_frac``: model FLOPs utilisation (Chowdhery et al., "PaLM", 2022, appendix B): the time that the products of
    the tokens computed would take at the peak rate of their kind, over the time that passed; tokens that are computed
    again after a preemption do not count. A request's prompt is spread evenly from its first schedule to its first
    token, its answer from there to its last. None where model and GPU are not known.
    """

    num_waiting: list[int]
    num_running: list[int]
    kv_usage_frac: list[float] | None
    busy_frac: list[float]
    num_routed: list[int]
    num_completed: list[int]
    mfu_frac: list[float] | None


class NamedSeries(Series):
    """The series of an instance or a pool, by its name."""

    name: str


class OverTime(TypedDict):
    """A run in stretches; ``time_us`` has their ends.

    ``num_at_gateway``: requests in the gateway's queue at each end, None without one. ``num_transfers``: prompts' KV
    under way, None where nothing is transferred. ``instances``: None of a fleet of more than 64. One server is a
    fleet of one instance, ``0``, in one pool, ``0``.
    """

    time_us: list[int]
    num_arrived: list[int]
    num_at_gateway: list[int] | None
    num_transfers: list[int] | None
    fleet: Series
    pools: list[NamedSeries]
    instances: list[NamedSeries] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretches:
    """The same as arrays: T stretches, n instances.

    ``time_us`` float64 [T]: their ends. All others float64 [T, n]: ``waiting``, ``running``, ``used_blocks`` (NaN:
    unbounded), ``busy_us``, ``routed``, ``completed``, ``peak_us`` (time at the GPU's peak, NaN where it is not known).
    ``num_blocks``: float64 [n], NaN: unbounded. ``pool_of``: int64 [n].
    """

    time_us: Floats
    waiting: Floats
    running: Floats
    used_blocks: Floats
    busy_us: Floats
    routed: Floats
    completed: Floats
    peak_us: Floats
    num_blocks: Floats
    pool_of: Int64s

    @property
    def lengths_us(self) -> Floats:
        """How long each stretch is, float64 [T]."""
        return np.maximum(np.diff(self.time_us, prepend=0.0), 1.0)

    def kv_frac(self, chosen: NDArray[np.bool_]) -> Floats:
        """Return the share of KV blocks in use on some instances together, NaN where a cache is unbounded."""
        return np.asarray(self.used_blocks[:, chosen].sum(axis=1) / self.num_blocks[chosen].sum())

    def busy_frac(self, chosen: NDArray[np.bool_]) -> Floats:
        """Return the share of time that some instances spent in steps, on average."""
        return np.asarray(np.clip(self.busy_us[:, chosen].mean(axis=1) / self.lengths_us, 0.0, 1.0))

    def mfu_frac(self, chosen: NDArray[np.bool_]) -> Floats:
        """Return the model FLOPs utilisation of some instances, on average; NaN where it is not known."""
        return np.asarray(self.peak_us[:, chosen].mean(axis=1) / self.lengths_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingInstances:
    """Which instance served each request, for its model FLOPs: ``instance`` and ``prompt_tokens`` [requests]."""

    outcomes: Outcomes
    instance: NDArray[np.int32]
    prompt_tokens: Int64s
    split: Split | None = None


def stretches(run: FleetRun, peaks: Sequence[PeakTimes | None] = ()) -> Stretches | None:
    """Return a run over time, None where it was not sampled; ``peaks``: of each pool, where they are known."""
    result = run.result
    if result.over_time is None:
        return None
    seen = result.over_time.thinned(POINTS)
    outcomes, n = result.outcomes, len(result.instances)
    blocks = np.where(seen.num_blocks > 0, seen.num_blocks, np.nan).astype(np.float64)
    times = seen.time_us.astype(np.float64)
    ends = outcomes.last_token_us
    prefill = np.full(n, -1) if result.split is None else result.split.prefill_instance
    routed = counted_in(times, result.routed_us, result.instance, n)
    completed = counted_in(times, np.where(outcomes.status == Status.OK, ends, -1), result.instance, n)
    if result.split is not None:
        routed += counted_in(times, np.where(prefill >= 0, result.routed_us, -1), prefill, n)
        completed += counted_in(times, np.where(prefill >= 0, result.split.prefilled_us, -1), prefill, n)
    pool_of = np.array([each.pool for each in result.instances], np.int64)
    return Stretches(
        time_us=times,
        waiting=seen.num_waiting.astype(np.float64),
        running=seen.num_running.astype(np.float64),
        used_blocks=np.maximum(blocks - seen.num_free_blocks, 0.0),
        busy_us=np.maximum(np.diff(seen.busy_us, axis=0, prepend=0), 0).astype(np.float64),
        routed=routed,
        completed=completed,
        peak_us=peak_us_of(
            ServingInstances(
                outcomes=outcomes,
                instance=result.instance,
                prompt_tokens=run.work.requests.prompt_tokens,
                split=result.split,
            ),
            times,
            pool_of=pool_of,
            peaks=peaks,
        ),
        num_blocks=blocks,
        pool_of=pool_of,
    )


def counted_in(times: Floats, at_us: Int64s, instance: NDArray[np.int32], n: int) -> Floats:
    """Return how many requests have their time in each stretch, per instance, float64 [T, n]."""
    known = (at_us >= 0) & (instance >= 0)
    place = np.minimum(np.searchsorted(times, at_us[known], side="left"), len(times) - 1)
    flat = np.bincount(place * n + instance[known], minlength=len(times) * n)
    return flat.reshape(len(times), n).astype(np.float64)


# -- model FLOPs ----------------------------------------------------------------------------------------------


def prefill_peak_us(peak: PeakTimes, prompt: Floats, cached: Floats) -> Floats:
    """Return the µs that prompts' products take one GPU at its peak, behind what was cached; one token is sampled."""
    computed = np.maximum(prompt - cached, 0.0)
    linear = (peak.matmul + peak.expert_matmul) * computed + peak.head_matmul
    return np.asarray(
        linear
        + peak.prefill_pair * (_pairs(prompt) - _pairs(cached))
        + peak.windowed_prefill_pair * (_pairs(prompt, peak.window) - _pairs(cached, peak.window))
    )


def decode_peak_us(peak: PeakTimes, prompt: Floats, output: Floats) -> Floats:
    """Return the µs that the products of all output tokens but the first take one GPU at its peak."""
    num = np.maximum(output - 1, 0.0)
    last = prompt + num
    return np.asarray(
        (peak.matmul + peak.expert_matmul + peak.head_matmul) * num
        + peak.decode_entry * (_pairs(last) - _pairs(prompt))
        + peak.windowed_decode_entry * (_pairs(last, peak.window) - _pairs(prompt, peak.window))
    )


def _pairs(length: Floats, window: int = 0) -> Floats:
    """Return the (query, key) pairs of the first ``length`` tokens, each seeing itself and all before, or a window."""
    whole = length * (length + 1) / 2
    if window <= 0:
        return np.asarray(whole)
    return np.asarray(
        np.where(length <= window, whole, window * (window + 1) / 2 + (length - window) * window)
    )


def peak_us_of(
    served: ServingInstances, times: Floats, *, pool_of: Int64s, peaks: Sequence[PeakTimes | None]
) -> Floats:
    """Return the time at the GPU's peak of each stretch and instance, NaN where a pool's is not known."""
    from traces.pages.spread import spread  # with all of pages

    outcomes, split, n = served.outcomes, served.split, len(pool_of)
    found = np.full((len(times), n), np.nan)
    prompt = served.prompt_tokens.astype(np.float64)
    cached = np.maximum(outcomes.num_cached_tokens, 0).astype(np.float64)
    output = outcomes.num_output_tokens.astype(np.float64)
    prefilled_at, first_us = served.instance, outcomes.first_token_us
    if split is not None:
        there = split.prefill_instance
        prefilled_at = np.where(there >= 0, there, served.instance)
        first_us = np.where(there >= 0, split.prefilled_us, first_us)
    for pool, peak in enumerate(peaks):
        if peak is None:
            continue
        own = pool_of == pool
        parts = (
            (prefilled_at, outcomes.scheduled_us, first_us, prefill_peak_us(peak, prompt, cached)),
            (
                served.instance,
                outcomes.first_token_us,
                outcomes.last_token_us,
                decode_peak_us(peak, prompt, output),
            ),
        )
        total = np.zeros((len(times), n))
        for where, start_us, end_us, amount in parts:
            known = (where >= 0) & (start_us >= 0) & (end_us >= 0)
            total += spread(
                times, start_us[known], end_us[known], amount[known], where=where[known], num_places=n
            )
        found[:, own] = total[:, own] / peak.pp
    return found


# -- the document ---------------------------------------------------------------------------------------------


def summarize_over_time(found: Stretches, run: FleetRun, cluster: ClusterConfig) -> OverTime:
    """Return the JSON's series."""
    return over_time_of(
        found,
        run.result.outcomes.arrival_us,
        names=cluster.instance_names,
        pools=[pool.name or str(number) for number, pool in enumerate(cluster.pools)],
        at_gateway=num_at_gateway(found, run, cluster),
        transfers=num_transfers(found, run),
    )


def over_time_of(
    found: Stretches,
    arrival_us: Int64s,
    *,
    names: Sequence[str],
    pools: Sequence[str],
    at_gateway: list[int] | None = None,
    transfers: list[int] | None = None,
) -> OverTime:
    """Return the JSON's series of some instances, ``names``, in some pools."""
    n = len(found.pool_of)
    instances = None
    if n <= MOST_INSTANCES:
        instances = [
            NamedSeries(name=name, **_series(found, np.arange(n) == number))
            for number, name in enumerate(names)
        ]
    return OverTime(
        time_us=[int(value) for value in found.time_us],
        num_arrived=_in_each(found.time_us, arrival_us),
        num_at_gateway=at_gateway,
        num_transfers=transfers,
        fleet=_series(found, np.ones(n, bool)),
        pools=[
            NamedSeries(name=name, **_series(found, found.pool_of == number))
            for number, name in enumerate(pools)
        ],
        instances=instances,
    )


def _series(found: Stretches, chosen: NDArray[np.bool_]) -> Series:
    return Series(
        num_waiting=_whole(found.waiting[:, chosen]),
        num_running=_whole(found.running[:, chosen]),
        kv_usage_frac=_rounded(found.kv_frac(chosen)),
        busy_frac=_rounded(found.busy_frac(chosen)) or [],
        num_routed=_whole(found.routed[:, chosen]),
        num_completed=_whole(found.completed[:, chosen]),
        mfu_frac=_rounded(found.mfu_frac(chosen)),
    )


def _whole(values: Floats) -> list[int]:
    return [int(value) for value in values.sum(axis=1)]


def _rounded(values: Floats) -> list[float] | None:
    if np.isnan(values).any():
        return None
    return [round(float(value), DIGITS) for value in values]


def _in_each(times: Floats, at_us: Int64s) -> list[int]:
    """Return how many times lie in each stretch."""
    known = np.sort(at_us[at_us >= 0])
    return [int(value) for value in np.diff(np.searchsorted(known, times, side="right"), prepend=0)]


def num_at_gateway(found: Stretches, run: FleetRun, cluster: ClusterConfig) -> list[int] | None:
    """Return how many requests the gateway's queue held at the end of each stretch, None without a queue."""
    if cluster.flow_control is None:
        return None
    result = run.result
    left_us = np.where(result.dispatched_us >= 0, result.dispatched_us, result.left_us)
    return under_way(found.time_us, result.admitted_us, left_us)


def num_transfers(found: Stretches, run: FleetRun) -> list[int] | None:
    """Return how many prompts' KV was under way at the end of each stretch, None where nothing is transferred."""
    split = run.result.split
    return None if split is None else under_way(found.time_us, split.transfer_start_us, split.transfer_end_us)


def under_way(times: Floats, start_us: Int64s, end_us: Int64s) -> list[int]:
    """Return how many had begun and not ended at each time; one that never ended, -1, goes on to the end."""
    begun = start_us >= 0
    starts, ends = np.sort(start_us[begun]), np.sort(end_us[begun & (end_us >= 0)])
    return [
        int(value)
        for value in np.searchsorted(starts, times, side="right") - np.searchsorted(ends, times, side="right")
    ]
