"""The records of a cluster's engines, read as one engine's."""

from __future__ import annotations

from lazy_dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay.trace.own_record import own_record
from sim import EngineRecord, Int64s, InterTokenLatencies, Simulation, State, Step, Totals
from sim.cluster import ClusterSimulation, Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRecord(EngineRecord):
    """The records of several engines; of each request, ``instance``: the number of its engine or -1, ``row``: its row.

    ``state`` is the first engine's, its counts of steps those of all. ``found``: the gaps between tokens, once
    computed: the trace and the summary need them. Without ``has_logs`` nothing else is known of tokens.
    """

    instances: tuple[Instance, ...]
    instance: NDArray[np.int32]
    row: Int64s
    found: list[InterTokenLatencies] = field(default_factory=list, compare=False)
    has_logs: bool = True

    def inter_token_latencies(self) -> InterTokenLatencies:
        """Return the gaps between the tokens of all requests, each taken from its own engine."""
        if not self.found:
            self.found.append(self._inter_token_latencies())
        return self.found[0]

    def _inter_token_latencies(self) -> InterTokenLatencies:
        n = len(self.instance)
        if len(self.instances) == 1 and (self.instance == 0).all() and (self.row == np.arange(n)).all():
            return self.instances[0].written.inter_token_latencies()
        mean_us, p99_us = np.full(n, np.nan), np.full(n, np.nan)
        values, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        order = np.lexsort((self.row, self.instance))
        bounds = np.searchsorted(self.instance[order], np.arange(len(self.instances) + 1))
        for number, each in enumerate(self.instances):
            requests = order[bounds[number] : bounds[number + 1]]
            if len(requests) == 0:
                continue
            gaps = own_record(each.written, self.row[requests]).inter_token_latencies()
            mean_us[requests], p99_us[requests] = gaps.mean_us, gaps.p99_us
            values.append(gaps.gaps_us)
            counts.append(gaps.counts)
        gaps_us, place = np.unique(np.concatenate(values), return_inverse=True)
        pooled = np.bincount(place, np.concatenate(counts), minlength=len(gaps_us)).astype(np.int64)
        return InterTokenLatencies(mean_us=mean_us, p99_us=p99_us, gaps_us=gaps_us, counts=pooled)

    def of_requests(self, rows: Int64s) -> FleetRecord:
        """Return the same records as if no others but these requests had been served. Needs ``has_logs``."""
        self._check_has_logs()
        instance = np.full_like(self.instance, -1)
        instance[rows] = self.instance[rows]
        return replace(self, instance=instance, found=[])

    def tokens(self, num_taken: Int64s | None = None) -> tuple[Int64s, Int64s]:
        """Return (request, time_us) of every token, engine after engine, each in the order of its steps.

        A prefill instance's token goes to no client. Of requests that were sent again, the last attempt counts.
        """
        self._check_has_logs()
        requests, times, n = [], [], len(self.row)
        for number, each in enumerate(self.instances):
            row, time_us = each.written.tokens(num_taken)
            request = row % n
            is_own = (self.instance[request] == number) & (self.row[request] == row)
            requests.append(request[is_own])
            times.append(time_us[is_own])
        return np.concatenate(requests), np.concatenate(times)

    def _check_has_logs(self) -> None:
        if not self.has_logs:
            raise RuntimeError("the engines' logs were freed")

    def steps(self) -> list[Step]:
        """Return the steps of the only engine; those of several are no one list (``instances[i].written``)."""
        if len(self.instances) == 1:
            return self.instances[0].written.steps()
        raise NotImplementedError("the steps of several engines are no one list")


def without_logs(result: ClusterSimulation, simulation: Simulation) -> tuple[ClusterSimulation, Simulation]:
    """Return a run and ``as_simulation`` of it without the engines' logs, which take a third of a long run's memory.

    The gaps between tokens are computed before.
    """
    written = simulation.written
    assert isinstance(written, FleetRecord)  # noqa: S101 - of a cluster
    written.inter_token_latencies()
    instances = tuple(_without_log(each) for each in result.instances)
    state = _emptied(written.state)
    written = replace(written, state=state, instances=instances, has_logs=False)
    return replace(result, instances=instances), replace(simulation, written=written)


def _without_log(instance: Instance) -> Instance:
    written = instance.written
    return replace(instance, written=replace(written, state=_emptied(written.state)))


def _emptied(state: State) -> State:
    """Return a state without its records of tokens."""
    return state._replace(**{name: getattr(state, name)[:0].copy() for name in LOGS})


LOGS = ("log", "spans", "pauses", "tokens", "completions", "requests")
"""Arrays of a state that grow with the requests of a run and their tokens; the last is one for all engines."""


def as_simulation(result: ClusterSimulation) -> Simulation:
    """Return a cluster's run as one simulation, with counts over all its engines."""
    first = result.instances[0].written
    states = [each.written.state for each in result.instances]
    state: State = first.state._replace(
        batch_sizes=_summed([each.batch_sizes for each in states]),
        step_tokens=_summed([each.step_tokens for each in states]),
        step_times=_summed([each.step_times for each in states]),
    )
    totals = {
        item.name: sum(getattr(each, item.name) for each in result.instances) for item in fields(Totals)
    }
    return Simulation(
        outcomes=result.outcomes,
        duration_us=result.duration_us,
        num_running=result.undone.num_running,
        num_waiting=result.undone.num_waiting,
        num_in_gateway=result.undone.num_in_gateway,
        engine_cpu_s=result.engine_cpu_s,
        written=FleetRecord(
            state=state,
            config=first.config,
            latency=first.latency,
            record=first.record,
            instances=result.instances,
            instance=result.instance,
            row=result.row,
        ),
        **totals,
    )


def _summed(counts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the sum of counts by number; engines have different numbers of seats."""
    total = np.zeros(max(map(len, counts)), np.int64)
    for each in counts:
        total[: len(each)] += each
    return total
