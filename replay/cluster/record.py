"""What the engines of a cluster wrote down, read as if one engine had."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay.trace.own_record import own_record
from sim import InterTokenLatencies, Simulation
from sim.cluster.simulation import ClusterSimulation, Instance
from sim.engine.state import State
from sim.records.results import EngineRecord, Totals
from sim.records.steps import Step
from sim.requests import Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRecord(EngineRecord):
    """The records of several engines; ``instance``: of each request, the number of its engine or -1.

    ``state`` is the first engine's, its counts of steps those of all.
    """

    instances: tuple[Instance, ...]
    instance: NDArray[np.int32]

    def inter_token_latencies(self) -> InterTokenLatencies:
        """Return the gaps between the tokens of all requests, each taken from its own engine."""
        n = len(self.instance)
        mean_us, p99_us = np.full(n, np.nan), np.full(n, np.nan)
        values, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for number, each in enumerate(self.instances):
            rows = np.flatnonzero(self.instance == number)
            gaps = own_record(each.written, rows).inter_token_latencies()
            mean_us[rows], p99_us[rows] = gaps.mean_us, gaps.p99_us
            values.append(gaps.gaps_us)
            counts.append(gaps.counts)
        gaps_us, place = np.unique(np.concatenate(values), return_inverse=True)
        pooled = np.zeros(len(gaps_us), np.int64)
        np.add.at(pooled, place, np.concatenate(counts))
        return InterTokenLatencies(mean_us=mean_us, p99_us=p99_us, gaps_us=gaps_us, counts=pooled)

    def of_requests(self, rows: Int64s) -> FleetRecord:
        """Return the same records as if no others but these requests had been served."""
        instance = np.full_like(self.instance, -1)
        instance[rows] = self.instance[rows]
        return replace(self, instance=instance)

    def tokens(self, num_taken: Int64s | None = None) -> tuple[Int64s, Int64s]:
        """Return (request, time_us) of every token, engine after engine, each in the order of its steps.

        The token of an engine that computes a prompt for another goes to no client.
        """
        requests, times = [], []
        for number, each in enumerate(self.instances):
            request, time_us = each.written.tokens(num_taken)
            is_own = self.instance[request] == number
            requests.append(request[is_own])
            times.append(time_us[is_own])
        return np.concatenate(requests), np.concatenate(times)

    def steps(self) -> list[Step]:
        """Refuse: steps belong to one engine (``instances[i].written``)."""
        raise NotImplementedError("the steps of several engines are no one list")


def as_simulation(result: ClusterSimulation) -> Simulation:
    """Return a cluster's run as one simulation: what was counted is counted over all its engines."""
    first = result.instances[0].written
    states = [each.written.state for each in result.instances]
    state: State = first.state._replace(
        batch_sizes=_summed([each.batch_sizes for each in states]),
        step_times=_summed([each.step_times for each in states]),
    )
    totals = {
        item.name: sum(getattr(each, item.name) for each in result.instances) for item in fields(Totals)
    }
    return Simulation(
        outcomes=result.outcomes,
        duration_us=result.duration_us,
        num_running=0,
        num_waiting=0,
        engine_cpu_s=result.engine_cpu_s,
        written=FleetRecord(
            state=state,
            config=first.config,
            latency=first.latency,
            record=first.record,
            instances=result.instances,
            instance=result.instance,
        ),
        **totals,
    )


def _summed(counts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the sum of counts by number; engines have different numbers of seats."""
    total = np.zeros(max(map(len, counts)), np.int64)
    for each in counts:
        total[: len(each)] += each
    return total
