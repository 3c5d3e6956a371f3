"""``run`` compiled for what an engine has: plain, with several KV cache groups, or the whole.

The code is the same (``sim/jit/variants.py``). Most engines have no drafts, images, adapters, pipeline stages,
transfers of KV and the like; the smaller variants take the settings that say so for constants. They are compiled in a
third of the time, run up to a tenth faster, and give the same answers (``tests/sim/engine/test_run_variants.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, get_args

import numpy as np

from sim.engine import dtypes as dt
from sim.engine.counting.counted_run import run_counted
from sim.engine.run import run
from sim.engine.state import Records, State
from sim.jit.compile import variant_entry
from sim.jit.references import Table
from sim.jit.variants import CompiledVariant

RunVariant = Literal["plain", "hybrid", "whole"]
"""Smallest first; ``hybrid``: for models whose layers cache differently."""

RUN_VARIANTS: tuple[RunVariant, ...] = get_args(RunVariant)

_ONE_FULL_GROUP = {
    "num_kv_cache_groups": 1,
    "has_kv_cache_groups": 0,
    "has_windows": 0,
    "aligns_states": 0,
    "cuts_shares": 0,
    "use_eagle": 0,  # a group's, too, is called so
    "prefill_checkpoints": dt.NO_CHECKPOINTS,
}

_NO_RARE_FEATURES = {
    "pipeline_parallel_size": 1,
    "decode_stagger": 0,
    "waits_for_output": 0,
    "may_sit_out": 0,
    "keeps_placeholders": 0,
    "batching": dt.VLLM,
    "notes_shares": 0,
    "balances_prefills": 0,
    "is_lockstep": 0,
    "is_blis": 0,
    "num_speculative_tokens": 0,
    "num_lookahead_tokens": 0,
    "num_first_lookahead_tokens": 0,
    "num_hash_lookahead_tokens": 0,
    "pads_admissions": dt.NEVER_PADS,
    "num_prefill_lookahead_tokens": 0,
    "may_pass_over_empty": 0,
    "has_queue_apart": 0,
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
    "matches_inside_blocks": 0,
    "has_images": 0,
    "has_kv_transfers": 0,
    "is_kv_producer": 0,
    "defers_block_frees": 0,
}

KNOWN: Mapping[RunVariant, Mapping[str, int]] = {
    "plain": {**_NO_RARE_FEATURES, **_ONE_FULL_GROUP},
    "hybrid": _NO_RARE_FEATURES,
    "whole": {},
}
"""The settings that each variant takes for constants; every other setting has any value."""

Run = Callable[[Table, int, int, bool], int]

_PLAIN = CompiledVariant("plain", KNOWN["plain"])

run_plain = variant_entry(run, _PLAIN)
run_plain_counted = variant_entry(run_counted, _PLAIN)
run_hybrid = variant_entry(run, CompiledVariant("hybrid", KNOWN["hybrid"]))

RUNS: Mapping[RunVariant, Run] = {"plain": run_plain, "hybrid": run_hybrid, "whole": run}

_WORDS = {
    variant: (
        np.array([(dt.SETTINGS.names or ()).index(name) for name in known]),
        np.array([*known.values()]),
    )
    for variant, known in KNOWN.items()
    if known
}
"""Which words of an engine's record these settings are, and what they are; the settings come first there."""


def variant_for(engine: Records) -> RunVariant:
    """Return the smallest variant that an engine (``State.engine``, or its settings) can be run with; it takes 4 µs."""
    words = np.frombuffer(engine, np.int64)
    for variant, (places, values) in _WORDS.items():
        if (words[places] == values).all():
            return variant
    return "whole"


def run_of(state: State) -> Run:
    """Return the smallest ``run`` for an engine."""
    return RUNS[variant_for(state.engine)]
