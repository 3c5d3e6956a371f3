"""Pipeline stages of an engine at its beginning: when each is free, and what its settings say of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.config import EngineConfig
from sim.engine.beginning.first_shape import FirstShape
from sim.engine.records.feature import Records
from sim.versions import VersionRules


def stage_arrays(shape: FirstShape) -> dict[str, Any]:
    """Return the arrays of stages, without rows where there is one."""
    stages = shape.config.pipeline_parallel_size
    return {
        "stage_free_us": np.zeros(stages if stages > 1 else 0, np.int64),
        "token_us": np.zeros(0, np.int64),
        "next_decode_step": np.zeros(0, np.int64),
    }


def set_stages(settings: Records, config: EngineConfig, rules: VersionRules) -> None:
    """Say what stages there are, and what the version of vLLM does with them."""
    if config.pipeline_parallel_size == 1:
        return
    settings["may_sit_out"] = 1
    settings["has_queue_apart"] = config.queues_passed_over_apart
    settings["keeps_placeholders"] = not rules.sets_stale_output_aside
    if config.async_scheduling:
        is_staggered = rules.async_pipeline == "staggered"
        settings["decode_stagger"] = config.pipeline_parallel_size if is_staggered else 0
        settings["waits_for_output"] = rules.async_pipeline == "waits for output"
