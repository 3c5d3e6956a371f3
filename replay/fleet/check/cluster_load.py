"""The load of a simulated cluster: draws of a stream as work for its engines, and the network that clients see."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from replay.cluster.work import cluster_work
from replay.fleet.check.drawn_requests import Stream, drawn_rows, requests_at
from replay.trace.client_network import ClientNetwork, client_network
from replay.trace.pacing import pacing_of
from sim import Outcomes
from sim.cluster import ClusterConfig, ClusterSimulation, ClusterWork, simulate_cluster

if TYPE_CHECKING:
    from traces import Trace

Ints = NDArray[np.int64]

KEPT = 2
"""This many loads are kept for the next number of engines: a search asks for the same ones again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLoad:
    """Requests for a cluster. ``rows``: of the stream's lengths, int64 [n]. ``last_s``: the last draw's beginning.

    ``network``: between clients and servers, None: times are the servers'.
    """

    work: ClusterWork
    rows: Ints
    last_s: float
    network: ClientNetwork | None = None

    def simulated(self, cluster: ClusterConfig) -> ClusterSimulation:
        """Return what a cluster makes of it, in the clients' times."""
        done = simulate_cluster(self.work, cluster)
        if self.network is None:
            return done
        return replace(done, outcomes=_at_client(done.outcomes, self.network))


def load_of(stream: Stream, number: int, cluster: ClusterConfig, *, seed: int) -> ClusterLoad:
    """Return this many requests of a stream, a function of the seed: whole ones of a trace, else of its lengths.

    Raises TraceError where prefix hashes do not fit the engines' blocks.
    """
    if stream.requests is None:
        arrival_s, rows = drawn_rows(stream, number, seed=seed)
        work = ClusterWork(requests=requests_at(arrival_s, stream.lengths.at(rows)))
        return ClusterLoad(work=work, rows=rows, last_s=_last(arrival_s))
    engines = tuple(
        (pool.engine.hash_block_size, pool.engine.enable_prefix_caching) for pool in cluster.pools
    )
    prompts = stream.lengths.input_tokens.tobytes()
    key = (stream.rate_per_s, stream.arrivals, stream.share, stream.part, number, seed, engines, prompts)
    kept = stream.requests.loads
    if key not in kept:
        kept[key] = _whole(stream, number, cluster, seed=seed)
        for old in list(kept)[:-KEPT]:
            del kept[old]
    return cast("ClusterLoad", kept[key])


def _whole(stream: Stream, number: int, cluster: ClusterConfig, *, seed: int) -> ClusterLoad:
    """Return draws of whole requests: prefixes, adapters, grammars, images and deadlines, and rounds that wait."""
    assert stream.requests is not None  # noqa: S101 - the caller has looked
    begins_s, session = drawn_rows(stream, number, seed=seed)
    found = stream.requests.drawn(begins_s, session)
    trace = found.trace
    if not any(pool.engine.enable_prefix_caching for pool in cluster.pools):
        trace = _without_hashes(trace)
    pacing = pacing_of(trace, simulates_rounds=True)
    work = cluster_work(trace, pacing, cluster)
    prompts = stream.lengths.input_tokens[found.row].astype(np.int64)
    if not np.array_equal(prompts, work.requests.prompt_tokens):  # cut by a router that compresses
        work = replace(work, requests=replace(work.requests, prompt_tokens=prompts))
    return ClusterLoad(
        work=work, rows=found.row, last_s=_last(begins_s), network=client_network(trace, pacing)
    )


def _without_hashes(trace: Trace) -> Trace:
    """Return a trace for engines that keep no prefixes: their blocks may have any size."""
    return trace.without_columns("prefix_hashes", "num_parent_hashes")


def _last(times: NDArray[np.float64]) -> float:
    return float(np.rint(times[-1] * 1e6)) / 1e6


def _at_client(out: Outcomes, network: ClientNetwork) -> Outcomes:
    """Return outcomes with the times that clients see: sent earlier, answered later."""
    download = network.download_us(out.num_output_tokens)
    first, last = out.first_token_us, out.last_token_us
    return replace(
        out,
        arrival_us=out.arrival_us - network.there_us,
        first_token_us=np.where(first >= 0, first + network.back_us, first),
        last_token_us=np.where(last >= 0, last + network.back_us + download, last),
    )
