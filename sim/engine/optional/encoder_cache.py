"""What an encoder made of images, kept until their tokens are computed (vllm 0.32.0 v1/core/encoder_cache_manager.py).

An entry is an image's content; requests that show the same image share it. Room is counted in tokens. A request holds
an entry from the step that encodes it, or finds it, until its tokens are in the KV cache. What no request holds stays
until its room is needed: then the entry goes that was released longest ago. Of images that a request lets go of at
once, the first goes that is first in ``held_images``.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.config import EngineConfig, InvalidConfig
from sim.engine.dtypes import NEVER
from sim.engine.optional.held_images import (
    SMALLEST_TABLE,
    add_held,
    discard_held,
    image_at,
    num_places,
    table_length,
)
from sim.engine.records.image_records import ENCODER_ENTRY, IMAGE, IMAGES_OF
from sim.engine.state import PER_REQUEST, Records, State, records
from sim.jit.compile import part, phase
from sim.requests import Requests
from sim.versions import VersionRules


@part
def is_cached(s: State, image: int) -> bool:
    """Return whether the encoder's output for an image is there, or promised to a request."""
    return s.encoder_cache[s.images[image].content + 1].num_embeds > 0


@part
def hold_entry(s: State, row: int) -> None:
    """Count one more request that holds an entry; it cannot be evicted any more."""
    entry, encoder = s.encoder_cache[row], s.engine[0].encoder
    if entry.num_refs == 0:
        s.encoder_cache[entry.previous].next = entry.next
        s.encoder_cache[entry.next].previous = entry.previous
        encoder.num_freeable_slots -= entry.num_embeds
    entry.num_refs += 1


@part
def let_go_of_entry(s: State, row: int) -> None:
    """Count one request less; an entry that no request holds any more is the last to be evicted."""
    entry, encoder = s.encoder_cache[row], s.engine[0].encoder
    entry.num_refs -= 1
    if entry.num_refs > 0:
        return
    last = s.encoder_cache[0].previous
    entry.previous, entry.next = last, 0
    s.encoder_cache[last].next = s.encoder_cache[0].previous = row
    encoder.num_freeable_slots += entry.num_embeds


@phase
def holds_content(s: State, request: int, content: int) -> bool:
    """Return whether a request holds an image of this content."""
    r = s.images_of[request]
    for image in range(r.first, r.first + r.count):
        if s.images[image].content == content and s.images[image].is_held:
            return True
    return False


@part
def holds_another(s: State, request: int, image: int) -> bool:
    """Return whether a request that does not hold ``image`` holds another of the same content."""
    return s.images[image].is_repeated == 1 and holds_content(s, request, s.images[image].content)


@part
def lets_go_early(s: State, image: int) -> bool:
    """Return whether a request lets go of an image as soon as it is done with another of the same content."""
    return s.images[image].is_repeated == 1 and s.engine[0].settings.holds_images_to_the_last == 0


@phase
def count_once(s: State, request: int, image: int) -> None:
    """Count a request among those that need a content that it shows several times, unless it is counted."""
    r, content = s.images_of[request], s.images[image].content
    for other in range(r.first, r.first + r.count):
        if s.images[other].content == content and s.images[other].is_counted:
            return
    hold_entry(s, content + 1)
    s.images[image].is_counted = 1


@phase
def stop_counting(s: State, request: int, image: int) -> None:
    """Count a request no more among those that need a content, if it is counted."""
    r, content = s.images_of[request], s.images[image].content
    for other in range(r.first, r.first + r.count):
        if s.images[other].content == content and s.images[other].is_counted:
            s.images[other].is_counted = 0
            let_go_of_entry(s, content + 1)
            return


@phase
def check_and_update_cache(s: State, request: int, image: int) -> bool:
    """Have a request hold an image that is cached; return whether it is."""
    if not is_cached(s, image):
        return False
    if lets_go_early(s, image):
        count_once(s, request, image)
    if not s.images[image].is_held:
        if not lets_go_early(s, image) and not holds_another(s, request, image):
            hold_entry(s, s.images[image].content + 1)
        add_held(s, request, image)
    return True


