"""What an engine begins with for all of its features together."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.config import EngineConfig
from sim.engine.beginning.first_drafts import draft_arrays, set_drafts
from sim.engine.beginning.first_groups import group_arrays, set_groups
from sim.engine.beginning.first_offloading import offload_arrays, set_offloading
from sim.engine.beginning.first_shape import FirstShape
from sim.engine.beginning.first_stages import set_stages, stage_arrays
from sim.engine.beginning.first_tier import set_tier, tier_arrays
from sim.engine.beginning.first_transfers import transfer_arrays
from sim.engine.dtypes import TRAIT
from sim.engine.optional import batching, blis, encoder_cache
from sim.engine.records.feature import Records, records
from sim.engine.records.features import FEATURES
from sim.engine.state import State
from sim.versions import VersionRules

ARRAYS = (group_arrays, draft_arrays, stage_arrays, transfer_arrays, tier_arrays, offload_arrays)

SETTINGS = (
    set_groups,
    set_drafts,
    set_stages,
    batching.apply_settings,
    encoder_cache.apply_settings,
    set_offloading,
    set_tier,
    blis.apply_settings,
)
"""In this order: a later one may say otherwise."""


def arrays_of_features(shape: FirstShape) -> dict[str, Any]:
    """Return the first arrays of all features, most of them without rows."""
    arrays = {
        "traits": records(0, TRAIT),
        "skipped": np.zeros(0, np.int64),
        "prefill_marks": np.zeros(0, np.int64),
    }
    for feature in FEATURES:
        for name, kind in feature.begins_empty.items():
            arrays[name] = records(0, kind) if isinstance(kind, np.dtype) else np.zeros(0, kind)
    for arrays_of in ARRAYS:
        arrays |= arrays_of(shape)
    return arrays


def begin_features_anew(state: State) -> None:
    """Let features begin anew in an engine whose process does, where emptied arrays do not say it."""
    encoder_cache.begin_anew(state)


def set_features(settings: Records, config: EngineConfig, rules: VersionRules) -> None:
    """Say of SETTINGS[1] what follows from each feature's configuration."""
    for apply in SETTINGS:
        apply(settings, config, rules)
