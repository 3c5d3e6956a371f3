"""How many tokens each layer of a model sees, where its layers differ in nothing else.

What ``layer_types`` is without being written: transformers' ``configuration_*.py`` of each model type (5.19). What
vLLM makes of it: ``model_executor/models`` and ``engine/arg_utils.py:create_engine_config`` (vllm 0.32.0), by which
all layers have the window that no layer was given by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from replay.model.config_json import ModelFields, shown
from replay.model.families import Family
from replay.model.layers.read_layers import WAY_ROUND
from replay.model.shape import Attention, Mixer, MixerKind

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
USUAL_FIRST_WINDOW = 28
"""``max_window_layers`` of a Qwen file that does not say it."""
ROTARY_INTERVAL = 4
"""``no_rope_layer_interval`` of a file that does not say it."""


def windowed_layers(
    text: ModelFields, family: Family, attention: Attention, *, num_layers: int
) -> tuple[Mixer, ...]:
    """Return the layers by how much they see, in the order of the first of each. Raises ConfigError."""
    kind: MixerKind = "chunked" if family.windows == "chunked" else "sliding"
    number = Counter(_windows(text, family, num_layers=num_layers))
    return tuple(
        Mixer(kind=kind if window else "full", num_layers=count, attention=attention, window=window)
        for window, count in number.items()
    )


def _windows(text: ModelFields, family: Family, *, num_layers: int) -> Sequence[int]:
    """Return how many tokens each layer sees; 0: all."""
    if family.windows == "chunked":
        chunk = _window(text, family, "attention_chunk_size")
        return [chunk * has_rotary for has_rotary in rotary_layers(text, num_layers)]
    window, kinds = _window(text, family, "sliding_window"), _listed(text, num_layers)
    if family.windows in QWEN:
        return [_of_qwen(text, family, kinds, window, num_layers=num_layers)] * num_layers
    if kinds:
        is_windowed: Sequence[bool] = [kind == SLIDING for kind in kinds]
        if window == 0 and any(is_windowed):
            text.fail(
                "sliding_window",
                got=shown(text.values.get("sliding_window")),
                expected="the tokens that windowed layers see",
            )
    else:
        is_windowed = _usual(text, family, num_layers=num_layers) if window else [False] * num_layers
    own = _listed_windows(text, num_layers) if family.lists_windows else ()
    sizes = own or [window + family.one_more] * num_layers
    return [size * each for size, each in zip(sizes, is_windowed, strict=True)]


def _window(text: ModelFields, family: Family, key: str) -> int:
    """Return the tokens in a window, the family's where the file does not say them; 0: null, or none."""
    said = text.integer(key)
    usual = 0 if text.is_null(key) else family.usual_window
    return usual if said is None else said


def _listed(text: ModelFields, num_layers: int) -> tuple[str, ...]:
    """Return ``layer_types``, nothing where it is absent. Raises ConfigError on other kinds, and on too few."""
    kinds = text.texts("layer_types")
    for kind in kinds:
        if kind not in (FULL, SLIDING):
            text.fail(
                "layer_types",
                got=f"{kind!r}, which {text.text('model_type')} has not",
                expected=f"{FULL} or {SLIDING}; {WAY_ROUND}",
            )
    if kinds and len(kinds) < num_layers:
        text.fail("layer_types", got=f"{len(kinds)} kinds", expected=f"one for each of {num_layers} layers")
    return kinds[:num_layers]


def _usual(text: ModelFields, family: Family, *, num_layers: int) -> Sequence[bool]:
    """Return which layers have a window where no list says it."""
    if family.windows == "alternate":
        return [n % 2 == 0 for n in range(num_layers)]
    if family.windows == "pattern":
        every = text.integer("sliding_window_pattern", "_sliding_window_pattern") or family.pattern
        return [(n + 1) % every != 0 for n in range(num_layers)]
    return [family.windows == "field"] * num_layers


def _listed_windows(text: ModelFields, num_layers: int) -> Sequence[int]:
    """Return ``sliding_windows``, tokens of each layer and null for all; nothing where it is absent (exaone_moe.py)."""
    key = "sliding_windows"
    sizes = text.items(key)
    for size in sizes:
        if size is not None and (type(size) is not int or size < 1):
            text.fail(key, got=shown(size), expected="the tokens that each layer sees, or null")
    if sizes and len(sizes) < num_layers:
        text.fail(key, got=f"{len(sizes)} numbers", expected=f"one for each of {num_layers} layers")
    return [size if type(size) is int else 0 for size in sizes[:num_layers]]


def rotary_layers(text: ModelFields, num_layers: int) -> Sequence[bool]:
    """Return which layers have rotary embeddings: a list of 0 and 1, else all but every n-th (Llama 4, SmolLM3)."""
    listed = text.items("no_rope_layers")
    if not listed:
        every = text.integer("no_rope_layer_interval")
        interval = ROTARY_INTERVAL if every is None else text.needed("no_rope_layer_interval")
        return [(n + 1) % interval != 0 for n in range(num_layers)]
    if len(listed) < num_layers:
        text.fail(
            "no_rope_layers", got=f"{len(listed)} numbers", expected=f"one for each of {num_layers} layers"
        )
    return [bool(each) for each in listed[:num_layers]]


QWEN = ("qwen", "qwen experts", "qwen mixed")


def _of_qwen(text: ModelFields, family: Family, kinds: Sequence[str], window: int, *, num_layers: int) -> int:
    """Return what every layer of a Qwen model sees: vLLM gives its window to all of them or to none.

    There is one only with ``use_sliding_window``. Without ``layer_types``: of Qwen2 and Qwen3 (qwen) those from
    ``max_window_layers`` on would have it; of Qwen3's experts all; of Qwen2's every second. qwen2.py refuses models
    that would have it in some, unless ``max_window_layers`` is the number of layers. Raises ConfigError likewise.
    """
    first = text.integer("max_window_layers")
    first = USUAL_FIRST_WINDOW if first is None else first
    window = window if text.flag("use_sliding_window") else 0
    if kinds:
        has_window = {kind == SLIDING for kind in kinds}
    elif family.windows == "qwen":
        has_window = {window > 0 and n >= first for n in range(num_layers)}
    else:
        has_window = {family.windows == "qwen experts"}
    if len(has_window) > 1 and family.windows == "qwen" and first != num_layers:
        text.fail(
            "max_window_layers",
            got=f"{first} with windows in some layers",
            expected=f"{num_layers}, all layers: vLLM does not serve a {text.text('model_type')} whose layers have a "
            "window in part (qwen2.py)",
        )
    return window if has_window == {True} else 0
