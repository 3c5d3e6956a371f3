"""One batch of rollouts: simulated to its last answer, ended by a number of answers, and its figures then."""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from replay.cluster.memory import check_memory
from sim import Int64s, InvalidConfig, Status
from sim.cluster import ClusterWork, simulate_cluster
from traces import ConfigError

if TYPE_CHECKING:
    from replay.rollouts.prompt_samples import Samples
    from sim import Outcomes
    from sim.cluster import ClusterConfig, ClusterSimulation

SHARES = (0.5, 0.8, 0.9, 0.95, 0.99, 1.0)
"""The shares of a batch's answers whose time is told: when so many are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """A batch that ended when enough of its ``num_asked`` samples were answered; times in µs from its start.

    ``num_answered``: by the end; a step may give several answers. ``end_us``. ``times_us``: when ``SHARES`` of all
    samples are answered, also after the end. ``idle_frac``: the share of the seats' time to the end in which they are
    empty; ``tail_idle_frac``: the same after ``tail_us``, when the first freed seat stayed empty; None where it is not
    known. ``kept_tokens``: of the answers; ``thrown_tokens``: generated for samples that are not answered and dropped;
    ``recomputed_tokens``: tokens computed again for samples carried over from the batch before. ``kept_mean_tokens``,
    ``asked_mean_tokens``: mean length of answers, and of what was drawn for the batch; None of none.
    """

    num_asked: int
    num_answered: int
    end_us: int
    times_us: tuple[int, ...]
    tail_us: int
    idle_frac: float | None
    tail_idle_frac: float | None
    kept_tokens: int
    thrown_tokens: int
    recomputed_tokens: int
    kept_mean_tokens: float
    asked_mean_tokens: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedBatch:
    """Samples that a cluster, empty at first, answered to the last; ``done``: that run. Cut ones are kept."""

    samples: Samples
    cluster: ClusterConfig
    work: ClusterWork
    done: ClusterSimulation
    _cut: dict[int, Outcomes] = field(default_factory=dict)

    @property
    def answered_us(self) -> Int64s:
        """When answers were there, ascending."""
        outcomes = self.done.outcomes
        return np.sort(outcomes.last_token_us[outcomes.status == Status.OK])

    def end_us(self, number: int) -> int:
        """Return when ``number`` answers were complete: later ones do not count."""
        return int(self.answered_us[number - 1])

    def at(self, until_us: int) -> Outcomes:
        """Return the outcomes of the run that ends at a time."""
        if until_us >= self.answered_us[-1]:
            return self.done.outcomes
        if until_us not in self._cut:
            self._cut[until_us] = simulate_cluster(self.work, self.cluster, until_us=until_us).outcomes
        return self._cut[until_us]

    def is_answered(self, end_us: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which samples were answered by a time."""
        outcomes = self.done.outcomes
        answered: np.ndarray[tuple[int], np.dtype[np.bool_]] = (outcomes.status == Status.OK) & (
            outcomes.last_token_us <= end_us
        )
        return answered

    def generated(self, end_us: int) -> Int64s:
        """Return how many tokens of each sample were there at a time, those of batches before not counted.

        A step in progress then, on another instance, does not count. A sample without its answer lacks at least one
        token.
        """
        outcomes = self.at(end_us)
        tokens = outcomes.num_output_tokens - (outcomes.last_token_us > end_us)
        wanted = self.work.requests.output_tokens
        most = np.where(self.is_answered(end_us), wanted, wanted - 1)
        return np.clip(tokens, 0, most)


def simulate_batch(samples: Samples, cluster: ClusterConfig) -> SimulatedBatch:
    """Return a batch simulated to its last answer. Raises ConfigError where a sample is never answered."""
    check_memory(cluster, num_requests=len(samples))
    engine = cluster.pools[0].engine
    requests = samples.requests(
        block_size=engine.hash_block_size, hash_lookahead=engine.num_hash_lookahead_tokens
    )
    work = ClusterWork(requests=requests)
    try:
        done = simulate_cluster(work, cluster)
    except InvalidConfig as error:
        raise ConfigError(f"cluster: {error}") from error
    lost = np.flatnonzero(done.outcomes.status != Status.OK)
    if len(lost):
        row = int(lost[0])
        why = Status(int(done.outcomes.status[row])).name.lower()
        prompt, output = int(requests.prompt_tokens[row]), int(requests.output_tokens[row])
        raise ConfigError(
            f"--samples: got {len(lost):,} of {len(samples):,} samples that are never answered (the first, {why}: "
            f"{prompt:,} tokens of prompt, {output:,} of output), expected all to fit: a larger engine.max_model_len "
            "or num_gpu_blocks, or shorter samples"
        )
    return SimulatedBatch(samples=samples, cluster=cluster, work=work, done=done)


