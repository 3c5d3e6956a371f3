"""How many instances a pool should have: three rules, and what keeps them from following every fluctuation.

``saturation`` is llm-d's workload-variant-autoscaler in its first form. An instance is saturated when its KV usage or
its queue has reached the threshold. The spare is the mean distance to the thresholds over the instances that are not
saturated. With too little spare of either kind it adds one instance, unless one is starting. It removes one if enough
of both would be left with the whole load spread over one fewer. ``target`` is the rule of the Kubernetes HPA and of
KEDA: ceil(sum of the metric / target), unless the mean is within the tolerance of the target.
"""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass, field

from sim.cluster.infrastructure.infrastructure_config import Autoscaler, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoad:
    """A pool's load at one time.

    One entry per instance that gets requests: ``waiting``, ``running``, ``in_flight`` requests, ``kv`` usage as a
    fraction. ``num_coming``: instances on their way. ``num_queued``: requests in the gateway's queue.
    """

    waiting: tuple[int, ...]
    running: tuple[int, ...]
    in_flight: tuple[int, ...]
    kv: tuple[float, ...]
    num_coming: int
    num_queued: int

    @property
    def num_ready(self) -> int:
        """How many instances get requests."""
        return len(self.in_flight)

    @property
    def is_idle(self) -> bool:
        """Whether there is no request, on instances or in the gateway."""
        return self.num_queued == 0 and sum(self.in_flight) == 0


def wanted_by_saturation(scaler: Autoscaler, load: PoolLoad) -> int:
    """Return one more, one fewer, or the present number; requests in the gateway count as spread over instances."""
    current = load.num_ready + load.num_coming
    if load.num_ready == 0 or load.num_coming > 0:
        return max(current, 1 if load.num_queued > 0 else 0)
    share = load.num_queued / load.num_ready
    free = [
        (kv, waiting + share)
        for kv, waiting in zip(load.kv, load.waiting, strict=True)
        if kv < scaler.kv_threshold and waiting + share < scaler.queue_threshold
    ]
    if not free or not _has_spare(scaler, free, over=len(free)):
        return current + 1
    if len(free) >= 2 and _has_spare(scaler, free, over=len(free) - 1):
        return current - 1
    return current


def _has_spare(scaler: Autoscaler, loads: list[tuple[float, float]], *, over: int) -> bool:
    """Return whether these loads, spread over ``over`` instances, leave enough of both."""
    kv, queue = sum(load[0] for load in loads) / over, sum(load[1] for load in loads) / over
    return (
        scaler.kv_threshold - kv >= scaler.kv_spare and scaler.queue_threshold - queue >= scaler.queue_spare
    )


def wanted_by_target(scaler: Autoscaler, load: PoolLoad) -> int:
    """Return how many instances bring the mean of the metric to the target; requests in the gateway count as theirs."""
    assert scaler.target is not None  # noqa: S101 - checked by its class
    totals = {
        "in-flight": float(sum(load.in_flight) + load.num_queued),
        "waiting": float(sum(load.waiting) + load.num_queued),
        "running": float(sum(load.running)),
        "kv": float(sum(load.kv)),
    }
    total, current = totals[scaler.metric], load.num_ready + load.num_coming
    if current > 0 and abs(total / (current * scaler.target) - 1.0) <= scaler.tolerance:
        return current
    return max(math.ceil(total / scaler.target - 1e-9), 1 if load.num_queued > 0 else 0)


def size_at(scaler: Autoscaler, time_us: int, *, before: int) -> int:
    """Return a schedule's number at a time; ``before`` its first entry, or the last one's number if it repeats."""
    if scaler.repeat_us:
        time_us, before = time_us % scaler.repeat_us, before if time_us < scaler.repeat_us else _last(scaler)
    past = [size.instances for size in scaler.schedule if size.at_us <= time_us]
    return past[-1] if past else before


def _last(scaler: Autoscaler) -> int:
    return scaler.schedule[-1].instances


def next_change_us(scaler: Autoscaler, time_us: int) -> int | None:
    """Return when a schedule has its next entry after a time, None if it has no more."""
    start = time_us // scaler.repeat_us * scaler.repeat_us if scaler.repeat_us else 0
    times = [start + size.at_us for size in scaler.schedule]
    if scaler.repeat_us:
        times.append(start + scaler.repeat_us + _first(scaler).at_us)
    later = [at_us for at_us in times if at_us > time_us]
    return min(later) if later else None


def _first(scaler: Autoscaler) -> Size:
    return scaler.schedule[0]


@dataclass(slots=True, kw_only=True)
class Sizing:
    """An autoscaler's state: its recent targets, when it last acted, and since when there has been no request."""

    scaler: Autoscaler
    at_first: int
    wanted: list[tuple[int, int]] = field(default_factory=list)
    last_up_us: int | None = None
    last_down_us: int | None = None
    idle_since_us: int | None = None

    def __post_init__(self) -> None:
        """Begin with the present number of instances."""
        self.wanted.append((0, self.at_first))

    def size(self, load: PoolLoad, time_us: int) -> int:
        """Return how many instances there should be, and remember it if that is another number."""
        scaler, current = self.scaler, load.num_ready + load.num_coming
        if scaler.policy == "schedule":
            return size_at(scaler, time_us, before=self.at_first)
        assert scaler.max_instances is not None  # noqa: S101 - checked by its class
        rule = wanted_by_target if scaler.policy == "target" else wanted_by_saturation
        want = min(max(rule(scaler, load), self._least(load, time_us)), scaler.max_instances)
        chosen = self._stable(want, current, time_us)
        if chosen > current:
            if self.last_up_us is not None and time_us - self.last_up_us < scaler.up_cooldown_us:
                return current
            self.last_up_us = time_us
            return min(chosen, current + (scaler.max_up or chosen))
        if chosen < current:
            if self.last_down_us is not None and time_us - self.last_down_us < scaler.down_cooldown_us:
                return current
            self.last_down_us = time_us
            return max(chosen, current - (scaler.max_down or current))
        return current

    def _least(self, load: PoolLoad, time_us: int) -> int:
        """Return the least number: the last instance is removed only after a time without any request."""
        if not load.is_idle:
            self.idle_since_us = None
        elif self.idle_since_us is None:
            self.idle_since_us = time_us
        if self.scaler.min_instances > 0:
            return self.scaler.min_instances
        rests = self.idle_since_us is not None and time_us - self.idle_since_us >= self.scaler.idle_us
        return 0 if rests or load.num_ready + load.num_coming == 0 else 1

    def _stable(self, want: int, current: int, time_us: int) -> int:
        """Return the number wanted throughout the window: the least on the way up, the most on the way down."""
        scaler = self.scaler
        longest_us = max(scaler.up_window_us, scaler.down_window_us)
        self.wanted = [entry for entry in self.wanted if time_us - entry[0] <= longest_us]
        self.wanted.append((time_us, want))
        up = min(n for at_us, n in self.wanted if time_us - at_us <= scaler.up_window_us)
        down = max(n for at_us, n in self.wanted if time_us - at_us <= scaler.down_window_us)
        return up if current < up else min(current, down)

    @property
    def patience(self) -> int:
        """How many checks in a row may pass before it acts, if requests wait and no other event is planned."""
        scaler = self.scaler
        waits_us = max(scaler.up_window_us, scaler.up_cooldown_us) + scaler.actuation_us
        return 2 + waits_us // scaler.interval_us
