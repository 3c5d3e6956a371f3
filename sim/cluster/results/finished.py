"""A cluster's finished run: outcomes by request, and what each instance did."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sim.cluster.exits import Exit
from sim.cluster.infrastructure.instance_lives import Infrastructure
from sim.records.run_results import EngineRecord, Totals
from sim.requests import Int64s, Outcomes

if TYPE_CHECKING:
    from sim.cluster.results.attempts import Attempts
    from sim.cluster.results.watching import FleetOverTime
    from sim.cluster.run.world import DecisionLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """Requests that are UNFINISHED at a horizon: running, waiting at an instance or for KV, or still in the gateway.

    All others that are UNFINISHED had not arrived.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_in_gateway: int = 0


NOTHING_UNDONE = Undone()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance(Totals):
    """One engine of a finished run: its name, its pool, and what it did."""

    name: str
    pool: int
    written: EngineRecord
    num_cache_queries: int
    num_cache_hits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Which instance computed each of n prompts, and when the KV moved; -1 where another instance did not.

    ``prefill_instance``: its number. ``prefilled_us``: the gateway saw its token. ``transfer_start_us``: the decode
    instance asked for the KV; ``transfer_end_us``. ``transfer_blocks``: KV blocks moved, 0 where none were.
    ``num_started``, ``num_ended``, ``num_cut_off``: transfers; the last by the failure of one of their ends.
    """

    prefill_instance: NDArray[np.int32]
    prefilled_us: Int64s
    transfer_start_us: Int64s
    transfer_end_us: Int64s
    transfer_blocks: Int64s
    num_started: int
    num_ended: int
    num_cut_off: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSimulation:
    """The outcomes of n requests in a cluster; columns in the order of the requests, times in µs, -1 where never.

    ``outcomes``: as of a single engine; ``queued_us``, ``scheduled_us`` are the instance's. ``instance``: int32, its
    number. ``exit``: int16, an ``Exit``. ``admitted_us``, ``dispatched_us`` (left the gateway's queue), ``routed_us``.
    ``split`` None: nothing can be moved between instances; otherwise ``queued_us``, ``scheduled_us`` and the cached
    tokens of a request whose prompt another instance computed are that one's, its tokens are the decode instance's.
    ``left_us``: when it was gone, for any reason. ``over_time``: None unless requested. ``engine_cpu_s``: CPU time of
    this thread. ``infrastructure``: the instances' lives. ``attempts`` None: no client retries; otherwise the columns
    are those of each request's last attempt, its arrival that of the first, and ``row`` is that attempt's row in the
    engines' tables. ``undone``: the requests that a horizon cut off, by where they were.
    """

    outcomes: Outcomes
    instance: NDArray[np.int32]
    exit: NDArray[np.int16]
    admitted_us: Int64s
    dispatched_us: Int64s
    routed_us: Int64s
    left_us: Int64s
    split: Split | None
    instances: tuple[Instance, ...]
    decisions: DecisionLog | None
    duration_us: int
    engine_cpu_s: float
    infrastructure: Infrastructure
    attempts: Attempts | None = None
    over_time: FleetOverTime | None = None
    undone: Undone = NOTHING_UNDONE

    @property
    def row(self) -> Int64s:
        """Each request's row in the engines' tables."""
        return np.arange(len(self.exit)) if self.attempts is None else self.attempts.last_row

    @property
    def num_by_exit(self) -> dict[Exit, int]:
        """How many requests left in each way; their sum is the number of requests."""
        return {way: int((self.exit == way).sum()) for way in Exit}
