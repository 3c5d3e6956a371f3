"""The layers with which a model drafts for itself (multi-token prediction, MTP): what they keep of a request.

vLLM deals them out with the model's own layers, behind them (vllm 0.32.0 config/speculative.py:hf_config_override,
model_executor/models/*_mtp.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from replay.model.config_json import ModelFields
from replay.model.shape import Experts, Mixer, MtpLayers

MODULES = "num_nextn_predict_layers"
"""How many modules draft one after another, where a config.json says it; else one that is run again."""
NUMBERS = (MODULES, "mtp_num_hidden_layers", "num_mtp_modules")
NUMBERS_IN_VLLM: Mapping[str, int] = {"mimo_v2_flash": 1}
"""Numbers that vLLM has itself, by model type (mimo_v2_mtp.py)."""
NOT_IN_VLLM = frozenset({"minimax_m2"})
"""Models with MTP layers that vLLM up to 0.33.0 does not serve (config/speculative.py: hf_config_override)."""
SLIDING = "sliding_attention"
WINDOWED = frozenset({"mimo_v2_flash"})
"""Models of windows and full layers whose MTP layers are like those with a window (mimo_v2_mtp.py)."""
WITHOUT_EXPERTS = frozenset({"mimo", "mimo_v2_flash", "ernie4_5_moe", "exaone_moe", "step3p5", "step3p7"})
"""Models whose MTP layers have a plain MLP, whatever the others have (mimo_v2_mtp.py, ernie_mtp.py, …)."""
WITH_OWN_HEADS = frozenset({"step3p5", "step3p7"})
"""Models each of whose MTP layers has an LM head of its own (step3p5_mtp.py: has_own_lm_head)."""
WITH_SPLIT_PROJECTION = frozenset(
    {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "exaone_moe", "nemotron_h"}
)
"""Models that share the product of both inputs out over the GPUs (ColumnParallelLinear); others have it whole."""


def mtp_layers(
    text: ModelFields,
    model_type: str,
    mixers: Sequence[Mixer],
    *,
    experts: Experts | None,
    spared: Sequence[str],
) -> MtpLayers | None:
    """Return a model's MTP layers, None where it has none, or it is not known which of its layers they are like.

    ``experts``: the model's; ``spared``: names of modules that its quantization leaves as they are.
    """
    if model_type in NOT_IN_VLLM:
        return None
    number = NUMBERS_IN_VLLM.get(model_type) or text.integer(*NUMBERS) or 0
    place = text.needed("num_hidden_layers")
    listed = (*text.texts("layer_types"), *text.texts("mtp_layer_types"))[place : place + number]
    like = _layers_like_theirs(model_type, mixers, listed=listed)
    if not number or like is None:
        return None
    pattern = text.text("mtp_hybrid_override_pattern")
    return MtpLayers(
        mixer=replace(like, num_layers=number),
        num_modules=text.integer(MODULES) or 1,
        has_experts=experts is not None
        and model_type not in WITHOUT_EXPERTS
        and (pattern is None or "E" in pattern),
        splits_projection=model_type in WITH_SPLIT_PROJECTION,
        is_spared=_is_spared(spared, place=place),
        has_own_heads=model_type in WITH_OWN_HEADS,
    )


def _is_spared(names: Sequence[str], *, place: int) -> bool:
    """Return whether names of modules cover the layers that draft: those called mtp, or the one behind the last."""
    behind = f"layers.{place}"
    return any(
        name.split(".")[0].startswith("mtp") or name.removeprefix("model.").rstrip(".*") == behind
        for name in names
    )


def projection_parameters(hidden_size: int) -> int:
    """Return the weights of the product that makes a layer's input of an embedding and a hidden state (eh_proj)."""
    return 2 * hidden_size * hidden_size


def _layers_like_theirs(model_type: str, mixers: Sequence[Mixer], *, listed: Sequence[str]) -> Mixer | None:
    """Return the layers that MTP layers are like: those with keys and values, where these are alike.

    ``listed``: their own kinds, of a file that lists more than its layers (step3p5.py goes by the number of a layer).
    DeepSeek-V4's are windows without entries (``compress_ratios`` ends with 0: models/deepseek_v4/attention.py). Where
    some layers take the index of the one before, those that draft have their own (deepseek_v2.py: is_mtp_layer).
    """
    compressed = next((each for each in mixers if each.compression is not None), None)
    if compressed is not None and compressed.compression is not None:
        window = compressed.compression.window
        return Mixer(kind="sliding", num_layers=1, attention=compressed.attention, window=window)
    found = [
        each
        for each in mixers
        if each.attention is not None and (each.indexer is None or each.indexer.num_heads)
    ]
    if len(found) > 1 and listed and len(set(listed)) == 1:
        found = [each for each in found if each.is_windowed == (listed[0] == SLIDING)]
    if model_type in WINDOWED:
        found = [each for each in found if each.is_windowed]
    return found[0] if len(found) == 1 else None
