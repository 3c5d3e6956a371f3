"""The network between each client and the server, as a specification's ``network`` puts it into a trace's columns.

A request takes half a round trip and the upload of its prompt to reach the server. Each token takes half a round trip
back, and the download spreads over the answer: nothing by the first token, all of it by the last. So TTFT grows by the
round trip and the upload, E2E by the download, too. A token is 4 bytes of text (as BLIS has it); 1 Mbit/s is 1 bit/µs.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sim import Requests
from traces import cells_where, prompt_tokens

if TYPE_CHECKING:
    from replay.trace.pacing import Pacing
    from traces import Trace

Int64s = NDArray[np.int64]

BITS_PER_TOKEN = 32
NEVER = -1
"""The value of a missing deadline (``sim.Requests``)."""
COLUMNS = ("network_rtt_us", "network_bandwidth_mbps")
FIRST = ("first_chunk_time_us", "content_first_time_us")
LAST = ("last_chunk_time_us", "last_token_time_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientNetwork:
    """Per request, µs: ``there_us`` to the server, ``back_us`` of a token, ``bits_per_us`` (inf: no limit)."""

    there_us: Int64s
    back_us: Int64s
    bits_per_us: NDArray[np.float64]

    def download_us(self, num_tokens: Int64s) -> Int64s:
        """Return how long answers of this many tokens take to download."""
        return np.rint(num_tokens * BITS_PER_TOKEN / self.bits_per_us).astype(np.int64)


def client_network(trace: Trace, pacing: Pacing) -> ClientNetwork | None:
    """Return a trace's client networks; None if it has none, or if they cannot be simulated.

    Where answers set the pace the engine releases the next request at once, without a round trip between them. The
    times of a measured trace include its network already.
    """
    if not says_network(trace) or paced_by_answers(pacing):
        return None
    rtt = trace.cells("network_rtt_us").values
    speed = trace.cells("network_bandwidth_mbps").filled(np.inf)
    bits_per_us = np.where(speed > 0, speed, np.inf)
    upload = np.rint(prompt_tokens(trace) * BITS_PER_TOKEN / bits_per_us).astype(np.int64)
    return ClientNetwork(there_us=rtt // 2 + upload, back_us=rtt - rtt // 2, bits_per_us=bits_per_us)


def says_network(trace: Trace) -> bool:
    """Return whether any request of a workload comes over a network of its own."""
    return trace.header.mode != "real" and any(bool(trace.cells(name).is_known.any()) for name in COLUMNS)


def paced_by_answers(pacing: Pacing) -> bool:
    """Return whether answers decide when requests are sent."""
    return pacing.is_by_answers


def at_server(requests: Requests, network: ClientNetwork | None) -> Requests:
    """Return requests as they reach the server."""
    if network is None:
        return requests
    deadline_us = requests.deadline_us
    if deadline_us is not None:  # an answer that leaves the server then comes just in time
        way_us = network.back_us + network.download_us(requests.output_tokens)
        deadline_us = np.where(deadline_us < 0, deadline_us, np.maximum(deadline_us - way_us, 0))
    return replace(requests, arrival_us=requests.arrival_us + network.there_us, deadline_us=deadline_us)


def at_client(simulated: Trace, network: ClientNetwork | None) -> Trace:
    """Return a simulated trace with the times that the client sees: sent earlier, answered later."""
    if network is None:
        return simulated
    output = simulated.cells("output_tokens").values
    download = network.download_us(output)
    shifts = {"send_time_us": -network.there_us}
    shifts |= dict.fromkeys(FIRST, network.back_us) | dict.fromkeys(LAST, network.back_us + download)
    columns: dict[str, object] = {}
    for name, by in shifts.items():
        if name in simulated.table:
            cells = simulated.cells(name)
            columns[name] = cells_where(cells.values + by, cells.is_known)
    per_gap = download / np.maximum(output - 1, 1)
    for name in ("itl_mean_us", "itl_p99_us"):
        if name in simulated.table:
            columns[name] = np.round(simulated.cells(name).floats() + per_gap, 3)
    return _with_events(simulated.with_columns(**columns), network, per_gap=per_gap)


def _with_events(simulated: Trace, network: ClientNetwork, *, per_gap: NDArray[np.float64]) -> Trace:
    """Return the trace with its tokens' times as the client sees them."""
    if simulated.events is None:
        return simulated
    from traces import request_codes

    rows = request_codes(simulated.events, simulated.requests)
    place = simulated.events["chunk_index"].to_numpy(np.int64)
    later = network.back_us[rows] + np.rint(per_gap[rows] * place).astype(np.int64)
    moved = simulated.events["timestamp_us"] + later
    return simulated.with_events(simulated.events.assign(timestamp_us=moved))
