"""Traits of requests at an engine's beginning: adapters, grammars, tokens that an encoder makes."""

from __future__ import annotations

from sim.config import EngineConfig
from sim.engine.beginning.longer_arrays import longer
from sim.engine.dtypes import NEVER, TRAIT
from sim.engine.state import Records, State, records
from sim.requests import Int64s, Requests


def asks_for_traits(requests: Requests, config: EngineConfig) -> bool:
    """Return whether requests have anything that costs this engine time beyond their lengths."""
    columns = (requests.is_guided, requests.encoder_tokens, requests.adapter)
    return config.charges_traits and any(column is not None for column in columns)


def trait_records(requests: Requests) -> Records:
    """Return the engine's records of what costs time beyond the lengths."""
    rows = records(len(requests), TRAIT)
    rows["adapter"] = NEVER if requests.adapter is None else requests.adapter
    rows["num_encoder_tokens"] = 0 if requests.encoder_tokens is None else requests.encoder_tokens
    rows["is_guided"] = 0 if requests.is_guided is None else requests.is_guided
    return rows


def with_traits(state: State, traits: Records, skipped: Int64s, config: EngineConfig) -> State:
    """Return the state of an engine some of whose requests cost time beyond their lengths.

    ``traits``: of each reque ``skipped``: scratch, as long. Engines may share both.
    """
    num_adapters = int(traits["adapter"].max(initial=NEVER)) + 1
    settings = state.engine["settings"]
    settings["has_traits"] = settings["adds_time"] = 1
    settings["limits_adapters"] = config.max_loras > 0 and num_adapters > 0
    settings["waits_for_grammars"] = config.guided_compile_us > 0  # requests that come later may have one
    settings["has_queue_apart"] |= config.queues_passed_over_apart
    state = state._replace(traits=traits, skipped=skipped)
    return with_room_for_adapters(state, num_adapters, config)


def with_room_for_adapters(state: State, num_adapters: int, config: EngineConfig) -> State:
    """Return the state with so many adapters counted, and with their places on the GPU."""
    num_places = config.max_loras or num_adapters
    if num_adapters <= len(state.adapter_steps) and num_places <= len(state.lora_places):
        return state
    places, steps = longer(state.lora_places, num_places), longer(state.adapter_steps, num_adapters)
    places["adapter"][len(state.lora_places) :] = places["last_step"][len(state.lora_places) :] = NEVER
    steps[len(state.adapter_steps) :] = NEVER
    return state._replace(lora_places=places, adapter_steps=steps)
