"""Rollouts as a JSON document: times in µs, shares of 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from replay.rollouts.rollout_batch import SHARES, BatchResult
from replay.rollouts.rollouts import MeanOfBatches, Rollouts, RolloutWay
from replay.twin.config_write import name_of

Value = Callable[[BatchResult], float | None]


class EstimateSummary(TypedDict):
    """A mean over batches, and half the width of its 90 % t interval; null of one batch."""

    mean: float
    half_width: float | None


class BatchSummary(TypedDict):
    """One batch. ``times_us``: by share of its samples; the others as ``BatchResult`` has them."""

    num_asked: int
    num_answered: int
    end_us: int
    times_us: dict[str, int]
    tail_us: int
    idle_frac: float | None
    tail_idle_frac: float | None
    tokens_per_s: float
    update_frac: float
    per_full_us: float
    kept_tokens: int
    thrown_tokens: int
    recomputed_tokens: int
    kept_mean_tokens: float
    asked_mean_tokens: float | None


class WaySummary(TypedDict):
    """Batches run one way, and means over those that count: of partial rollouts all but the first.

    ``per_full_us``: time with the update, per as many answers as a batch has samples. ``change``: of it, against the
    plain batch. ``tokens_per_s``: of answers, per second until the batch's end. ``update_frac``: the update's share of
    the time with it.
    """

    way: str
    times: float
    share: float
    num_counted: int
    end_us: EstimateSummary | None
    times_us: dict[str, EstimateSummary | None]
    idle_frac: EstimateSummary | None
    tail_idle_frac: EstimateSummary | None
    tokens_per_s: EstimateSummary | None
    update_frac: EstimateSummary | None
    per_full_us: EstimateSummary | None
    change: EstimateSummary | None
    thrown_tokens: EstimateSummary | None
    recomputed_tokens: EstimateSummary | None
    kept_mean_tokens: EstimateSummary | None
    asked_mean_tokens: EstimateSummary | None
    batches: list[BatchSummary]


class RolloutsSummary(TypedDict):
    """The settings, the plain batches, and the alternatives."""

    prompts: int
    samples: int
    batch_share: float
    update_us: int
    plain: WaySummary
    others: list[WaySummary]


def rollouts_document(found: Rollouts) -> dict[str, object]:
    """Return the JSON document."""
    twin = found.twin
    assert twin is not None, "only of rollouts that a user asked for"  # noqa: S101
    return {
        "rollouts": summarize_rollouts(found),
        "latency": {"model": name_of(twin.latency), "reason": twin.latency_reason or None},
        "unanswered": twin.unanswered_document,
        "warnings": list(twin.notes),
    }


def summarize_rollouts(found: Rollouts) -> RolloutsSummary:
    """Return the document's key ``rollouts``."""
    settings = found.settings
    return RolloutsSummary(
        prompts=settings.prompts,
        samples=settings.samples,
        batch_share=settings.batch_share,
        update_us=settings.update_us,
        plain=_way(found, found.plain),
        others=[_way(found, each) for each in found.others],
    )


def _way(found: Rollouts, way: RolloutWay) -> WaySummary:
    def mean(value: Value) -> EstimateSummary | None:
        return _estimate(way.estimate(value))

    return WaySummary(
        way=way.way,
        times=way.times,
        share=way.share,
        num_counted=len(way.counted),
        end_us=mean(lambda batch: batch.end_us),
        times_us={
            f"{share:g}": mean(lambda batch, place=place: batch.times_us[place])  # type: ignore[misc]
            for place, share in enumerate(SHARES)
        },
        idle_frac=mean(lambda batch: batch.idle_frac),
        tail_idle_frac=mean(lambda batch: batch.tail_idle_frac),
        tokens_per_s=mean(tokens_per_s),
        update_frac=mean(lambda batch: update_frac(found, batch)),
        per_full_us=mean(found.full_us),
        change=None if way is found.plain else _estimate(found.change(way)),
        thrown_tokens=mean(lambda batch: batch.thrown_tokens),
        recomputed_tokens=mean(lambda batch: batch.recomputed_tokens),
        kept_mean_tokens=mean(lambda batch: batch.kept_mean_tokens),
        asked_mean_tokens=mean(lambda batch: batch.asked_mean_tokens),
        batches=[_batch(found, each) for each in way.batches],
    )


def _batch(found: Rollouts, batch: BatchResult) -> BatchSummary:
    return BatchSummary(
        num_asked=batch.num_asked,
        num_answered=batch.num_answered,
        end_us=batch.end_us,
        times_us={f"{share:g}": time for share, time in zip(SHARES, batch.times_us, strict=True)},
        tail_us=batch.tail_us,
        idle_frac=batch.idle_frac,
        tail_idle_frac=batch.tail_idle_frac,
        tokens_per_s=tokens_per_s(batch),
        update_frac=update_frac(found, batch),
        per_full_us=found.full_us(batch),
        kept_tokens=batch.kept_tokens,
        thrown_tokens=batch.thrown_tokens,
        recomputed_tokens=batch.recomputed_tokens,
        kept_mean_tokens=batch.kept_mean_tokens,
        asked_mean_tokens=batch.asked_mean_tokens,
    )


def tokens_per_s(batch: BatchResult) -> float:
    """Return how many tokens of answers a batch has per second until its end."""
    return batch.kept_tokens / batch.end_us * 1e6


def update_frac(found: Rollouts, batch: BatchResult) -> float:
    """Return the share of the time, update included, that the update takes."""
    return found.settings.update_us / found.wall_us(batch)


def _estimate(found: MeanOfBatches | None) -> EstimateSummary | None:
    return None if found is None else EstimateSummary(mean=found.mean, half_width=found.half_width)
