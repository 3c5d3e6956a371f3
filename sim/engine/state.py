"""The engine's whole state: a few arrays of records, nothing else; what each record holds is in ``dtypes``."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sim.config import EngineConfig
from sim.engine.dtypes import NEVER
from sim.engine.records.feature import PerRequest, Records, columns, never, records
from sim.engine.records.features import FEATURES, FeatureArrays
from sim.engine.records.group_records import NO_OWNER, UNSHARED
from sim.jit.references import reader_of

__all__ = [
    "PER_REQUEST",
    "SCRATCH_OF_REQUESTS",
    "CoreArrays",
    "Records",
    "State",
    "columns",
    "disown_blocks",
    "engine_at",
    "records",
    "rows_taken",
    "with_fresh_rows",
    "with_rows_of",
]


class CoreArrays:
    """What every engine has; those of features stand in ``sim/engine/records``."""

    __slots__ = ()

    engine: Records  # ENGINE[1]: settings, clock, queues, current step, totals, how full the logs are
    latency: NDArray[np.int64]  # Blackbox: coefficients in 10⁻⁶ µs
    terms: NDArray[np.float64]  # every other latency model's coefficients
    requests: Records  # REQUEST[capacity]
    held: NDArray[np.int64]  # closed loop: request numbers in the order in which they may go
    deadline_us: NDArray[np.int64]  # per request: when its client gives up, NEVER; empty where no client does
    deadlines: NDArray[np.int64]  # request numbers by (deadline_us, number)
    taken_in_us: NDArray[
        np.int64
    ]  # per request: when the loop found it in the queue (vLLM's QUEUED event), NEVER
    preempted_us: NDArray[np.int64]  # per request: time preempted; while it is, minus when that began
    running: NDArray[np.uint32]  # request numbers in admission order
    heap: NDArray[np.int64]  # waiting requests of every policy but fcfs
    blocks: Records  # BLOCK[num_gpu_blocks]
    block_table: NDArray[np.uint32]  # [max_num_seqs * groups, blocks of the longest request]
    free_slots: NDArray[np.int64]
    fingers: NDArray[np.int64]  # requests of the pending list at equal distances (``waiting.place_fingers``)
    length_limit: NDArray[
        np.int32
    ]  # per request: tokens at which max_tokens ends it; empty where none ends by itself before, or no engine asks
    hash_ids: NDArray[np.int32]
    hashes: Records  # HASH[shared ids + private ids]
    cache_log: NDArray[
        np.int32
    ]  # the last contents that came to the prefix cache or went; empty where no caller asks for them
    hit_blocks: NDArray[np.uint32]  # the lookup in hand; 0: the CPU tier has it
    preempted: NDArray[np.int64]  # of the step in hand
    hits: Records  # ENTRY[max_num_seqs]: admitted in the step in hand
    finished: NDArray[np.int64]
    batches: Records  # BATCH[max(2, max_concurrent_batches)], a ring
    entries: Records  # ENTRY[as many, max_num_seqs]
    first_in_round: NDArray[np.uint32]  # scratch of a jump: per step of its first block_size,
    last_in_round: NDArray[np.uint32]  # requests that need a block in it, as linked lists of
    next_in_round: NDArray[np.uint32]  # positions in `running`
    ends_us: NDArray[np.int64]  # scratch of a jump: when each of its steps gives its tokens
    duties: NDArray[np.float64]  # scratch of a jump: the compute duty after each of its steps
    log: NDArray[np.int64]
    spans: Records  # SPAN[capacity]
    pauses: Records  # PAUSE[capacity]
    tokens: Records  # TOKEN[capacity]
    batch_sizes: NDArray[np.int64]  # how many steps had so many requests
    step_tokens: NDArray[np.int64]  # how many steps fell into each bin of tokens
    step_times: NDArray[np.int64]  # how many steps fell into each bin of durations
    completions: Records  # COMPLETION[capacity]


FIELDS = [name for each in (CoreArrays, *FeatureArrays.__bases__) for name in each.__annotations__]

if TYPE_CHECKING:

    class _Tuple(tuple[Records, ...]):
        """What a named tuple has, whatever its fields."""

        _fields: ClassVar[tuple[str, ...]]

        def __new__(cls, **arrays: Records) -> Self: ...
        def _replace(self, **arrays: Records) -> Self: ...
        @classmethod
        def _make(cls, arrays: Iterable[Records]) -> Self: ...
        def _asdict(self) -> dict[str, Records]: ...

else:
    _Tuple = namedtuple("_Tuple", FIELDS)


class State(_Tuple, CoreArrays, FeatureArrays):
    """All that the engine knows. Compiled functions take it whole and change it in place."""

    __slots__ = ()


TRAIT_FILL = {name: value for feature in FEATURES for name, value in feature.trait_fill.items()}
"""What a request without any traits has."""

PER_REQUEST: Mapping[str, PerRequest] = {
    "requests": PerRequest(),  # written whole by ``request_records``
    "deadline_us": PerRequest(fill=NEVER, exists=never, is_asked_for=True, shared_by="fleet"),
    "taken_in_us": PerRequest(fill=NEVER),
    "preempted_us": PerRequest(),
    "length_limit": PerRequest(exists=never, is_asked_for=True, shared_by="engine"),
    "traits": PerRequest(fill=TRAIT_FILL, exists=never, is_asked_for=True, shared_by="fleet"),
    **{name: each for feature in FEATURES for name, each in feature.per_request.items()},
}
"""Every array with a row per request. Code that makes, lengthens, gives again or copies rows goes through this table,
so an array that stands here cannot leak one request's data into the next; ``tests/sim/test_per_request.py`` finds one
that does not."""

SCRATCH_OF_REQUESTS = ("held", "deadlines", "heap", "skipped")
"""Arrays of request numbers, as long as there are requests: a number stands there only while it is looked for."""


def with_fresh_rows(state: State, num: int, config: EngineConfig) -> State:
    """Return the state of an engine that has no requests yet with ``num`` rows, which no request has had."""
    changes = {
        name: each.rows(getattr(state, name), num)
        for name, each in PER_REQUEST.items()
        if each.exists(config)
    }
    return state._replace(**changes)


def with_rows_of(state: State, name: str) -> State:
    """Return the state with an array that a request asks for, as long as there are requests."""
    return state._replace(**{name: PER_REQUEST[name].rows(getattr(state, name), len(state.requests))})


def disown_blocks(state: State, rows: slice) -> None:
    """Disown the blocks of requests whose rows are given again: what they let go has no owner then.

    A block of a KV cache group that was let go says whose it is by its row (``groups/caching.py:mark_unshared``).
    """
    if not len(state.kv_cache_groups):
        return
    for blocks in (columns(state.blocks), columns(state.partial_hashes)):
        owner = blocks["next_same_hash"]
        is_theirs = (blocks["hash_id"] == UNSHARED) & (owner >= rows.start) & (owner < rows.stop)
        owner[is_theirs] = NO_OWNER


def rows_taken(state: State, rows: NDArray[np.int64]) -> State:
    """Return the state with copies of the rows of some requests only, numbered 0, 1 and so on."""
    taken = {name: getattr(state, name) for name in PER_REQUEST}
    return state._replace(**{name: array[rows] if len(array) else array for name, array in taken.items()})


engine_at = reader_of(State, gives_columns=True)
"""(table, row) to a reference to a ``State``, by which compiled functions take it."""
