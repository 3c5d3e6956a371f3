"""What images add to the engine's records (``sim/engine/optional/encoder_inputs.py`` has the rules)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.feature import FeatureRecords, PerRequest, Records, never

IMAGE = np.dtype(
    [
        ("position", np.int32),  # of its first token in the prompt
        ("num_tokens", np.int32),
        ("content", np.int32),
        ("is_repeated", np.int16),  # the request has its content twice
        ("is_held", np.int16),  # its request holds it in the encoder cache
        (
            "is_counted",
            np.int16,
        ),  # without ``holds_images_to_the_last``: it is the one by which the request is counted
    ],
    align=True,
)
"""An image of a prompt (vLLM's ``mm_features``); a request's are consecutive, by position."""

IMAGES_OF = np.dtype(
    [
        ("first", np.int32),  # of ``State.images``
        ("count", np.int32),
        ("end", np.int32),  # where in the prompt the last one ends
        ("num_tokens", np.int32),  # of all of them
        ("num_held", np.int32),
        ("set_start", np.int32),  # these three: sim/engine/optional/held_images.py; NEVER: it needs no table
        ("set_mask", np.int32),
        ("set_fill", np.int32),
        ("num_encoded", np.int32),  # tokens of images that the encoder makes for it in ``step``
        ("step", np.int32),  # from 1
        ("num_pairs", np.float64),  # these two likewise: of tokens of one image; tokens of the largest image
        ("largest", np.int64),
    ],
    align=True,
)
"""The images of a request."""

ENCODER_ENTRY = np.dtype(
    [
        ("next", np.uint32),  # in the order in which they were released; 0 is the ring's head
        ("previous", np.uint32),
        ("num_refs", np.int32),  # requests that hold it
        ("num_embeds", np.int32),  # 0: it is not cached
    ],
    align=True,
)
"""An image's place in the encoder cache; row 0 is the head of the ring, row k + 1 content k."""

ENCODER = np.dtype(
    [
        ("num_free_slots", np.int64),
        ("num_freeable_slots", np.int64),  # these, and those of images that no request holds
        ("compute_budget", np.int64),  # from here on: of the step in hand
        ("budget_behind", np.int64),  # what is left of it behind the request in hand
        ("num_in_hand", np.int64),  # images of the request in hand that it takes along
    ],
    align=True,
)
"""The encoder cache: worthless where ``has_images`` is 0."""


class ImageArrays:
    """Empty where no prompt has an image."""

    __slots__ = ()

    images: Records  # IMAGE[images of all prompts]
    images_of: Records  # IMAGES_OF[capacity]
    image_sets: NDArray[np.int32]  # tables of the images that requests hold, those of more than a few images
    moved_images: NDArray[np.int64]  # scratch, [most images of a request]
    encoder_cache: Records  # ENCODER_ENTRY[contents of images + 1]
    images_in_hand: NDArray[
        np.int64
    ]  # scratch, [most images of a request]: those that the request in hand takes along; -1 - i of a repeated one


IMAGES = FeatureRecords(
    settings=[
        ("has_images", np.int64),
        ("max_num_encoder_input_tokens", np.int64),
        ("encoder_cache_size", np.int64),
        ("disable_chunked_mm_input", np.int64),
    ],
    current_step=[
        ("num_encoder_tokens", np.int64)  # that an encoder makes in it
    ],
    traits=[("num_encoder_tokens", np.int32)],
    engine=[("encoder", ENCODER)],
    absent={"has_images": 0},
    begins_empty={
        "images": IMAGE,
        "images_of": IMAGES_OF,
        "image_sets": np.int32,
        "moved_images": np.int64,
        "encoder_cache": ENCODER_ENTRY,
        "images_in_hand": np.int64,
    },
    per_request={"images_of": PerRequest(exists=never, is_asked_for=True, shared_by="fleet")},
    emptied=("encoder_cache",),
)
"""Images, and what an encoder makes of them."""
