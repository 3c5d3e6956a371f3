"""Rollouts of reinforcement learning: how long batches take, and what would make them shorter.

A weight update resets the KV cache, so each batch is a simulation of servers that begin empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from replay.console.ready import prepare_engine
from replay.numbers.argument_ranges import BATCHES, PROMPTS, SAMPLES, SHARE, TIME_US, TIMES, WORKLOAD
from replay.numbers.t_interval import half_width
from replay.rollouts.prompt_samples import Samples, draw_samples, joined, long_tailed
from replay.rollouts.rollout_batch import (
    BatchResult,
    SimulatedBatch,
    batch_result,
    num_wanted,
    simulate_batch,
)
from replay.twin.config_read import twin_of
from traces.facts import NotebookAnswer
from traces.strict.arguments import TWIN, check_argument, check_fields, takes

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from sim.cluster import ClusterConfig
    from traces.workload import WorkloadOptions

OVERSUBSCRIPTIONS = (1.1, 1.25, 1.5)
"""How many times the samples are drawn where nothing is said."""
PARTIAL_SHARE = 0.9
"""The share at which partial rollouts end if none is given for them or for the batch."""

Way = Literal["plain", "oversubscribed", "partial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """Batches as asked: ``prompts`` of ``samples`` each, ended by the share ``batch_share`` of their answers.

    ``update_us``: what the weights' update takes after each of ``batches``. ``oversubscriptions``: how many times the
    samples are drawn, one simulation each; ``partial_share``: where partial rollouts end, None: ``batch_share``, or 0.9
    where that is 1. Raises ConfigError on what cannot be.
    """

    prompts: int
    samples: int
    batch_share: float = 1.0
    update_us: int = 0
    batches: int = 5
    oversubscriptions: tuple[float, ...] = OVERSUBSCRIPTIONS
    partial_share: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_fields(self, prompts=PROMPTS, samples=SAMPLES, batches=BATCHES, update_us=TIME_US)
        check_fields(self, batch_share=SHARE, partial_share=SHARE)
        for times in self.oversubscriptions:
            check_argument("oversubscriptions", times, TIMES)

    @property
    def ends_partial(self) -> float:
        """The share of answers with which a batch of partial rollouts ends."""
        if self.partial_share is not None:
            return self.partial_share
        return self.batch_share if self.batch_share < 1 else PARTIAL_SHARE

    @property
    def number(self) -> int:
        """Samples of a batch."""
        return self.prompts * self.samples

    def drawn(self, times: float) -> int:
        """Return how many samples are drawn with an oversubscription."""
        return math.ceil(times * self.number - 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanOfBatches:
    """A mean over batches, and half the width of its 90 % t interval; None of one batch, and where batches depend."""

    mean: float
    half_width: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutWay:
    """Batches run one way. ``times``: oversubscription; ``share`` of the answers asked with which a batch ends.

    ``batches``: all of them; ``counted``: those that means are over: of partial rollouts the first, which carries
    nothing, is left out.
    """

    way: Way
    times: float
    share: float
    batches: tuple[BatchResult, ...]

    @property
    def counted(self) -> tuple[BatchResult, ...]:
        """The batches that means are over."""
        is_warming_up = self.way == "partial" and self.share < 1 and len(self.batches) > 1
        return self.batches[1:] if is_warming_up else self.batches

    def estimate(self, value: Callable[[BatchResult], float | None]) -> MeanOfBatches | None:
        """Return the mean of a value over the batches; None where a batch has none."""
        values = [value(each) for each in self.counted]
        known = [each for each in values if each is not None]
        return None if len(known) < len(values) else self.with_interval(known)

    def with_interval(self, values: Sequence[float]) -> MeanOfBatches:
        """Return the mean of values; of partial rollouts without an interval: batches depend on each other."""
        found = estimate(values)
        carries = self.way == "partial" and self.share < 1
        return replace(found, half_width=None) if carries else found


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Rollouts(NotebookAnswer):
    """Results of rollouts: the batches as requested (``plain``), and each alternative that might be faster.

    ``twin``: of rollouts that a user asked for.
    """

    drawn_by: ClassVar[str] = "replay.drawn_answers:of_rollouts"
    told_by: ClassVar[str] = "replay.rollouts.rollout_summary:rollouts_document"

    settings: RolloutSettings
    plain: RolloutWay
    others: tuple[RolloutWay, ...]
    twin: TwinConfig | None = None

    def __str__(self) -> str:
        """Return what a batch of each way takes, updates included, in seconds: a line each."""
        lines = []
        for each in (self.plain, *self.others):
            took = each.with_interval([self.full_us(batch) / 1e6 for batch in each.counted])
            width = "" if took.half_width is None else f" ± {took.half_width:.4g}"
            name = f"{each.way} {each.times:g}" if each.times != 1 else each.way
            lines.append(f"{name}: {took.mean:.4g} s{width} per {self.settings.number:,} answers")
        return "\n".join(lines)

    def wall_us(self, batch: BatchResult) -> float:
        """Return how long a batch takes with the update after it."""
        return batch.end_us + self.settings.update_us

    def full_us(self, batch: BatchResult) -> float:
        """Return the time, update included, per as many answers as a batch has samples."""
        return self.wall_us(batch) * self.settings.number / batch.num_answered

    def change(self, way: RolloutWay) -> MeanOfBatches:
        """Return by what share the time per N x G answers differs from the plain one's, batch by batch."""
        plain = self.plain.batches[-len(way.counted) :]
        pairs = zip(way.counted, plain, strict=True)
        return way.with_interval([self.full_us(mine) / self.full_us(other) - 1 for mine, other in pairs])


