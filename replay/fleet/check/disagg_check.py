"""Prefill and decode pools of the formulas, simulated step by step: prompts here, answers there, KV in between."""

from __future__ import annotations

import itertools
from lazy_dataclasses import dataclass, replace

import numpy as np

from replay.fleet.check.pool import (
    Verification,
    cells_of,
    is_seen_full,
    measured_of,
    room_of,
    slots_of,
    spells_of,
    taken_at,
)
from replay.fleet.check.steady import BatchedMean, RunLength, batch_means
from replay.fleet.check.steady_run import SteadyRun, steady_run
from replay.fleet.inputs.profiles import ProfileSource
from sim import EngineConfig, Int64s, Status
from sim.cluster import (
    ClusterConfig,
    Disaggregation,
    LeastLoaded,
    Pool,
)
from sim.fleet import Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffCheck:
    """The result of simulating (prefill, decode) ``engines``. Times in seconds.

    ``whole``: of the fleet, TTFT as its clients see it. ``until_prefilled``: from arrival until the prompt is computed;
    ``until_moved``: from there until its KV is on the decode engine; ``until_token``: from there to the first token;
    means. ``prefill_active``, ``decode_active``: requests at once per engine, on average.
    """

    engines: tuple[int, int]
    whole: Verification
    until_prefilled: BatchedMean
    until_moved: BatchedMean
    until_token: BatchedMean
    prefill_active: float
    decode_active: float

    @property
    def ttft_mean_s(self) -> float:
        """The mean time to the first token, the sum of its parts."""
        return self.until_prefilled.value + self.until_moved.value + self.until_token.value


def verify_handoff(
    sources: tuple[ProfileSource, ProfileSource],
    lengths: Lengths,
    rate_per_s: float,
    *,
    engines: tuple[int, int],
    transfer: Disaggregation,
    stay_s: float,
    seed: int,
    asked: RunLength,
) -> HandoffCheck:
    """Simulate this many prefill and decode engines, each pool behind a least-loaded router.

    ``sources``, ``engines``: prefill, decode. ``stay_s``: how long a request stays, 95th percentile. Raises
    InvalidConfig on what cannot be simulated, ConfigError on a measured part that cannot be.
    """
    cells = cells_of(engines, asked.least_s(stay_s) * rate_per_s)
    in_cell = (engines[0] // cells, engines[1] // cells)
    rate = rate_per_s / cells
    stream = asked.stream(lengths, rate, part=1 / cells)
    prefill, decode = sources
    config = _cluster(sources, in_cell, transfer, seed=seed)
    run = steady_run(stream, config, stay_s=stay_s, seed=seed, asked=asked)
    whole = measured_of(run, engines=sum(in_cell), seats=decode.engine.max_num_seqs)
    seats = (
        in_cell[0] * slots_of(replace(prefill, engine=prefill_engine(prefill)), lengths),
        in_cell[1] * slots_of(decode, lengths),
    )
    room, full_spells = _fullest(run, seats=seats)
    whole = replace(
        whole,
        engines=sum(engines),
        cells=cells,
        rate_per_s=whole.rate_per_s * cells,
        room=room,
        full_spells=full_spells,
    )
    return _parts(run, whole, engines=engines, in_cell=in_cell)


def _cluster(
    sources: tuple[ProfileSource, ProfileSource],
    instances: tuple[int, int],
    transfer: Disaggregation,
    *,
    seed: int,
) -> ClusterConfig:
    """Return a cluster of these prefill and decode engines, each pool behind a least-loaded router."""
    prefill, decode = sources
    return ClusterConfig(
        pools=(
            Pool(
                engine=prefill_engine(prefill),
                latency=prefill.latency,
                instances=instances[0],
                name="prefill",
                role="prefill",
            ),
            Pool(
                engine=decode.engine,
                latency=decode.latency,
                instances=instances[1],
                name="decode",
                role="decode",
            ),
        ),
        routing=LeastLoaded(),
        disaggregation=transfer,
        seed=seed,
    )


def _fullest(run: SteadyRun, *, seats: tuple[int, int]) -> tuple[float, int]:
    """Return the free room and the full spells of the pool that is known less well: prefill, or decode.

    A spell is over after a stay in that pool, 95th percentile: prompts stay shortly.
    """
    out, split, window = run.done.outcomes, run.done.split, run.window
    assert split is not None  # noqa: S101 - KV is moved
    is_ok = (out.status == Status.OK) & (split.prefilled_us >= 0)
    moved_us = np.where(split.transfer_end_us >= 0, split.transfer_end_us, split.prefilled_us)
    found = []
    for slots, came_us, begins_us, ends_us in (
        (seats[0], out.arrival_us, out.scheduled_us, split.prefilled_us),
        (seats[1], moved_us, moved_us, out.last_token_us),
    ):
        when = np.sort(came_us[is_ok] / 1e6)
        when = when[window.holds(when)]
        taken = taken_at(when, begins_us[is_ok] / 1e6, ends_us[is_ok] / 1e6)
        stay = float(np.percentile((ends_us - begins_us)[is_ok], 95)) / 1e6 if is_ok.any() else window.stay_s
        spells = spells_of(when[taken >= slots], apart_s=stay)
        found.append((room_of(taken, slots), spells))
    return min(found, key=lambda each: (is_seen_full(*each), each[0]))


def prefill_engine(source: ProfileSource) -> EngineConfig:
    """Return the engine that computes prompts; of a table's profile, one with one prompt at a time, as in its formula.

    A profile of the table has no compute of prompts: many at once would cost it nothing. A twin's engine is its own.
    """
    if not source.profile.reserves_context or source.profile.prefill_token_s > 0:
        return source.engine
    return replace(source.engine, max_num_seqs=1, max_num_batched_tokens=source.profile.chunk_tokens)


def _parts(
    run: SteadyRun,
    whole: Verification,
    *,
    engines: tuple[int, int],
    in_cell: tuple[int, int],
) -> HandoffCheck:
    """Return the parts of the first token, and how busy both pools were."""
    out, split, window = run.done.outcomes, run.done.split, run.window
    assert split is not None  # noqa: S101 - KV is moved
    counted = window.holds(out.arrival_us / 1e6) & (out.status == Status.OK) & (split.prefilled_us >= 0)
    moved = np.where(split.transfer_end_us >= 0, split.transfer_end_us, split.prefilled_us)
    chain = (out.arrival_us, split.prefilled_us, moved, out.first_token_us)
    parts = [
        batch_means(
            (later - earlier)[counted] / 1e6,
            lambda values: float(values.mean()),
            num_batches=window.num_batches,
        )
        for earlier, later in itertools.pairwise(chain)
    ]
    is_ok = (out.status == Status.OK) & (split.prefilled_us >= 0)

    def at_once(begins: Int64s, ends: Int64s, count: int) -> float:
        inside = np.clip(
            np.minimum(ends / 1e6, window.ends_s) - np.maximum(begins / 1e6, window.begins_s), 0, None
        )
        return float(inside[is_ok].sum()) / (window.ends_s - window.begins_s) / count

    return HandoffCheck(
        engines=engines,
        whole=whole,
        until_prefilled=parts[0],
        until_moved=parts[1],
        until_token=parts[2],
        prefill_active=at_once(out.scheduled_us, split.prefilled_us, in_cell[0]),
        decode_active=at_once(moved, out.last_token_us, in_cell[1]),
    )
