"""The network between client and server: removed from a client's times, and added to an engine's.

A request takes half a round trip and the upload of its prompt to reach the server; each token takes half a round trip
back, and all of them the download. So TTFT and E2E grow by RTT + upload, E2E by the download, too.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from traces import ConfigError
from traces.statistics.bootstrap import Floats

if TYPE_CHECKING:
    from traces import Trace

BYTES_PER_TOKEN = 4.0
"""Bytes of one token's text, about the average of English (and BLIS's value)."""
BITS_PER_BYTE = 8
FROM_SERVER = ("first_chunk_time_us", "content_first_time_us")
ENDS = ("last_chunk_time_us", "last_token_time_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFigures:
    """Round trip in µs; bandwidth in Mbit/s, None for one that never binds."""

    rtt_us: float = 0.0
    bandwidth_mbit_per_s: float | None = None
    bytes_per_token: float = BYTES_PER_TOKEN

    def transfer_us(self, tokens: Floats) -> Floats:
        """Return how long the text of this many tokens takes; 1 Mbit/s is 1 bit/µs."""
        if self.bandwidth_mbit_per_s is None:
            return np.zeros(len(tokens))
        return tokens * self.bytes_per_token * BITS_PER_BYTE / self.bandwidth_mbit_per_s


def parse_network(text: str, *, measured_rtt_ms: float | None) -> NetworkFigures:
    """Return the network of ``rtt=2ms,bandwidth=100``; ``rtt=measured`` is the round trip in the trace's header.

    Raises ConfigError.
    """
    given: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name == "rtt":
            given["rtt_us"] = _rtt_us(value, measured_rtt_ms)
        elif name in ("bandwidth", "bytes_per_token"):
            key = "bandwidth_mbit_per_s" if name == "bandwidth" else name
            given[key] = _positive(name, value)
        else:
            raise ConfigError(
                f"--network: got {name!r}, expected rtt, bandwidth or bytes_per_token (rtt=2ms,bandwidth=100)"
            )
    return NetworkFigures(**given)


def server_view(trace: Trace, network: NetworkFigures) -> Trace:
    """Return the requests as the server received them: sent later by the upload, answered earlier by the download."""
    return _moved(trace, network, sign=-1)


def client_view(trace: Trace, network: NetworkFigures) -> Trace:
    """Return a simulated trace as the client would have seen it over this network."""
    return _moved(trace, network, sign=1)


def _moved(trace: Trace, network: NetworkFigures, *, sign: int) -> Trace:
    """Return the trace seen from the other end of the network: ``sign`` 1 from the server's to the client's."""
    from traces import prompt_tokens, send_or_arrival_us

    half = network.rtt_us / 2
    there = half + network.transfer_us(prompt_tokens(trace).astype(np.float64))
    output = trace.column("output_tokens").fillna(0).to_numpy(dtype=np.float64)
    back = half + network.transfer_us(output)
    shifts = {
        "send_time_us": -there,
        **dict.fromkeys(FROM_SERVER, np.full(len(trace), half)),
        **dict.fromkeys(ENDS, back),
    }
    columns = {
        name: _shifted(trace.column(name), sign * by)
        for name, by in shifts.items()
        if name in trace.requests.columns and name != "send_time_us"
    }
    sent = np.asarray(send_or_arrival_us(trace), dtype=np.float64) + sign * shifts["send_time_us"]
    columns["send_time_us"] = pd.Series(pd.array(np.rint(sent).astype(np.int64), dtype="Int64"))
    if sign > 0:
        is_loop = trace.header.closed_loop is not None  # its requests are due when they are sent
        return trace.with_columns(
            **columns, **({"arrival_time_us": columns["send_time_us"]} if is_loop else {})
        )
    return _with_think_time(trace.with_columns(**columns), by_us=network.rtt_us)


def _with_think_time(trace: Trace, *, by_us: float) -> Trace:
    """Return a closed loop's trace whose users take a round trip longer, which the server sees as think time."""
    from dataclasses import replace

    loop = trace.header.closed_loop
    if loop is None:
        return trace
    return trace.with_header(closed_loop=replace(loop, think_time_us=loop.think_time_us + round(by_us)))


def _shifted(column: pd.Series[int], by_us: Floats) -> pd.Series[int]:
    return column + pd.Series(pd.array(np.rint(by_us).astype(np.int64), dtype="Int64"), index=column.index)


def _rtt_us(value: str, measured_rtt_ms: float | None) -> float:
    from typer import BadParameter

    from traces import parse_seconds

    if value == "measured":
        if measured_rtt_ms is None:
            raise ConfigError(
                "--network: got rtt=measured, and the trace's header has no network.measured_rtt_ms"
            )
        return measured_rtt_ms * 1e3
    try:
        seconds = parse_seconds(value)
    except BadParameter as error:
        raise ConfigError(f"--network rtt: {error.message}") from error
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"--network rtt: got {value!r}, expected a time >= 0, or measured")
    return seconds * 1e6


def _positive(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0 < number < float("inf"):
        unit = "Mbit/s" if name == "bandwidth" else "bytes"
        raise ConfigError(f"--network {name}: got {value!r}, expected a number > 0, in {unit}")
    return number
