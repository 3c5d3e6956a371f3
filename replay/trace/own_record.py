"""An engine's records of some of its requests, as if it had served no others."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sim import EngineRecord, Int64s, InterTokenLatencies, rows_taken


@runtime_checkable
class Restrictable(Protocol):
    """A record of several engines that has the engine of each request."""

    def of_requests(self, rows: Int64s) -> EngineRecord:
        """Return the same records as if no others but these requests had been served."""


def gaps_of_requests(written: EngineRecord, rows: Int64s) -> InterTokenLatencies:
    """Return the gaps between the tokens of some requests; ``rows`` ascend. Needs ``record="spans"``."""
    if isinstance(written, Restrictable):
        return written.of_requests(rows).inter_token_latencies()
    return own_record(written, rows).inter_token_latencies()


def own_record(written: EngineRecord, rows: Int64s) -> EngineRecord:
    """Return an engine's record with only these requests, numbered 0, 1, …; ``rows`` ascend."""
    state = written.state
    engine = state.engine.copy()
    engine["queues"]["num_requests"] = len(rows)
    engine["settings"]["is_closed_loop"] = (
        0  # a request that a loop still holds has no tokens, and `held` has other numbers
    )

    own = rows_taken(state, rows)._replace(
        engine=engine,
        pauses=_renumbered(state.pauses, rows, state.engine[0].log_fill.num_pauses),
        tokens=_renumbered(state.tokens, rows, state.engine[0].log_fill.num_logged_tokens),
    )
    return EngineRecord(state=own, config=written.config, latency=written.latency, record=written.record)


def _renumbered(log: NDArray[Any], rows: Int64s, length: int) -> NDArray[Any]:
    """Return the entries of a log that name requests of ``rows``, by their places in it."""
    renumbered = log[:length]
    renumbered = renumbered[np.isin(renumbered["request"], rows)]
    renumbered["request"] = np.searchsorted(rows, renumbered["request"])
    return renumbered
