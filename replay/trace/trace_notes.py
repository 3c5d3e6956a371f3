"""Notes on parts of a trace that the simulation ignores, or follows in a way that the reader should know."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from replay.sessions.prefix_hashes import sessions_grow
from replay.trace.client_network import paced_by_answers, says_network
from replay.trace.pacing import has_rounds, num_later_rounds
from replay.trace.request_columns import MODALITIES
from replay.twin.image_encoder import PER_TOKEN
from traces import PRIORITY_OF_CLASS, by_class, cut_short_note, image_lists, reading_notes, request_priorities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.trace.pacing import Pacing
    from replay.twin.twin_config import TwinConfig
    from traces import Trace

PRIORITY_POLICIES = ("priority", "reverse-priority")


def trace_notes(trace: Trace, config: TwinConfig, pacing: Pacing | None = None) -> tuple[str, ...]:
    """Return a line for every part of a trace that the simulation does not follow exactly.

    ``pacing``: how it is replayed, where that is known.
    """
    return (
        *reading_notes(trace),
        *_priority_notes(trace, config),
        *_one_server_notes(trace, config),
        *_multimodal_notes(trace, config),
        *_large_image_notes(trace, config),
        *_adapter_notes(trace, config),
        *_unstreamed_notes(trace),
        *_sharing_notes(trace),
        *_session_notes(trace, pacing),
        *_pinned_notes(trace, config),
        *_guided_notes(trace, config),
        *_several_notes(trace),
        *_network_notes(trace, pacing),
        *_header_notes(trace, config),
    )


def _priority_notes(trace: Trace, config: TwinConfig) -> tuple[str, ...]:
    policy = config.engine.scheduling_policy
    own = trace.cells("vllm_priority")
    if policy not in PRIORITY_POLICIES:
        if policy == "fcfs" and own.num_distinct() > 1:
            number = int(own.is_known.sum())
            return (f"vllm_priority: {number:,} requests have one; scheduling_policy fcfs ignores it",)
        return ()
    values = request_priorities(trace)
    if len(np.unique(values)) < 2:
        hint = " (a measured trace: its service classes sent none)" if trace.header.mode == "real" else ""
        return (
            f"engine.scheduling_policy {policy}: all requests have the same priority, so that their arrival "
            f"decides{hint}",
        )
    if by_class(trace):
        table = ", ".join(f"{name} {value}" for name, value in PRIORITY_OF_CLASS.items())
        return (f"priorities are those of the service classes: {table}; others count as standard",)
    return ()


def _several_notes(trace: Trace) -> tuple[str, ...]:
    """Return what is simulated as one where a request has several answers, or inputs."""
    client = trace.header.client
    several = None if client is None or trace.header.mode != "real" else client.several
    if several is None:
        return ()
    if "inputs" in several:
        return (f"{several}: simulated as one prompt as long as all together",)
    said = f"{several}: each request is simulated with one as long as all together"
    return (f"{said}, and its TPOT and E2E are not comparable",)


def _one_server_notes(trace: Trace, config: TwinConfig) -> tuple[str, ...]:
    notes = []
    effect = "one server is simulated for all of them" if config.is_plain_server else "the router ignores it"
    for column, what in (("model", "models"), ("instance", "instances")):
        number = trace.cells(column).num_distinct()
        if number > 1:
            notes.append(f"{column}: the trace names {number} {what}; {effect}")
    return tuple(notes)


def _multimodal_notes(trace: Trace, config: TwinConfig) -> tuple[str, ...]:
    """Return what encoding images, sounds and films takes, or why it takes nothing."""
    kinds = [name for name in MODALITIES if (trace.cells(f"{name}_tokens").values > 0).any()]
    has_images = trace.cells("images").is_known.any()
    if has_images and "image" not in kinds:
        kinds = ["image", *kinds]
    engine = config.engine
    if not kinds or (engine.language_model_only and not engine.has_encoder_time):
        return ()
    if not engine.has_encoder_time:
        return (
            f"{', '.join(kinds)} tokens count as prompt tokens (input_tokens); no encoder's time is added "
            f"(engine.encoder_token_us is 0{_why_not_known(config)})",
        )
    if config.written is None or PER_TOKEN in config.written or config.shape is None:
        return ()
    return _encoder_notes(trace, config, kinds=kinds)


def _large_image_notes(trace: Trace, config: TwinConfig) -> tuple[str, ...]:
    """Return that vLLM would refuse images, which its encoder cache has no room for; or that no such image is made.

    vllm 0.32.0 v1/engine/input_processor.py:_validate_model_input: it has room for ``encoder_cache_size`` tokens,
    ``max_num_batched_tokens`` by default, and for the largest image of the model's processor.
    """
    engine, tower = config.engine, None if config.shape is None else config.shape.vision
    lists = image_lists(trace.cells("images"))
    if lists is None or not len(lists.num_tokens) or not engine.encodes_images or tower is None:
        return ()
    largest = int(lists.num_tokens.max())
    room = max(engine.encoder_cache_size or engine.max_num_batched_tokens, tower.max_tokens_per_item)
    if largest > room:
        number = int((lists.num_tokens > room).sum())
        return (
            f"images: {number:,} of more than {room:,} tokens (the largest has {largest:,}): the encoder cache has no "
            "room for one, and vLLM would refuse its request; they are simulated",
        )
    if tower.is_largest_known and largest > tower.max_tokens_per_item:
        return (
            f"images: the largest has {largest:,} tokens; the model's processor makes "
            f"{tower.max_tokens_per_item:,} at most, unless it is told otherwise (--mm-processor-kwargs)",
        )
    return ()


def _why_not_known(config: TwinConfig) -> str:
    """Return why nothing is known of the time of a model's images, "" where no model with images is named."""
    shape = config.shape
    if shape is None or shape.vision is None or PER_TOKEN in (config.written or ()):
        return ""
    return (
        f"; roofline, physics and profiled have the time of {shape.name}'s vision tower, with the GPU named"
    )


