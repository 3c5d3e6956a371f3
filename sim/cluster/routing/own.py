"""The arguments of a user's own routing function: the fleet and the request, to read and not to change.

>>> def fewest_waiting(fleet, request, time_us):
...     return min(fleet.candidates, key=lambda instance: fleet.num_waiting[instance])
"""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import Fleet, RequestTable
from sim.cluster.routing.routing_policies import OwnPolicy
from sim.config import InvalidConfig
from sim.requests import Int64s


class FleetView:
    """The fleet's columns, one value per instance, always as the fleet is now; none can be written to.

    ``num_in_flight``: handed over by this gateway and not finished. ``num_waiting``, ``num_running``, ``kv_usage``:
    as last reported. ``num_cached_blocks``: leading blocks of the request in hand in the prefix cache.
    """

    __slots__ = ("_fleet", "kv_usage", "num_cached_blocks", "num_in_flight", "num_running", "num_waiting")

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.num_in_flight: Int64s = column(fleet, "num_in_flight")
        self.num_waiting: Int64s = column(fleet, "num_waiting")
        self.num_running: Int64s = column(fleet, "num_running")
        self.kv_usage: NDArray[np.float64] = column(fleet, "kv_usage")
        self.num_cached_blocks: Int64s = column(fleet, "num_cached_blocks")

    @property
    def candidates(self) -> Int64s:
        """The instances that may get the request."""
        candidates = self._fleet.candidates[: self._fleet.counts["num_candidates"][0]]
        candidates.flags.writeable = False
        return candidates

    def __len__(self) -> int:
        """Return the number of instances, candidates or not."""
        return len(self._fleet.instances)


def column(fleet: Fleet, name: str) -> NDArray[Any]:
    """Return a column of the fleet that cannot be written to."""
    values: NDArray[Any] = np.asarray(fleet.instances[name]).view()
    values.flags.writeable = False
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """A request before it is routed; -1 where it has no such thing. How long its output will be is not known.

    ``hash_ids``: the contents of its leading full blocks; equal ids are equal prefixes.
    """

    number: int
    prompt_tokens: int
    hash_ids: Int64s
    session: int
    tenant: int
    adapter: int
    slo_priority: int


def request_view(fleet: Fleet, requests: RequestTable, request: int) -> RequestView:
    """Return the view of a request that a user's function gets."""
    first = requests.hash_starts[request]
    num_blocks = int(requests.prompt_tokens[request] // fleet.counts["block_size"][0])
    ids = requests.hash_ids[first : first + min(requests.num_hashes[request], num_blocks)].view()
    ids.flags.writeable = False
    return RequestView(
        number=request,
        prompt_tokens=int(requests.prompt_tokens[request]),
        hash_ids=ids,
        session=int(requests.session[request]),
        tenant=int(requests.tenant[request]),
        adapter=int(requests.adapter[request]),
        slo_priority=int(requests.slo_priority[request]),
    )


def _place(error: Exception) -> str:
    """Return the line of the function's own file at which it went wrong, as ``at mine.py:12``; empty if unknown."""
    place = error.__traceback__ and error.__traceback__.tb_next
    if place is None:
        return ""
    file, line = place.tb_frame.f_code.co_filename, place.tb_lineno
    while place is not None:
        if place.tb_frame.f_code.co_filename == file:
            line = place.tb_lineno
        place = place.tb_next
    name = file.rpartition("/")[2]
    return f" at {name}:{line}"


def _written_at(policy: OwnPolicy) -> str:
    """Return where a user's function begins, as ``at mine.py:5``; empty of one that is not written in Python."""
    code = getattr(policy.choose, "__code__", None)
    return "" if code is None else f" at {code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"


def choose_by_own(
    policy: OwnPolicy, view: FleetView, requests: RequestTable, *, fleet: Fleet, request: int, time_us: int
) -> int:
    """Return the choice of a user's function: one call. Raises InvalidConfig if it is not a candidate."""
    if fleet.counts["num_candidates"][0] == 0:
        return NOWHERE
    try:
        chosen = policy.choose(view, request_view(fleet, requests, request), time_us)
    except Exception as error:  # whatever a user's function raises
        raise InvalidConfig(
            f"routing.policy: got {type(error).__name__} for request {request} ({error})"
            f"{_place(error) or _written_at(policy)}, expected an instance number"
        ) from error
    if isinstance(chosen, bool) or not isinstance(chosen, int | np.integer):
        raise InvalidConfig(
            f"routing.policy: got {chosen!r} for request {request}{_written_at(policy)}, expected an instance number"
        )
    if not 0 <= chosen < len(view) or not fleet.instances[int(chosen)].is_candidate:
        raise InvalidConfig(
            f"routing.policy: got instance {chosen} for request {request}{_written_at(policy)}, expected one of "
            f"{', '.join(map(str, view.candidates))}"
        )
    return int(chosen)
