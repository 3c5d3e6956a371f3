"""The engine's whole state: a few arrays of records, nothing else; what each record holds is in ``dtypes``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.jit.references import reader_of
from sim.memory import CACHE_LINE

Records = Any  # numpy.recarray; its fields are typed by its dtype, which mypy cannot follow


class State(NamedTuple):
    """All that the engine knows. Compiled functions take it whole and change it in place."""

    engine: Records  # ENGINE[1]: settings, clock, queues, current step, totals, how full the logs are
    latency: NDArray[np.int64]  # Blackbox: coefficients in 10⁻⁶ µs
    terms: NDArray[np.float64]  # every other latency model's coefficients
    requests: Records  # REQUEST[capacity]
    held: NDArray[np.int64]  # closed loop: request numbers in the order in which they may go
    deadline_us: NDArray[np.int64]  # per request: when its client gives up, NEVER; empty where nobody does
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
    ]  # per request: tokens at which max_tokens ends it; empty where none ends by itself before, or nobody asks
    hash_ids: NDArray[np.int32]
    hashes: Records  # HASH[shared ids + private ids]
    cache_log: NDArray[
        np.int32
    ]  # the last contents that came to the prefix cache or went; empty where nobody asks
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
    num_drafts: NDArray[np.int32]  # per request: speculated tokens in hand
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
    last_in_round: NDArray[np.uint32]  # who needs a block in it, as linked lists of
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