def _encoder_notes(trace: Trace, config: TwinConfig, *, kinds: Sequence[str]) -> tuple[str, ...]:
    """Return what the time of images is that follows from the model, and what of it is not known."""
    engine, shape = config.engine, config.shape
    assert shape is not None  # noqa: S101 - the caller has asked
    notes = [
        f"images: the vision tower of {shape.name} takes {engine.encoder_step_us:,g} µs of a step that encodes any, "
        f"{engine.encoder_token_us:g} per token and {engine.encoder_token_pair_us:g} per pair of an image's tokens "
        "(engine.encoder_step_us, encoder_token_us, encoder_token_pair_us: computed, not measured)"
    ]
    unplaced = [name for name in kinds if name != "image" or not trace.cells("images").is_known.any()]
    if unplaced and engine.encoder_token_pair_us > 0:
        notes.append(
            f"{', '.join(unplaced)} tokens: where each begins and ends is not known (images), so that the attention "
            "within them takes no time"
        )
    if "audio" in kinds:
        notes.append("audio tokens: their encoder is not known; a token takes as long as an image's")
    return tuple(notes)


def _adapter_notes(trace: Trace, config: TwinConfig) -> tuple[str, ...]:
    number = trace.cells("adapter").num_distinct()
    engine = config.engine
    has_cost = engine.lora_load_us > 0 or engine.lora_step_factor != 1
    if number == 0 or (has_cost and engine.max_loras > 0):
        return ()
    missing = (
        [] if has_cost else ["no time is added for loading or computing them (engine.lora_load_us is 0)"]
    )
    missing += [] if engine.max_loras else ["a step may hold any number of them (engine.max_loras is 0)"]
    return (f"adapter: {number} LoRA adapter{'s' if number > 1 else ''}; {', and '.join(missing)}",)


