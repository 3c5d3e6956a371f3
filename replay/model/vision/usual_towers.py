"""Vision towers that are a CLIP or SigLIP of transformers, or nearly so, with a projector of the model's own.

Products are those of vllm 0.32.0 (model_executor/models/NAME.py).
"""

from __future__ import annotations

from dataclasses import replace

from replay.model.config_json import ModelFields
from replay.model.vision.class_defaults import SIGLIP
from replay.model.vision.fields_of_towers import colours, plain, side, text_width
from replay.model.vision.tower import VisionTower

CLIP = "clip_vision_model"
FEATURE_LAYER = -2
"""The layer whose outputs LLaVA takes, where its file does not say: the last but one."""


def llava(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """LLaVA and LLaVA-NeXT: CLIP or SigLIP up to the layer whose outputs are taken, an MLP (llava.py, clip.py)."""
    tower, text = _clip_or_siglip(vision), text_width(fields)
    layer = fields.values.get("vision_feature_layer", FEATURE_LAYER)
    if type(layer) is not int or not -tower.num_layers <= layer <= tower.num_layers:
        fields.fail("vision_feature_layer", got=str(layer), expected="the number of one layer")
    return replace(
        tower,
        num_layers=layer if layer >= 0 else tower.num_layers + 1 + layer,
        projector=((tower.hidden_size, text), (text, text)),
    )


def llava_onevision(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """LLaVA-OneVision: all of SigLIP, an MLP that every GPU has as a whole (llava_onevision.py)."""
    last = {"vision_feature_layer": -1}
    return replace(llava(vision, fields.completed(last)), splits_projector=False)


def paligemma(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """PaliGemma: SigLIP and one product (paligemma.py)."""
    tower = _clip_or_siglip(vision)
    out = vision.integer("projection_dim") or text_width(fields)
    return replace(tower, projector=((tower.hidden_size, out),), splits_projector=False)


def cohere2_vision(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """Command with eyes: SigLIP, patches shuffled together, a gated MLP (cohere2_vision.py)."""
    tower, factor = _clip_or_siglip(vision), fields.integer("downsample_factor") or 2
    inner, merge = fields.needed("alignment_intermediate_size"), factor**2
    return replace(
        tower,
        merge=merge,
        projector=((tower.hidden_size * merge, inner), (inner // 2, text_width(fields))),
    )


def idefics3(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """Idefics 3 and SmolVLM: SigLIP in tiles, ``scale_factor`` squared patches in one, a product (idefics3.py)."""
    tower, merge = _clip_or_siglip(vision), (fields.integer("scale_factor") or 2) ** 2
    joined = ((tower.hidden_size * merge, text_width(fields)),)
    return replace(tower, merge=merge, projector=joined, splits_projector=False)


def paddleocr_vl(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """PaddleOCR-VL: SigLIP on images as they are, 2 x 2 patches in one, an MLP on every GPU (paddleocr_vl.py)."""
    tower, merge = _clip_or_siglip(vision), (vision.integer("spatial_merge_size") or 2) ** 2
    joined = tower.hidden_size * merge
    return replace(
        tower,
        tile_patches=0,
        merge=merge,
        projector=((joined, joined), (joined, text_width(fields))),
        splits_projector=False,
    )


def glm_ocr(vision: ModelFields, fields: ModelFields) -> VisionTower:
    """GLM-OCR: GLM-4.1V's tower without places, its MLP as wide as the merger's (glm_ocr.py)."""
    hidden, out = vision.needed("hidden_size"), vision.integer("out_hidden_size") or text_width(fields)
    inner, heads = vision.needed("intermediate_size"), vision.needed("num_heads")
    merge = (vision.integer("spatial_merge_size") or 2) ** 2
    frames = vision.integer("temporal_patch_size") or 2
    return VisionTower(
        kind="",
        num_layers=vision.needed("depth"),
        hidden_size=hidden,
        num_heads=heads,
        head_dim=hidden // heads,
        intermediate_size=inner,
        patch_inputs=colours(vision) * frames * side(vision, "patch_size") ** 2,
        merge=merge,
        projector=((hidden * merge, out), (out, out), (out, 2 * inner), (inner, out)),
        whole_products=1,
        is_gated=True,
    )


def _clip_or_siglip(vision: ModelFields) -> VisionTower:
    """Return a CLIP or SigLIP on squares of one size; CLIP has a class token, and a place for it."""
    vision = vision.completed(SIGLIP)
    tower = plain(vision)
    patches = (side(vision, "image_size") // side(vision, "patch_size")) ** 2
    class_tokens = int(vision.text("model_type") == CLIP)
    return replace(
        tower,
        tile_patches=patches,
        class_tokens=class_tokens,
        has_data_mode=False,
        position_parameters=(patches + class_tokens) * tower.hidden_size,
    )
