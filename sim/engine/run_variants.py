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
from sim.engine.records.features import FEATURES
from sim.engine.records.group_records import GROUPS
from sim.engine.run import run
from sim.engine.state import Records, State, columns
from sim.jit.compile import variant_entry
from sim.jit.references import Table
from sim.jit.variants import CompiledVariant

RunVariant = Literal["plain", "hybrid", "whole"]
"""Smallest first; ``hybrid``: for models whose layers cache differently."""

RUN_VARIANTS: tuple[RunVariant, ...] = get_args(RunVariant)

_NO_RARE_FEATURES = {
    name: value for feature in FEATURES if feature is not GROUPS for name, value in feature.absent.items()
}

KNOWN: Mapping[RunVariant, Mapping[str, int]] = {
    "plain": {**_NO_RARE_FEATURES, **GROUPS.absent},
    "hybrid": _NO_RARE_FEATURES,
    "whole": {},
}
"""The settings that each variant takes for constants; every other setting has any value."""

Run = Callable[[Table, int, int, bool], int]

_PLAIN = CompiledVariant("plain", KNOWN["plain"])

run_plain = variant_entry(run, _PLAIN)
run_plain_counted = variant_entry(run_counted, _PLAIN)
_HYBRID = CompiledVariant("hybrid", KNOWN["hybrid"])

run_hybrid = variant_entry(run, _HYBRID)
run_hybrid_counted = variant_entry(run_counted, _HYBRID)

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


def counted_run_of(state: State) -> Run:
    """Return the smallest ``run_counted`` for an engine: of groups it asks most often nothing but their block sizes."""
    return run_hybrid_counted if columns(state.engine)[0]["settings"]["cuts_shares"] else run_plain_counted