def _unstreamed_notes(trace: Trace) -> tuple[str, ...]:
    number = int((~trace.cells("streaming").filled(True)).sum())
    if number == 0:
        return ()
    return (
        f"streaming: {number:,} requests are not streamed; their simulated TTFT is the engine's first token",
    )


def _sharing_notes(trace: Trace) -> tuple[str, ...]:
    """Return which columns about shared prefixes are ignored since others take precedence (``prefix_hashes``)."""
    if sessions_grow(trace):
        return ()
    by_hash = trace.cells("prefix_hashes").is_known
    others = [
        name
        for name in ("prefix_group", "new_input_tokens")
        if trace.cells(name).is_known.any() and by_hash.any()
    ]
    return tuple(
        f"{name}: ignored, since the trace has prefix_hashes, which say what prompts share" for name in others
    )


def _session_notes(trace: Trace, pacing: Pacing | None) -> tuple[str, ...]:
    """Return that rounds do not wait for the simulated answers before them."""
    if not has_rounds(trace) or (pacing is not None and pacing.users is not None):
        return ()
    number = num_later_rounds(trace)
    return (
        f"session_id: {number:,} later rounds are sent at their recorded times, whether the simulated answer before "
        "them is there by then or not; think_time_us is not added",
    )


def _pinned_notes(trace: Trace, config: TwinConfig) -> tuple[str, ...]:
    """Return that no KV is pinned, since no request goes on from another."""
    if config.engine.session_kv_ttl_us == 0 or has_rounds(trace):
        return ()
    return (
        "engine.session_kv_ttl_us: no request goes on from another of its session, so that nothing is pinned",
    )


def _guided_notes(trace: Trace, config: TwinConfig) -> tuple[str, ...]:
    """Return that grammars take no time."""
    if config.engine.guided_compile_us or config.engine.guided_mask_us:
        return ()
    guided = int(trace.cells("guided").values.sum())
    if guided == 0:
        return ()
    return (
        f"guided: {guided:,} answers are held to a grammar; no time is added for it (engine.guided_compile_us and "
        "guided_mask_us are 0)",
    )


def _network_notes(trace: Trace, pacing: Pacing | None) -> tuple[str, ...]:
    if pacing is None or not says_network(trace) or not paced_by_answers(pacing):
        return ()
    return (
        "network_rtt_us, network_bandwidth_mbps: not simulated where answers decide when requests are sent; times are "
        "the server's",
    )


def _server_notes(trace: Trace, config: TwinConfig) -> tuple[str, ...]:
    """Return which of the flags that a measured trace's server had are others in the twin."""
    if trace.header.mode != "real":
        return ()
    server = trace.header.server
    had = {each.name: getattr(server, each.name, None) for each in fields(config.engine)}
    others = {
        name: value
        for name, value in had.items()
        if value is not None and value != getattr(config.engine, name)
    }
    if not others:
        return ()
    said = ", ".join(f"{name} {_shown(value)}" for name, value in others.items())
    has = ", ".join(_shown(getattr(config.engine, name)) for name in others)
    return (f"server: the trace's server had {said}; the twin has {has}",)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _header_notes(trace: Trace, config: TwinConfig) -> tuple[str, ...]:
    """Return what the header says of the server that the twin's settings do not."""
    engine, notes = config.engine, list(_server_notes(trace, config))
    if trace.header.spec_decode is not None and engine.tokens_per_decode == 1:
        notes.append(
            "spec_decode: the trace's server decoded speculatively "
            f"({trace.header.spec_decode.mean_accepted_length:.2f} tokens per step), the twin does not: "
            "engine.num_speculative_tokens is 0"
        )
    if trace.header.kv_offload is not None and engine.num_cpu_blocks == 0:
        notes.append("kv_offload: the trace's server had a second KV tier, the twin has none")
    if (cut := cut_short_note(trace)) is not None:
        notes.append(cut)
    return tuple(notes)