def estimate(values: Sequence[float]) -> MeanOfBatches:
    """Return the mean of values, and half the width of its 90 % t interval."""
    known = np.array(values, np.float64)
    return MeanOfBatches(mean=float(known.mean()), half_width=half_width(known) if len(known) > 1 else None)


@takes(workload=WORKLOAD, twin=TWIN)
def run_rollouts(
    workload: WorkloadOptions,
    twin: TwinConfig | str | Path,
    settings: RolloutSettings,
    *,
    advance: Callable[[], None] = lambda: None,
) -> Rollouts:
    """Simulate batches of rollouts, and each alternative that might be faster; ``advance``: called per simulation.

    ``workload``: options that say how long prompts and outputs are; one that says no shape of the outputs draws them
    lognormal. Raises ConfigError on a workload that cannot be drawn or simulated.
    """
    twin = twin_of(twin)
    most = settings.drawn(max((1.0, *settings.oversubscriptions)))
    drawn = draw_samples(long_tailed(workload), each=settings.samples, number=most, batches=settings.batches)
    prepare_engine(twin)
    return replace(rollouts_of(drawn, twin.cluster, settings, advance=advance), twin=twin)


def rollouts_of(
    drawn: Sequence[Samples],
    cluster: ClusterConfig,
    settings: RolloutSettings,
    *,
    advance: Callable[[], None] = lambda: None,
) -> Rollouts:
    """Do the same with given samples: of each batch as many as the highest oversubscription draws."""
    number, share = settings.number, settings.batch_share

    def simulated(samples: Samples) -> SimulatedBatch:
        batch = simulate_batch(samples, cluster)
        advance()
        return batch

    plain = [
        batch_result(
            simulated(each.take(slice(number))),
            wanted=num_wanted(share, number),
            asked_from=0,
            is_carried=False,
        )
        for each in drawn
    ]
    others = [
        _oversubscribed(drawn, simulated, times=times, settings=settings)
        for times in settings.oversubscriptions
    ]
    others.append(_partial(drawn, simulated, settings))
    return Rollouts(
        settings=settings,
        plain=RolloutWay(way="plain", times=1.0, share=share, batches=tuple(plain)),
        others=tuple(others),
    )


def _oversubscribed(
    drawn: Sequence[Samples],
    simulated: Callable[[Samples], SimulatedBatch],
    *,
    times: float,
    settings: RolloutSettings,
) -> RolloutWay:
    """Return batches of more samples than are wanted, ended when as many as are wanted are answered."""
    asked = settings.drawn(times)
    found = [
        batch_result(
            simulated(each.take(slice(asked))), wanted=settings.number, asked_from=0, is_carried=False
        )
        for each in drawn
    ]
    return RolloutWay(way="oversubscribed", times=times, share=1.0, batches=tuple(found))


def _partial(
    drawn: Sequence[Samples], simulated: Callable[[Samples], SimulatedBatch], settings: RolloutSettings
) -> RolloutWay:
    """Return batches that each begin with the unanswered samples of the one before, filled up with new ones."""
    number, share, found = settings.number, settings.ends_partial, []
    carried = drawn[0].take(slice(0))
    for each in drawn:
        samples = joined([carried, each.take(slice(number - len(carried)))])
        batch = simulated(samples)
        found.append(
            batch_result(batch, wanted=num_wanted(share, number), asked_from=len(carried), is_carried=True)
        )
        carried = left_over(batch, found[-1].end_us)
    return RolloutWay(way="partial", times=1.0, share=share, batches=tuple(found))


def left_over(batch: SimulatedBatch, end_us: int) -> Samples:
    """Return the samples that are not answered at a time, with what they have generated by then."""
    rows = np.flatnonzero(~batch.is_answered(end_us))
    left = batch.samples.take(rows)
    if len(rows) == 0:
        return left
    return Samples(
        prompt=left.prompt,
        prompt_tokens=left.prompt_tokens,
        output_tokens=left.output_tokens,
        generated=left.generated + batch.generated(end_us)[rows],
        common_tokens=left.common_tokens,
    )