@phase
def can_allocate(s: State, image: int, budget: int, num_ahead: int) -> bool:
    """Return whether an image can be encoded within ``budget`` and kept, beside ``num_ahead`` tokens of others.

    What has to go for that is evicted at once, whatever becomes of the image.
    """
    encoder = s.engine[0].encoder
    num_embeds = s.images[image].num_tokens
    if num_embeds > budget:
        return False
    num_embeds += num_ahead
    if num_embeds > encoder.num_free_slots and num_embeds > encoder.num_freeable_slots:
        return False
    while num_embeds > encoder.num_free_slots:
        head = s.encoder_cache[0]
        entry = s.encoder_cache[head.next]
        encoder.num_free_slots += entry.num_embeds
        entry.num_embeds = 0
        s.encoder_cache[entry.next].previous = 0
        head.next = entry.next
    return True


@part
def allocate_entry(s: State, request: int, image: int) -> None:
    """Give an image that is not cached its room; ``can_allocate`` has made it."""
    encoder, row = s.engine[0].encoder, s.images[image].content + 1
    entry, num_embeds = s.encoder_cache[row], s.images[image].num_tokens
    entry.num_embeds, entry.num_refs = num_embeds, 1
    encoder.num_free_slots -= num_embeds
    encoder.num_freeable_slots -= num_embeds
    s.images[image].is_counted = 1
    if not s.images[image].is_held:
        add_held(s, request, image)


@phase
def free_encoder_input(s: State, request: int, image: int) -> None:
    """Have a request let go of an image that it holds; of a content that it shows twice only with the last."""
    discard_held(s, request, image)
    if lets_go_early(s, image):
        stop_counting(s, request, image)
    elif not holds_another(s, request, image):
        let_go_of_entry(s, s.images[image].content + 1)


@phase
def free_images(s: State, request: int) -> None:
    """Have a request let go of all images that it holds (vLLM's EncoderCacheManager.free)."""
    for place in range(num_places(s, request)):
        image = image_at(s, request, place)
        if image != NEVER:
            free_encoder_input(s, request, image)
        if s.images_of[request].num_held == 0:
            return


# -- its tables ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTables:
    """Images as engines have them; those of a cluster share both tables. ``num_contents``: unlike ones."""

    images: Records
    images_of: Records
    image_sets: NDArray[np.int32]
    num_contents: int

    @property
    def largest(self) -> int:
        """The tokens of the largest image."""
        return int(self.images["num_tokens"].max(initial=0))


WITHOUT_IMAGES: tuple[tuple[str, object], ...] = (
    ("session_kv_ttl_us", 0),
    ("prefill_schedule_interval", 1),
)
"""Settings that images are simulated with in this one way."""


def apply_settings(settings: Records, config: EngineConfig, _: VersionRules) -> None:
    """Let no encoder take any time where there is none."""
    if config.language_model_only:
        for name in ("encoder_step_us", "encoder_token_us", "encoder_token_pair_us"):
            settings[name] = 0


def begin_anew(state: State) -> None:
    """Give an engine's encoder all of its cache again; what was in it is gone."""
    encoder = state.engine[0].encoder
    encoder.num_free_slots = encoder.num_freeable_slots = state.engine[0].settings.encoder_cache_size


def asks_for_images(requests: Requests, config: EngineConfig) -> bool:
    """Return whether an engine encodes images of these requests."""
    has_any = requests.images is not None and len(requests.images.position) > 0
    return has_any and config.encodes_images


