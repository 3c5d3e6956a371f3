"""Vision towers of config.json files, by ``model_type``: one function for each way of saying it.

Products are those of vllm 0.32.0 (model_executor/models/NAME.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from replay.model.config_json import ModelFields
from replay.model.vision.class_defaults import (
    GEMMA4,
    GLM4V,
    INTERN_VIT,
    LLAMA4,
    PIXTRAL,
    QWEN2_5_VL,
    QWEN2_VL,
    QWEN3_VL,
    SIGLIP,
)
from replay.model.vision.fields_of_towers import colours, plain, shuffled, side, text_width
from replay.model.vision.tower import VisionTower
from replay.model.vision.usual_towers import (
    CLIP,
    cohere2_vision,
    glm_ocr,
    idefics3,
    llava,
    llava_onevision,
    paddleocr_vl,
    paligemma,
)
from traces import ConfigError

VISION = "vision_config"
MM_PREFIX_LM_MODELS = ("bagel", "gemma3", "molmo2", "moondream3", "paligemma")
FRAMES = 2
AXES = 2
"""Gemma 4 has a table of places for each direction (gemma4_mm.py)."""
KIMI_PLACES = 64
"""Places on a side of a picture, where the file does not say (kimi_k25_vit.py, moonvit.py)."""
GEMMA4_LARGEST = 1120
"""The most of the token budgets that Gemma 4's processor knows (vllm 0.32.0 gemma4_mm.py: _SUPPORTED_SOFT_TOKENS)."""


def read_tower(fields: ModelFields) -> tuple[VisionTower | None, str]:
    """Return (the vision tower of a config.json, why it is not known): None and "" where it has none.

    One that the file says nothing of (``{}``) is that of its family's defaults, as in transformers.
    """
    if fields.values.get(VISION) is None:
        return None, ""
    kind = fields.text("model_type") or ""
    read = TOWERS.get(kind)
    if read is None:
        return None, f"{VISION} of model_type {kind!r} is no vision tower that is known ({', '.join(TOWERS)})"
    vision = fields.mapping(VISION)
    try:
        assert vision is not None  # noqa: S101 - it was just seen
        return replace(read(vision, fields), kind=kind), ""
    except ConfigError as error:
        return None, f"{VISION} is not understood: {error}"


def is_mm_prefix_lm(fields: ModelFields) -> bool:
    """Return whether tokens of an image see each other in both directions.

    vllm 0.32.0 transformers_utils/model_arch_config_convertor.py:is_mm_prefix_lm.
    """
    kind, said = fields.text("model_type"), fields.values.get("is_mm_prefix_lm")
    if kind == "gemma4":
        return fields.language_model.values.get("use_bidirectional_attention") == "vision"
    return bool(said) if said is not None else kind in MM_PREFIX_LM_MODELS


def _of_qwen(vision: ModelFields, *, hidden: int, inner: int, projected: int, merges: int = 1) -> VisionTower:
    """Return what the towers of Qwen's models have in common: images whole, two frames a patch, 2 x 2 merged by an MLP.

    ``merges``: with those that feed deeper layers of the language model (deepstack).
    """
    heads, side = vision.needed("num_heads"), vision.needed("patch_size")
    merge = (vision.integer("spatial_merge_size") or 2) ** 2
    frames = vision.integer("temporal_patch_size") or FRAMES
    return VisionTower(
        kind="",
        num_layers=vision.needed("depth"),
        hidden_size=hidden,
        num_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=inner,
        patch_inputs=colours(vision) * frames * side**2,
        merge=merge,
        projector=((hidden * merge, hidden * merge), (hidden * merge, projected)) * merges,
        is_largest_known=True,
        position_parameters=(vision.integer("num_position_embeddings") or 0) * hidden,
    )


def _qwen2_vl(vision: ModelFields, _: ModelFields) -> VisionTower:
    vision = vision.completed(QWEN2_VL)
    hidden, ratio = vision.needed("embed_dim"), vision.needed("mlp_ratio")
    return _of_qwen(vision, hidden=hidden, inner=ratio * hidden, projected=vision.needed("hidden_size"))


