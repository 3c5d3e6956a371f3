"""What only some requests ask for: traits that cost time, images, pins of a session's KV."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass

import numpy as np

from sim.config import EngineConfig, InvalidConfig
from sim.engine.beginning.first_traits import asks_for_traits, trait_records, with_traits
from sim.engine.kv_cache.session_kv import lineage_records, with_session_kv
from sim.engine.optional.encoder_cache import ImageTables, asks_for_images, image_tables, with_images
from sim.engine.state import Records, State
from sim.requests import Int64s, Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFor:
    """Tables of what requests ask for, None where no engine has it; engines of a cluster share them.

    ``skipped``: scratch, a place per request; without places where no engine passes over any.
    """

    traits: Records | None
    images: ImageTables | None
    lineage: Records | None
    skipped: Int64s


def asked_for(requests: Requests, configs: Sequence[EngineConfig]) -> AskedFor:
    """Return what requests ask engines of these configurations for."""
    traits = trait_records(requests) if any(asks_for_traits(requests, each) for each in configs) else None
    passes_over = traits is not None or any(each.may_pass_over for each in configs)
    has_images = any(asks_for_images(requests, each) for each in configs)
    pins = any(each.session_kv_ttl_us > 0 for each in configs)
    return AskedFor(
        traits=traits,
        images=image_tables(requests) if has_images else None,
        lineage=lineage_records(requests) if pins else None,
        skipped=np.zeros(len(requests) if passes_over else 0, np.int64),
    )


def check_moved_kv(asked: AskedFor) -> None:
    """Raise InvalidConfig on images of requests whose prompts other instances compute."""
    if asked.images is not None:
        raise InvalidConfig(
            "disaggregation: cannot be combined with images, expected instances that serve requests whole, or "
            "language_model_only true: images are then text"
        )


def with_asked_for(state: State, asked: AskedFor, requests: Requests, config: EngineConfig) -> State:
    """Return the state of an engine with what its requests ask it for. Raises InvalidConfig as ``with_images``."""
    state = state._replace(skipped=asked.skipped)
    if asked.traits is not None and config.charges_traits:
        state = with_traits(state, asked.traits, asked.skipped, config)
    if asked.images is not None and config.encodes_images:
        state = with_images(state, asked.images, config)
    if asked.lineage is not None and config.session_kv_ttl_us > 0:
        state = with_session_kv(state, requests, asked.lineage, config.session_kv_ttl_us)
    return state