def image_tables(requests: Requests) -> ImageTables:
    """Return the tables of requests that have images."""
    shown = requests.images
    assert shown is not None  # noqa: S101 - the caller has asked
    images = records(len(shown.position), IMAGE)
    images["position"], images["num_tokens"] = shown.position, shown.num_tokens
    images["content"] = shown.content
    of: Records = PER_REQUEST["images_of"].rows(records(0, IMAGES_OF), len(requests))
    of["first"], of["count"] = shown.starts, shown.counts
    has_any = shown.counts > 0
    ends = np.concatenate([[0], np.cumsum(shown.num_tokens)])
    of["num_tokens"] = ends[shown.starts + shown.counts] - ends[shown.starts]
    last = (shown.starts + shown.counts - 1)[has_any]
    of["end"][has_any] = (shown.position + shown.num_tokens)[last]
    for first, count in np.unique(np.stack([shown.starts, shown.counts], axis=1)[shown.counts > 1], axis=0):
        contents = shown.content[first : first + count]
        _, inverse, number = np.unique(contents, return_inverse=True, return_counts=True)
        images["is_repeated"][first : first + count] = number[inverse] > 1
    lengths = np.array([table_length(count) for count in shown.counts.tolist()], np.int64)
    of["set_start"] = np.where(lengths > 0, np.cumsum(lengths) - lengths, NEVER)
    of["set_mask"] = SMALLEST_TABLE - 1
    return ImageTables(
        images=images,
        images_of=of,
        image_sets=np.zeros(int(lengths.sum()), np.int32),
        num_contents=int(shown.content.max(initial=-1)) + 1,
    )


def with_images(state: State, tables: ImageTables, config: EngineConfig) -> State:
    """Return the state of an engine that encodes images.

    Budget and room are vLLM's: ``max_num_batched_tokens`` where nothing is said, and the largest image at least
    (vllm 0.32.0 v1/core/encoder_cache_manager.py:compute_mm_encoder_budget). Raises InvalidConfig on settings that
    images are not simulated with.
    """
    check_images(tables.largest, config)
    settings, encoder = state.engine["settings"], state.engine["encoder"]
    settings["has_images"] = settings["cuts_shares"] = settings["notes_shares"] = 1
    for name in ("max_num_encoder_input_tokens", "encoder_cache_size"):
        settings[name] = max(getattr(config, name) or config.max_num_batched_tokens, tables.largest)
    settings["adds_time"] |= config.has_encoder_time
    settings["disable_chunked_mm_input"] = config.disable_chunked_mm_input
    settings["may_pass_over_empty"] = settings["passes_over_empty_shares"]
    settings["num_prefill_lookahead_tokens"] = max(config.num_prefill_lookahead_tokens, int(config.use_eagle))
    encoder["num_free_slots"] = encoder["num_freeable_slots"] = settings["encoder_cache_size"]
    most = int(tables.images_of["count"].max(initial=0))
    return state._replace(
        images=tables.images,
        images_of=tables.images_of,
        image_sets=tables.image_sets,
        moved_images=np.zeros(most, np.int64),
        encoder_cache=records(tables.num_contents + 1, ENCODER_ENTRY),
        images_in_hand=np.zeros(most, np.int64),
    )


def check_images(largest: int, config: EngineConfig) -> None:
    """Raise InvalidConfig on settings with which images, the largest of so many tokens, are not simulated."""
    way_out = "or language_model_only true: images are then text"
    for name, needed in WITHOUT_IMAGES:
        value = getattr(config, name)
        if value != needed:
            raise InvalidConfig(
                f"{name}: {value} cannot be combined with images, expected {needed}, {way_out}"
            )
    if config.has_shared_store:
        raise InvalidConfig(
            f"kv_offloading: {config.kv_offloading} cannot be combined with images, expected none, {way_out}"
        )
    if config.disable_chunked_mm_input and largest > config.max_num_batched_tokens:
        raise InvalidConfig(
            f"disable_chunked_mm_input: got true with an image of {largest} tokens, expected images of at most "
            f"{config.max_num_batched_tokens} (max_num_batched_tokens)"
        )
