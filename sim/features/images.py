"""Images, and the encoder that makes their tokens (``sim/engine/optional/encoder_inputs.py`` has the rules)."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from sim.features.setting import setting, since


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class EncoderCosts:
    """What the encoder takes."""

    __slots__ = ()

    encoder_step_us: float = setting(
        0.0, "µs of a step in which an encoder makes any tokens, once.", least=0, taken=True
    )
    encoder_token_us: float = setting(
        0.0,
        "µs per image, audio or video token, in the step in which its request is first scheduled; of a "
        "trace's `images` in the step that encodes them.",
        least=0,
        taken=True,
    )
    encoder_token_pair_us: float = setting(
        0.0, "µs per pair of tokens of one of a trace's `images`, n² of n, in that step.", least=0, taken=True
    )
    encoder_data_parallel_size: int = setting(
        1,
        "GPUs that share the images of a step out: it waits for the largest one, or for "
        "an equal share of all, whichever takes longer.",
        least=1,
        most=1024,
        taken=True,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class ImageSettings:
    """What a step encodes, and what is kept of it."""

    __slots__ = ()

    max_num_encoder_input_tokens: int = setting(
        0,
        "Tokens of images (`images` of a trace) that a step encodes; 0: "
        "`max_num_batched_tokens`, as vLLM. It is at least the largest image.",
        most=2**30,
    )
    encoder_cache_size: int = setting(
        0,
        "Tokens of encoded images that are kept, shared by requests with one image; 0: as above.",
        most=2**30,
    )
    disable_chunked_mm_input: bool = setting(
        False,
        "No step computes a part of an image: a prompt is cut before it. vLLM sets it for "
        "models whose images see themselves in both directions (Gemma 3 and 4).",
        flag="disable-chunked-mm-input",
    )
    language_model_only: bool = setting(
        False,
        "No encoder: a trace's images are tokens that can be cut anywhere, as text.",
        flag="language-model-only",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class ImageRules:
    """What versions do with images (sched/scheduler.py).

    - ``cuts_before_cached_images``: with ``disable_chunked_mm_input`` a share ends before an image that it would not
      reach the end of, also where the encoder has seen that (from 0.32.0; _try_schedule_encoder_inputs).
    - ``holds_repeated_images``: a request that shows an image twice in a step holds it for both (from 0.32.0).
    - ``holds_images_to_the_last``: a request that shows an image several times lets it go with the last; before, with
      the first, and holds it again where it still needs it (from 0.29.0; encoder_cache_manager.py:free_encoder_input).
    - ``frees_images_once_read``: an image is let go when its last token is known to be computed and drafts have read
      past it; before, with the first results behind the step that schedules it (from 0.24.0; _free_encoder_inputs).
    - ``encodes_ahead``: an image is also encoded when only drafts read its first token; before, that made room for it
      and left it (from 0.28.0; _try_schedule_encoder_inputs).
    - ``passes_over_empty_shares``: an admission that an image, or what several MTP modules read ahead, leaves no tokens
      is passed over; before, it stopped those behind it (from 0.33.0; schedule).
    - ``encodes_without_lookahead``: a share ends just before an image that cannot be encoded, and an image is let go
      with its last token, whatever a drafting model reads ahead (from 0.33.0; _try_schedule_encoder_inputs,
      _free_encoder_inputs).
    - ``keeps_whole_images_together``: with ``disable_chunked_mm_input`` a share that begins with an image does not end
      within it either (from 0.33.0; _try_schedule_encoder_inputs).
    """

    __slots__ = ()

    cuts_before_cached_images: bool = since(32)
    holds_repeated_images: bool = since(32)
    holds_images_to_the_last: bool = since(29)
    frees_images_once_read: bool = since(24)
    encodes_ahead: bool = since(28)
    passes_over_empty_shares: bool = since(33)
    encodes_without_lookahead: bool = since(33)
    keeps_whole_images_together: bool = since(33)
