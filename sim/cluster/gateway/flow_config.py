"""The gateway queue's settings."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, field
from typing import Literal

from sim.cluster.gateway.admission import check_positive
from sim.cluster.setting_checks import check_choice, check_flag, check_integer, check_number

Order = Literal["fifo", "priority", "slo-deadline"]
Fairness = Literal["global-strict", "round-robin"]
Detector = Literal["utilization", "concurrency", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowControl:
    """A queue in the gateway that hands requests over only while the fleet is not saturated.

    A request's band is its SLO priority. ``order`` fifo: the earliest first, of whichever band; priority: the
    highest band first, within it the earliest; slo-deadline: the highest band first, within it the earliest
    deadline, which is when it was queued + its ``slo_target_us``, else its class's of ``slo_targets_us``, else
    never. ``fairness`` round-robin: within a band, tenants in turn.

    ``detector`` utilization: the mean of max(waiting / ``queue_threshold``, KV usage / ``kv_threshold``);
    concurrency: requests in flight / (instances * ``max_concurrency``). Of n bands the i-th from the top, from 0, is
    served while saturation < 1 - i * (1 - ``lowest_ceiling``) / (n - 1).

    ``capacity``, ``band_capacity``: requests in all, and in each band; 0 has no limit. A request that finds the queue
    full is rejected; with ``sheds``, where the whole queue is full, the newest of the lowest sheddable band is dropped
    for a request of a higher one. With ``evicts``, while the fleet is saturated and a request that may not be shed
    waits, a sheddable one in flight is taken off its instance. ``ttl_us``: a request that has waited this long expires;
    0: never.
    """

    order: Order = "priority"
    fairness: Fairness = "global-strict"
    detector: Detector = "utilization"
    queue_threshold: float = 5
    kv_threshold: float = 0.8
    max_concurrency: int = 100
    lowest_ceiling: float = 1.0
    capacity: int = 0
    band_capacity: int = 0
    sheds: bool = False
    evicts: bool = False
    ttl_us: int = 0
    slo_targets_us: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the settings."""
        check_choice("order", self.order, Order)
        check_choice("fairness", self.fairness, Fairness)
        check_choice("detector", self.detector, Detector)
        check_positive("queue_threshold", self.queue_threshold)
        check_positive("kv_threshold", self.kv_threshold)
        check_integer("max_concurrency", self.max_concurrency, least=1)
        check_number("lowest_ceiling", self.lowest_ceiling, least=0, most=1)
        for name in ("capacity", "band_capacity", "ttl_us"):
            check_integer(name, getattr(self, name), least=0)
        check_flag("sheds", self.sheds)
        check_flag("evicts", self.evicts)
        for slo_class, target_us in self.slo_targets_us.items():
            check_integer(f"slo_targets_us.{slo_class}", target_us, least=0)
