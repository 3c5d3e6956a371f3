"""The engine without what most runs do without: ``run`` compiled a second time, for settings that rule it out.

The code is the same (``sim/jit/variants.py``). An engine that has drafts, images, adapters, KV cache groups, transfers
or the like runs ``run``, the others ``run_plain``. Both give the same answers
(``tests/sim/engine/test_plain_run.py``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sim.engine import dtypes as dt
from sim.engine.run import run
from sim.engine.state import Records, State
from sim.jit.compile import variant_entry
from sim.jit.references import Table
from sim.jit.variants import Variant

PLAIN = {
    "pipeline_parallel_size": 1,
    "decode_stagger": 0,
    "waits_for_output": 0,
    "may_sit_out": 0,
    "batching": dt.VLLM,
    "cuts_shares": 0,
    "notes_shares": 0,
    "balances_prefills": 0,
    "is_lockstep": 0,
    "num_kv_cache_groups": 1,
    "has_kv_cache_groups": 0,
    "has_windows": 0,
    "aligns_states": 0,
    "is_blis": 0,
    "num_speculative_tokens": 0,
    "num_lookahead_tokens": 0,
    "use_eagle": 0,
    "num_prefill_lookahead_tokens": 0,
    "num_cpu_blocks": 0,
    "reload_us": 0,
    "has_traits": 0,
    "limits_adapters": 0,
    "waits_for_grammars": 0,
    "has_loads": 0,
    "has_kv_offloading": 0,
    "has_shared_store": 0,
    "hands_states": 0,
    "session_kv_ttl_us": 0,
    "has_images": 0,
    "has_kv_transfers": 0,
    "is_kv_producer": 0,
    "defers_block_frees": 0,
}
"""The settings of such an engine; every other setting has any value."""

run_plain = variant_entry(run, Variant("plain", PLAIN))


_PLACES = np.array([(dt.SETTINGS.names or ()).index(name) for name in PLAIN])
_VALUES = np.array(list(PLAIN.values()))
"""Which words of an engine's record these settings are, and what they are; the settings come first there."""


def is_plain(engine: Records) -> bool:
    """Return whether an engine (``State.engine``) does without all of that; in a few microseconds."""
    words = np.frombuffer(engine, np.int64)
    return bool((words[_PLACES] == _VALUES).all())


Run = Callable[[Table, int, int, bool], int]


def run_of(state: State) -> Run:
    """Return the ``run`` that an engine needs."""
    return run_plain if is_plain(state.engine) else run
