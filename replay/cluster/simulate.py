"""A trace in, a simulated trace out: by a cluster, the smallest of which is one server."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from replay.cluster.memory import return_freed
from replay.cluster.record import as_simulation, without_logs
from replay.cluster.work import cluster_work
from replay.numbers.argument_ranges import CONCURRENCY, TIME_US
from replay.trace.client_network import at_client, client_network
from replay.trace.pacing import Loop, Pacing, pacing_of
from replay.trace.refusals import refusals
from replay.trace.request_columns import At
from replay.trace.with_outcomes import simulated_trace
from replay.twin.config_read import twin_of
from sim import InvalidConfig, Simulation
from sim.cluster import EXIT_MEANINGS, ClusterSimulation, Exit, Split, simulate_cluster
from traces import Cells, ConfigError, cells_where
from traces.strict.arguments import TRACE, TWIN, takes

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from sim import Record, Requests
    from sim.cluster import ClusterConfig, ClusterWork
    from traces import Trace

AT_THE_GATEWAY = (
    Exit.REJECTED,
    Exit.QUEUE_FULL,
    Exit.SHED,
    Exit.EXPIRED,
    Exit.EVICTED,
    Exit.DROPPED,
    Exit.NOT_SENT,
    Exit.LOST,
)
"""Exits that the gateway causes, not the server; a trace gives them in ``error_message``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun:
    """A trace that a cluster served: ``trace`` with its outcomes, the run as one ``simulation`` and as it is.

    ``until_us``: the horizon that cut it.
    """

    trace: Trace
    simulation: Simulation
    result: ClusterSimulation
    work: ClusterWork
    until_us: int | None = None


def simulate_fleet(  # noqa: PLR0913 - what a run is asked for, each by itself
    trace: Trace,
    cluster: ClusterConfig,
    pacing: Pacing,
    *,
    record: Record = "spans",
    records_decisions: bool = False,
    points: int | None = None,
    until_us: int | None = None,
    keeps_logs: bool = True,
    has_gateway: bool = True,
    requests: Requests | None = None,
) -> FleetRun:
    """Return the trace as a cluster serves it. Raises TraceError where a row lacks a time or a length.

    With ``record="spans"`` each request carries its mean and 99th percentile of inter-token latencies, with
    ``"tokens"`` the trace has an event per token. With ``has_gateway`` each has the ``instance`` that it was sent to,
    where the gateway has a queue its time there, where KV can be moved the instance that computed its prompt and the
    times of the transfer, and where the gateway ended it the reason as ``error_message``. ``points``, ``until_us``: as
    ``simulate_cluster``'s. Without ``keeps_logs`` a run with record ``spans`` takes less memory, and cannot give the
    tokens of some of its requests. ``requests``: the trace's, as paced, if already made.
    """
    work = cluster_work(trace, pacing, cluster, requests=requests)
    try:
        result = simulate_cluster(
            work,
            cluster,
            record=record,
            records_decisions=records_decisions,
            points=points,
            until_us=until_us,
        )
    except InvalidConfig as error:  # of a user's own policy, or what a cluster cannot do
        raise ConfigError(f"cluster: {error}") from error
    simulation = as_simulation(result)
    if record == "spans" and not keeps_logs:
        result, simulation = without_logs(result, simulation)
        return_freed()
    simulated = simulated_trace(trace, simulation, is_closed_loop=pacing.leaves_times_open)
    reasons = _reasons(work, result, cluster, has_gateway=has_gateway)
    simulated = simulated.with_columns(
        **(_gateway_columns(result, cluster) if has_gateway else {}), **reasons
    )
    simulated = at_client(simulated, client_network(trace, pacing))
    return FleetRun(trace=simulated, simulation=simulation, result=result, work=work, until_us=until_us)


@takes(trace=TRACE, config=TWIN, max_concurrency=CONCURRENCY, horizon_us=TIME_US)
def simulate_trace(
    trace: Trace,
    config: TwinConfig | str | Path,
    *,
    at: At = "auto",
    closed_loop: Loop = "auto",
    record: Record = "spans",
    max_concurrency: int | None = None,
    horizon_us: int | None = None,
    requests: Requests | None = None,
) -> tuple[Trace, Simulation]:
    """Return the trace with the simulator's outcomes in place of its own, and the simulation itself.

    ``record``, ``requests``: as ``simulate_fleet``'s. ``max_concurrency``: the cap of the client that recorded the
    trace, where its header does not give it. ``horizon_us``: the run's end; requests not finished by then are
    ``incomplete``. Rounds that wait for answers have their recorded times. Raises TraceError where a row lacks a time
    or a length.
    """
    twin = twin_of(config)
    done = simulate_fleet(
        trace,
        twin.cluster,
        pacing_of(trace, closed_loop, at=at, max_concurrency=max_concurrency),
        record=record,
        until_us=horizon_us,
        has_gateway=not twin.is_plain_server,
        requests=requests,
    )
    return done.trace, done.simulation


def _gateway_columns(result: ClusterSimulation, cluster: ClusterConfig) -> dict[str, object]:
    """Return the columns that only a cluster has."""
    names = np.array([*cluster.instance_names, None], dtype=object)
    columns: dict[str, object] = {"instance": _named(result.instance, names)}
    if result.split is not None:
        columns |= _handoff_columns(result.split, names)
    if cluster.flow_control is not None:
        waited = result.dispatched_us - result.admitted_us
        columns["gateway_queue_us"] = cells_where(waited, result.dispatched_us >= 0)
    if result.attempts is not None:
        was_sent = result.attempts.num > 0
        columns["attempt"] = cells_where(result.attempts.num, was_sent)
        sent_us = result.attempts.arrival_us.reshape(-1)[result.row]
        columns["send_time_us"] = cells_where(sent_us, was_sent)
    return columns


def _named(instance: NDArray[Any], names: NDArray[Any]) -> Cells:
    """Return the instances' names by their numbers; empty where it is -1, the number of the last name, None."""
    return cells_where(names[instance], instance >= 0)


def _reasons(
    work: ClusterWork, result: ClusterSimulation, cluster: ClusterConfig, *, has_gateway: bool
) -> dict[str, object]:
    """Return why requests were not answered, as ``error_message``: the gateway's reason, or the instance's."""
    found = np.full(len(result.exit), "", dtype=object)
    pool_of = np.array([each.pool for each in result.instances])[np.maximum(result.instance, 0)]
    for number, pool in enumerate(cluster.pools):
        own = (result.instance >= 0) & (pool_of == number)
        found[own] = refusals(
            result.outcomes.status[own],
            pool.engine,
            prompt_tokens=work.requests.prompt_tokens[own],
            output_tokens=work.requests.output_tokens[own],
        )
    for way in AT_THE_GATEWAY if has_gateway else ():
        found[result.exit == int(way)] = f"{exit_name(way)}: {EXIT_MEANINGS[way]}"
    known = found != ""
    return {"error_message": cells_where(found, known)} if known.any() else {}


def _handoff_columns(split: Split, names: NDArray[Any]) -> dict[str, object]:
    """Return which instance computed each prompt for another one, and when its KV moved; NA where none did."""
    times = {
        "prefill_end_time_us": split.prefilled_us,
        "kv_transfer_start_time_us": split.transfer_start_us,
        "kv_transfer_end_time_us": split.transfer_end_us,
    }
    return {
        "prefill_instance": _named(split.prefill_instance, names),
        **{name: cells_where(values, values >= 0) for name, values in times.items()},
    }


def exit_name(way: Exit) -> str:
    """Return an exit as the JSON names it."""
    return way.name.lower()