def num_wanted(share: float, number: int) -> int:
    """Return a share of a number of answers, rounded up."""
    return max(1, math.ceil(share * number - 1e-9))


def batch_result(batch: SimulatedBatch, *, wanted: int, asked_from: int, is_carried: bool) -> BatchResult:
    """Return the figures of a batch that ends with its ``wanted``-th answer.

    ``asked_from``: the first sample that was drawn for it; those before are carried on from the batch before.
    ``is_carried``: unanswered samples continue in the next batch, and nothing is thrown away.
    """
    samples, end_us, answered_us = batch.samples, batch.end_us(wanted), batch.answered_us
    answered = batch.is_answered(end_us)
    left = 0 if answered.all() else int(batch.generated(end_us)[~answered].sum())
    lengths, fresh = samples.output_tokens, samples.output_tokens[asked_from:]
    tail_us = min(_tail_us(batch), end_us)
    idle, tail_idle = _idle_fracs(batch, end_us=end_us, tail_us=tail_us)
    return BatchResult(
        num_asked=len(samples),
        num_answered=int(answered.sum()),
        end_us=end_us,
        times_us=tuple(int(answered_us[num_wanted(share, len(samples)) - 1]) for share in SHARES),
        tail_us=tail_us,
        idle_frac=idle,
        tail_idle_frac=tail_idle,
        kept_tokens=int(lengths[answered].sum()),
        thrown_tokens=0 if is_carried else left,
        recomputed_tokens=_recomputed(batch, end_us),
        kept_mean_tokens=float(lengths[answered].mean()),
        asked_mean_tokens=float(fresh.mean()) if len(fresh) else None,
    )


def _recomputed(batch: SimulatedBatch, end_us: int) -> int:
    """Return how many tokens of carried samples were computed again: prompt and generated, less those cached."""
    if not batch.samples.generated.any():
        return 0
    outcomes = batch.at(end_us)
    was_computed = (batch.samples.generated > 0) & (outcomes.scheduled_us >= 0)
    again = batch.work.requests.prompt_tokens - outcomes.num_cached_tokens
    return int(again[was_computed].sum())


def _tail_us(batch: SimulatedBatch) -> int:
    """Return when a freed seat first stayed empty, on an instance where no sample waits any more."""
    outcomes, done, found = batch.done.outcomes, batch.done, []
    for number in np.unique(done.instance):
        own = done.instance == number
        ends, last = outcomes.last_token_us[own], int(outcomes.scheduled_us[own].max())
        seats = batch.cluster.pools[done.instances[number].pool].engine.max_num_seqs
        is_given_back = bool((ends <= last).any()) and int((ends > last).sum()) < seats
        found.append(last if is_given_back else int(ends[ends > last].min()))
    return min(found)


def _idle_fracs(batch: SimulatedBatch, *, end_us: int, tail_us: int) -> tuple[float | None, float | None]:
    """Return the shares of all seats' time in which they were empty, to the end, and after the tail began."""
    cluster, outcomes = batch.cluster, batch.done.outcomes
    was_preempted = bool(outcomes.num_preemptions.any())
    is_unknown = was_preempted and not outcomes.preempted_us.any()  # a fleet's engines do not count it
    if cluster.changes or cluster.disaggregation is not None or is_unknown:
        return None, None

    def held_us(until_us: int) -> int:
        if until_us < 1:
            return 0
        seen = batch.at(until_us) if was_preempted else outcomes
        has_seat = (seen.scheduled_us >= 0) & (seen.scheduled_us < until_us)
        ends = np.where(seen.status == Status.OK, np.minimum(seen.last_token_us, until_us), until_us)
        return int((ends - seen.scheduled_us - seen.preempted_us)[has_seat].sum())

    seats = sum(pool.engine.max_num_seqs * pool.num_slots for pool in cluster.pools)
    whole = seats * end_us
    held = held_us(end_us)
    tail = seats * (end_us - tail_us) - (held - held_us(tail_us))
    return (whole - held) / whole, tail / whole
