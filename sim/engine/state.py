"""The engine's whole state: a few arrays of records, nothing else; what each record holds is in ``dtypes``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.config import EngineConfig
from sim.engine.dtypes import NEVER, NO_OWNER, UNSHARED
from sim.jit.references import reader_of
from sim.paged_memory import CACHE_LINE

Records = Any  # numpy.recarray; its fields are typed by its dtype, which mypy cannot follow


class State(NamedTuple):
    """All that the engine knows. Compiled functions take it whole and change it in place."""

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
    cpu_slots: Records  # CPU_SLOT[num_cpu_blocks + 1]
    cpu_slot_of_key: NDArray[np.uint32]  # per row of hashes: where the CPU tier has it, 0 nowhere
    hit_blocks: NDArray[np.uint32]  # the lookup in hand; 0: the CPU tier has it
    kv_cache_groups: Records  # KV_CACHE_GROUP[groups]; empty where there is one full group
    group_rows: Records  # GROUP_ROW[max_num_seqs, groups], likewise
    group_hits: NDArray[
        np.uint32
    ]  # [groups, blocks of the longest request]: the lookup in hand; 0: none is needed
    step_of_key: NDArray[
        np.int64
    ]  # per row of hashes: the step that made this state; empty without aligned states
    partial_hashes: (
        Records  # PARTIAL_HASH[num_gpu_blocks]; these three: empty where no hit ends inside a block
    )
    block_copies: Records  # BLOCK_COPY[max_num_seqs * groups]
    shared_block: NDArray[
        np.int64
    ]  # per row of block_table: which block is to be written and has a content that ends inside it, NEVER
    num_drafts: NDArray[np.int32]  # per request: speculated tokens in hand
    prefill_marks: NDArray[np.int64]  # per request: sim/engine/optional/prefill_balance.py
    acceptance_rates: NDArray[np.float64]  # [num_speculative_tokens]
    traits: Records  # TRAIT[capacity], empty where no setting asks for them
    lora_places: Records  # LORA_PLACE[max_loras, or as many as there are adapters]
    adapter_steps: NDArray[np.int64]  # per adapter: the last step whose batch it was counted in
    skipped: NDArray[np.int64]  # requests that the step in hand passed over
    preempted: NDArray[np.int64]  # of the step in hand
    hits: Records  # ENTRY[max_num_seqs]: admitted in the step in hand
    finished: NDArray[np.int64]
    batches: Records  # BATCH[max(2, max_concurrent_batches)], a ring
    entries: Records  # ENTRY[as many, max_num_seqs]
    stage_free_us: NDArray[
        np.int64
    ]  # per pipeline stage: when it has done with all that is in flight; empty: one
    token_us: NDArray[
        np.int64
    ]  # per request: when its newest token, in flight or not, is sampled; empty: one stage
    next_decode_step: NDArray[
        np.int64
    ]  # per request: the first step in which it may decode; empty: one stage
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
    transfers: Records  # TRANSFER[capacity], empty where no KV is transferred
    holding: NDArray[
        np.int64
    ]  # requests that hold blocks and do not run, in the order in which they are asked
    kv_events: Records  # KV_EVENT[rows of block_table]: a ring of ended transfers
    deferred_frees: Records  # DEFERRED_FREE[len(batches) * max_num_seqs], empty where no free is deferred
    chunks: Records  # CHUNK[num_cpu_blocks + 1]; this and the rest: empty without native offloading
    chunk_heap: NDArray[
        np.int64
    ]  # chunks that no transfer needs, the next to go first; see ``kv_offload/recency.py``
    fences: Records  # FENCE[num_gpu_blocks]
    kv_links: Records  # KV_LINK[2]: LOAD and STORE
    kv_jobs: Records  # KV_JOB[num_cpu_blocks + 1]: each has a chunk at least
    departed: Records  # DEPARTED[capacity]
    counted: Records  # COUNTED[rows of hashes + 1]; empty where everything is stored at once
    seen_keys: NDArray[
        np.int64
    ]  # per row of hashes, of a request's own block by block: key + 1 of what it used, -(key + 1) of what it offers
    offered: Records  # OFFERED, scratch: an offer
    handed_states: Records  # HANDED_STATE; empty where no states are stored
    store_order: NDArray[np.int64]  # groups in the order in which host memory is asked for them
    num_known_blocks: NDArray[np.int64]  # per row of block_table: how many blocks the connector knows
    num_blocks_before: NDArray[np.int64]  # likewise: before the step in hand
    known_blocks: NDArray[
        np.uint32
    ]  # of groups: those of block_table that the connector knows, 0: none any more
    store_blocks: (
        Records  # STORE_BLOCK[num_cpu_blocks + 1]; these three: of all that share a store, else empty
    )
    store_slots: NDArray[np.uint32]  # per content: where the store has it, 0 nowhere
    kv_store: Records  # KV_STORE[1]
    lineage: Records  # LINEAGE[capacity]; these two: empty where no session's KV is pinned
    session_pins: Records  # SESSION_PIN[requests that others go on from]
    images: Records  # IMAGE[images of all prompts]; these six: empty where no prompt has any
    images_of: Records  # IMAGES_OF[capacity]
    image_sets: NDArray[np.int32]  # tables of the images that requests hold, those of more than a few images
    moved_images: NDArray[np.int64]  # scratch, [most images of a request]
    encoder_cache: Records  # ENCODER_ENTRY[contents of images + 1]
    images_in_hand: NDArray[
        np.int64
    ]  # scratch, [most images of a request]: those that the request in hand takes along; -1 - i of a repeated one


SharedBy = Literal["fleet", "side", "pool", "engine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerRequest:
    """An array of ``State`` with a row per request: what a row is before its request is written, and whose it is.

    ``fill``: a number, or of records the fields that are not 0. ``exists``: from the start, of an engine that is so
    configured; an array that does not exist has no rows. ``is_asked_for``: it comes into being once a request asks.
    ``shared_by``: in a cluster, the engines that have it together: all; all that compute prompts for others, and all
    that do not; those of a pool; or each has its own.
    """

    fill: int | Mapping[str, int] = 0
    exists: Callable[[EngineConfig], bool] = lambda _: True
    is_asked_for: bool = False
    shared_by: SharedBy = "side"

    def rows(self, array: Records, num: int) -> Records:
        """Return ``num`` rows of the kind of ``array`` that no request has had."""
        if isinstance(array, np.recarray):
            made = records(num, array.dtype)
            for name, value in self.fills.items():
                columns(made)[name] = value
            return made
        return np.full(num, self.fill, array.dtype)

    @property
    def fills(self) -> Mapping[str, int]:
        """The fields of records that are not 0."""
        return {} if isinstance(self.fill, int) else self.fill


def never(_: EngineConfig) -> bool:
    """Return False: no engine has it from the start."""
    return False


def has_stages(config: EngineConfig) -> bool:
    """Return whether an engine has pipeline stages."""
    return config.pipeline_parallel_size > 1


def has_offloading(config: EngineConfig) -> bool:
    """Return whether an engine moves blocks to host memory as vLLM does."""
    return config.has_native_offloading


def balances_prefills(config: EngineConfig) -> bool:
    """Return whether an engine defers prompts to common steps."""
    return config.prefill_schedule_interval > 1


def has_drafts(config: EngineConfig) -> bool:
    """Return whether an engine speculates."""
    return config.num_speculative_tokens > 0


PER_REQUEST: Mapping[str, PerRequest] = {
    "requests": PerRequest(),  # written whole by ``request_records``
    "deadline_us": PerRequest(fill=NEVER, exists=never, is_asked_for=True, shared_by="fleet"),
    "taken_in_us": PerRequest(fill=NEVER),
    "preempted_us": PerRequest(),
    "length_limit": PerRequest(exists=never, is_asked_for=True, shared_by="engine"),
    "num_drafts": PerRequest(exists=has_drafts, shared_by="pool"),
    "traits": PerRequest(fill={"adapter": NEVER}, exists=never, is_asked_for=True, shared_by="fleet"),
    "prefill_marks": PerRequest(exists=balances_prefills, shared_by="pool"),
    "lineage": PerRequest(exists=never, is_asked_for=True, shared_by="fleet"),
    "images_of": PerRequest(exists=never, is_asked_for=True, shared_by="fleet"),
    "token_us": PerRequest(exists=has_stages, shared_by="engine"),
    "next_decode_step": PerRequest(exists=has_stages, shared_by="engine"),
    "transfers": PerRequest(exists=has_offloading, is_asked_for=True, shared_by="fleet"),
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


def records(length: int, dtype: np.dtype[Any]) -> Records:
    """Return ``length`` zeroed records whose fields are attributes, in compiled code and in plain Python.

    The first stands at the start of a cache line.
    """
    memory = np.zeros(length * dtype.itemsize + CACHE_LINE, np.uint8)
    return np.recarray(length, dtype, buf=memory.data, offset=-memory.ctypes.data % CACHE_LINE)


def columns(array: Records) -> NDArray[Any]:
    """Return records as a plain array: a field by its name takes a tenth of the time of an attribute."""
    return array.view(np.ndarray)
