"""The gateway's view: one record per instance, and the columns of requests that decisions may read.

Instance numbers are rows of ``Fleet.instances``. Instances that may get requests are listed in ``Fleet.candidates``. A
policy examines them in this order, and takes the first of several equals if that is its rule for ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cluster.arrays import BITS, FAR, NOWHERE, Records, num_words, records, tree_of
from sim.cluster.slo_classes import STANDARD
from sim.jit.compile import part
from sim.requests import Int64s, Requests

INSTANCE = np.dtype(
    [
        # the gateway's own, always exact: requests handed over and not finished
        ("num_in_flight", np.int64),
        # as of the last snapshot
        ("num_waiting", np.int64),
        ("num_running", np.int64),
        ("kv_usage", np.float64),  # fraction of KV blocks in use
        # of the request in hand, filled in for policies that ask the instances
        ("num_cached_blocks", np.int64),  # leading prompt blocks on the device
        ("num_host_blocks", np.int64),  # and, beyond those, in host memory
        # LoRA
        ("num_adapters", np.int64),  # active or waiting
        ("max_adapters", np.int64),
        ("is_candidate", np.int64),
        ("exact_until_us", np.int64),  # then its KV usage may be more than is said here
    ],
    align=True,
)

COUNTS = np.dtype(
    [("num_candidates", np.int64), ("block_size", np.int64), ("is_by_number", np.int64)], align=True
)

SHELF = np.dtype([("candidates", np.int64), ("is_outdated", np.int64), ("is_open", np.int64)], align=True)
"""Of BITS instances in a row: the candidates, as bits; whether one has changed; whether each is scored now."""

NO_ADAPTER, WAITING_ADAPTER, ACTIVE_ADAPTER = 0, 1, 2
"""The state of an adapter on an instance."""


class Fleet(NamedTuple):
    """The instances as the gateway sees them; compiled functions take it whole."""

    instances: Records  # INSTANCE[num_instances]
    candidates: Int64s  # instance numbers; the first num_candidates count
    counts: Records  # COUNTS[1]; ``is_by_number``: that is their order
    adapters: NDArray[np.int8]  # [num_instances, num_adapters]: NO_, WAITING_ or ACTIVE_ADAPTER
    num_with_adapter: Int64s  # likewise: requests in flight
    place_of: Int64s  # per instance its place among the candidates, or NOWHERE
    loads: Int64s  # a tree (``arrays``) over the candidates' requests in flight, by place; or of no rows
    shelves: Records  # SHELF, one for BITS instances (``routing.shelves``); or of no rows


class RequestTable(NamedTuple):
    """The columns of n requests that admission and routing look at; -1 where a request has no such thing.

    ``hash_ids``: the contents of leading full blocks, equal ids for equal prefixes; request r's are ``num_hashes[r]``
    from ``hash_starts[r]`` on, and requests may share them (``Requests``).
    ``slo_priority``: higher matters more; below 0 it may be shed. ``slo_target_us``: of the first token, or -1.
    """

    prompt_tokens: Int64s
    hash_starts: Int64s
    num_hashes: Int64s
    hash_ids: Int64s
    session: Int64s
    tenant: Int64s
    adapter: Int64s
    slo_priority: Int64s
    slo_target_us: Int64s


ROWS_OF_TABLE = (
    *("prompt_tokens", "hash_starts", "num_hashes"),
    *("session", "tenant", "adapter", "slo_priority", "slo_target_us"),
)
"""The arrays of ``RequestTable`` with a row per request."""


def new_fleet(
    num_instances: int,
    *,
    block_size: int = 16,
    order: Sequence[int] | None = None,
    num_adapters: int = 0,
    keeps_loads: bool = False,
    keeps_shelves: bool = False,
) -> Fleet:
    """Return a fleet of idle instances, all candidates, looked at in ``order`` (by number if it is None).

    ``keeps_loads``: find the least loaded in a tree; requests in flight then change by ``shelves.add_in_flight`` alone.
    ``keeps_shelves``: look at a shelf of instances before each of them; who changes one then calls ``note_changed``.
    """
    instances = records(num_instances, INSTANCE)
    instances["exact_until_us"] = FAR
    counts = records(1, COUNTS)
    counts["block_size"] = block_size
    fleet = Fleet(
        instances=instances,
        candidates=np.zeros(num_instances, np.int64),
        counts=counts,
        adapters=np.zeros((num_instances, num_adapters), np.int8),
        num_with_adapter=np.zeros((num_instances, num_adapters), np.int64),
        place_of=np.zeros(num_instances, np.int64),
        loads=tree_of(np.zeros(num_instances, np.int64)) if keeps_loads else np.zeros(0, np.int64),
        shelves=records(num_words(num_instances) if keeps_shelves else 0, SHELF),
    )
    set_candidates(fleet, range(num_instances) if order is None else order)
    return fleet


def set_candidates(fleet: Fleet, order: Sequence[int]) -> None:
    """Set which instances may get requests, in the order in which policies examine them."""
    set_order(fleet, order)
    fleet.instances["is_candidate"] = 0
    fleet.instances["is_candidate"][np.asarray(order, np.int64)] = 1


def set_order(fleet: Fleet, order: Sequence[int]) -> None:
    """Set the order of a router's candidates; other routers of the same instances may have others."""
    numbers = np.asarray(order, np.int64)
    fleet.candidates[: len(numbers)] = numbers
    fleet.counts["num_candidates"] = len(numbers)
    fleet.counts["is_by_number"] = (np.diff(numbers) > 0).all()
    if len(fleet.shelves) > 0:
        bits = np.zeros(len(fleet.shelves) * BITS, np.uint8)
        bits[numbers] = 1
        fleet.shelves["candidates"] = np.packbits(bits, bitorder="little").view("<i8")
        fleet.shelves["is_outdated"] = 1
    fleet.place_of[:] = NOWHERE
    fleet.place_of[numbers] = np.arange(len(numbers))
    if len(fleet.loads) > 0:
        loads = np.full(len(fleet.instances), FAR)
        loads[: len(numbers)] = fleet.instances["num_in_flight"][numbers]
        fleet.loads[:] = tree_of(loads)