def _qwen2_5_vl(vision: ModelFields, fields: ModelFields) -> VisionTower:
    vision = vision.completed(QWEN2_5_VL)
    hidden, inner = vision.needed("hidden_size"), vision.needed("intermediate_size")
    projected = vision.integer("out_hidden_size") or text_width(fields)
    tower = _of_qwen(vision, hidden=hidden, inner=inner, projected=projected)
    num_full = len(vision.items("fullatt_block_indexes"))
    return replace(
        tower,
        is_gated=True,
        num_windowed_layers=max(tower.num_layers - num_full, 0),
        window_patches=(vision.needed("window_size") // vision.needed("patch_size")) ** 2,
    )


def _qwen3_vl(vision: ModelFields, fields: ModelFields) -> VisionTower:
    vision = vision.completed(QWEN3_VL)
    hidden, inner = vision.needed("hidden_size"), vision.needed("intermediate_size")
    projected = vision.integer("out_hidden_size") or text_width(fields)
    merges = 1 + len(vision.items("deepstack_visual_indexes"))
    return _of_qwen(vision, hidden=hidden, inner=inner, projected=projected, merges=merges)


def _qwen3_5(vision: ModelFields, fields: ModelFields) -> VisionTower:
    return _qwen3_vl(vision.completed({"deepstack_visual_indexes": []}), fields)


def _glm4v(vision: ModelFields, _: ModelFields) -> VisionTower:
    """Its MLP is as wide as its output, and ``intermediate_size`` is the merger's."""
    vision = vision.completed(GLM4V)
    hidden, out = vision.needed("hidden_size"), vision.needed("out_hidden_size")
    tower, inner = (
        _of_qwen(vision, hidden=hidden, inner=out, projected=out),
        vision.needed("intermediate_size"),
    )
    merger = ((hidden * tower.merge, out), (out, out), (out, 2 * inner), (inner, out))
    places = (side(vision, "image_size") // side(vision, "patch_size")) ** 2
    return replace(
        tower,
        is_gated=True,
        projector=merger,
        whole_products=1,
        is_largest_known=False,
        position_parameters=places * hidden,
    )


def _gemma3(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """SigLIP on images of one size, whose patches are averaged to ``mm_tokens_per_image``; a projection."""
    _expect_kind(vision, "siglip_vision_model")
    vision = vision.completed(SIGLIP)
    tower, tokens = plain(vision), fields.integer("mm_tokens_per_image") or 256
    patches = (side(vision, "image_size") // side(vision, "patch_size")) ** 2
    return replace(
        tower,
        tile_patches=patches,
        merge=max(patches // tokens, 1),
        projector=((tower.hidden_size, text_width(fields)),),
        splits_projector=False,
        has_data_mode=False,
        position_parameters=patches * tower.hidden_size,
    )


def _gemma4(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """Read the class of transformers, whole on every GPU; squares of patches are averaged; a projection."""
    vision = vision.completed(GEMMA4)
    tower = plain(vision)
    return replace(
        tower,
        is_gated=True,
        merge=vision.needed("pooling_kernel_size") ** 2,
        projector=((tower.hidden_size, text_width(fields)),),
        is_split=False,
        splits_projector=False,
        has_data_mode=False,
        max_tokens_per_item=GEMMA4_LARGEST,
        is_largest_known=True,
        position_parameters=AXES * vision.needed("position_embedding_size") * tower.hidden_size,
    )


def _llama4(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """Tiles of one size; 2 x 2 patches shuffled into one vector (pixel_shuffle_ratio), an MLP and a projection."""
    vision = vision.completed(LLAMA4)
    tower, ratio = plain(vision), shuffled(vision, "pixel_shuffle_ratio")
    into, out = vision.needed("projector_input_dim"), vision.needed("projector_output_dim")
    patches = (side(vision, "image_size") // side(vision, "patch_size")) ** 2
    return replace(
        tower,
        tile_patches=patches,
        class_tokens=1,
        splits_patches=True,
        position_parameters=(patches + 1) * tower.hidden_size,
        merge=ratio,
        projector=(
            (tower.hidden_size * ratio, into),
            (into, out),
            (vision.needed("vision_output_dim"), text_width(fields)),
        ),
    )


def _internvl_chat(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """Tiles of one size with a class token; patches shuffled together (downsample_ratio), an MLP."""
    vision = vision.completed(INTERN_VIT)
    tower, ratio, text = plain(vision), shuffled(fields, "downsample_ratio"), text_width(fields)
    size = fields.integer("force_image_size") or side(vision, "image_size")
    patches = (size // side(vision, "patch_size")) ** 2
    return replace(
        tower,
        tile_patches=patches,
        class_tokens=1,
        merge=ratio,
        projector=((tower.hidden_size * ratio, text), (text, text)),
        splits_projector=False,
        position_parameters=(patches + 1) * tower.hidden_size,
    )


def _internvl(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """Read the same as transformers writes it, whose attention every GPU has as a whole (interns1_vit.py)."""
    return replace(_internvl_chat(vision, fields), splits_attention=False, has_data_mode=False)


def _pixtral(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """Images whole; with Mistral 3 ``spatial_merge_size`` squared patches merged by a product; an MLP."""
    _expect_kind(vision, "pixtral")
    vision = vision.completed(PIXTRAL)
    tower, text = plain(vision), text_width(fields)
    merges = fields.text("model_type") == "mistral3"
    said = fields.integer("spatial_merge_size") or vision.integer("spatial_merge_size")
    merge = (said or 2) ** 2 if merges else 1
    merger = ((tower.hidden_size * merge, tower.hidden_size),) if merges else ()
    return replace(
        tower,
        is_gated=True,
        merge=merge,
        projector=(*merger, (tower.hidden_size, text), (text, text)),
        whole_products=len(merger),
        has_data_mode=False,
    )


def _llava(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """Pixtral as transformers writes it, or the CLIP of the first LLaVA models."""
    is_clip = vision.text("model_type") in (CLIP, "siglip_vision_model")
    return llava(vision, fields) if is_clip else _pixtral(vision, fields)


def _kimi(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """MoonViT: images whole, ``merge_kernel_size`` patches side by side, an MLP that every GPU has as a whole."""
    tower = plain(vision, "vt_" if "vt_hidden_size" in vision else "")
    sides = vision.items("merge_kernel_size") or (2, 2)
    merge = 1
    for each in sides:
        merge *= each if isinstance(each, int) else 1
    joined = tower.hidden_size * merge
    high, wide = (
        vision.integer(f"init_pos_emb_{axis}", f"pos_emb_{axis}") or KIMI_PLACES
        for axis in ("height", "width")
    )
    return replace(
        tower,
        merge=merge,
        projector=((joined, joined), (joined, text_width(fields))),
        splits_projector=False,
        falls_back_to_data=True,
        position_parameters=high * wide * tower.hidden_size,
    )


def _expect_kind(vision: ModelFields, kind: str) -> None:
    """Raise ConfigError where a tower is of another kind than its model's usual one."""
    found = vision.text("model_type") or kind
    if found != kind:
        vision.fail("model_type", got=repr(found), expected=kind)


TOWERS: Final[Mapping[str, Callable[[ModelFields, ModelFields], VisionTower]]] = {
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "qwen3_5": _qwen3_5,
    "qwen3_5_moe": _qwen3_5,
    "glm4v": _glm4v,
    "glm4v_moe": _glm4v,
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "llama4": _llama4,
    "mistral3": _pixtral,
    "llava": _llava,
    "llava_next": llava,
    "llava_onevision": llava_onevision,
    "paligemma": paligemma,
    "cohere2_vision": cohere2_vision,
    "idefics3": idefics3,
    "smolvlm": idefics3,
    "paddleocr_vl": paddleocr_vl,
    "glm_ocr": glm_ocr,
    "internvl": _internvl,
    "internvl_chat": _internvl_chat,
    "kimi_vl": _kimi,
    "kimi_k25": _kimi,
    "kimi_k3": _kimi,
}
"""The kinds that are known."""