def request_table(
    requests: Requests,
    *,
    session: Int64s | None = None,
    tenant: Int64s | None = None,
    adapter: Int64s | None = None,
    slo_priority: Int64s | None = None,
    slo_target_us: Int64s | None = None,
) -> RequestTable:
    """Return the columns that decisions look at; what is not given is absent in every row."""
    none = np.full(len(requests), NOWHERE, np.int64)
    standard = np.full(len(requests), STANDARD, np.int64)
    columns = (
        requests.prompt_tokens,
        requests.hash_starts,
        requests.num_hashes,
        requests.hash_ids,
        none if session is None else session,
        none if tenant is None else tenant,
        none if adapter is None else adapter,
        standard if slo_priority is None else slo_priority,
        none if slo_target_us is None else slo_target_us,
    )
    # A caller's column may be a view of every other number, or of all in reverse: compiled code would misread it.
    return RequestTable(*(np.ascontiguousarray(column, np.int64) for column in columns))


@part
def num_full_blocks(fleet: Fleet, requests: RequestTable, request: int) -> int:
    """Return how many full blocks a prompt has."""
    return requests.prompt_tokens[request] // fleet.counts[0].block_size


@part
def num_prompt_ids(fleet: Fleet, requests: RequestTable, request: int) -> int:
    """Return how many of a prompt's full blocks have ids; the blocks past them are shared with no other request."""
    return min(requests.num_hashes[request], num_full_blocks(fleet, requests, request))


@part
def load_of(state: Records, counts_twice: int) -> int:
    """Return an instance's load: its requests in flight, each counted once.

    With ``counts_twice``, as the peer documents it (``compatibility: blis``): waiting + running + in flight.
    """
    if counts_twice:
        return state.num_waiting + state.num_running + state.num_in_flight
    return state.num_in_flight
