"""The architectures that are understood, by config.json's ``model_type``, and what the others have that is not."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, field
from typing import Literal

from replay.model.shape import QkNorm

Windows = Literal["field", "listed", "alternate", "pattern", "chunked", "qwen", "qwen experts", "qwen mixed"]
"""Where the windowed layers are said when ``layer_types`` is absent: a ``sliding_window`` is for all layers (field),
for none (listed), for every second (alternate), for all but every n-th (pattern), or is called
``attention_chunk_size`` and spares the layers without rotary embedding (chunked). Qwen's models have it in all layers
or in none, and only with ``use_sliding_window`` (``layers/layer_windows.py``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a ``model_type`` says that its config.json does not.

    ``fields``: values of fields that a file may leave out, as the class of that name in transformers has them.
    ``pattern``: with windows by pattern, every how-maniest layer sees all of the context. ``one_more``: tokens that a
    window holds beyond what the file says; ``usual_window``: its tokens in a file that does not say them (null: none);
    ``lists_windows``: a list may say them of each layer. ``keeps_latent``: of latent attention (``Attention``).
    ``qk_norm``: over what queries and keys are normed (``ModelShape``).
    """

    is_gated: bool = True
    is_tied: bool = False
    windows: Windows = "field"
    pattern: int = 1
    one_more: int = 0
    usual_window: int = 0
    lists_windows: bool = False
    keeps_latent: bool = True
    has_shared_expert: bool = False
    qk_norm: QkNorm = ""
    fields: Mapping[str, int | str] = field(default_factory=dict)


GEMMA3_FIELDS: Mapping[str, int] = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}
"""Gemma3TextConfig of transformers; the files of the models that see images leave those out that they share."""

LANGUAGE_MODELS: Mapping[str, str] = {
    **dict.fromkeys(
        ("llava", "llava_next", "vipllava", "idefics3", "smolvlm", "voxtral", "granite_speech"), "llama"
    ),
    **dict.fromkeys(("internvl", "got_ocr2", "llava_onevision", "qwen2_audio", "ovis"), "qwen2"),
    **{"mistral3": "mistral", "paligemma": "gemma", "aya_vision": "cohere2"},
}
"""What the language model of a model with images or sound is where its own part of the file has no ``model_type``, as
transformers' class for it has it. Most others have the name of the whole, with ``_text`` behind it."""

FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(usual_window=4096),
    "ministral3": Family(),
    "apertus": Family(is_gated=False),
    "ernie4_5": Family(is_tied=True),
    "paddleocr_vl_text": Family(is_tied=True),
    "hyperclovax": Family(),
    "muse_glimmer_text": Family(fields={"sliding_window": 2048}),
    "stablelm": Family(),
    "aria_text": Family(),
    "granite_swa": Family(usual_window=128),
    "internlm": Family(),
    "qwen": Family(),
    "qwen2": Family(windows="qwen", usual_window=4096),
    "qwen2_vl": Family(windows="qwen", usual_window=4096, fields={"max_window_layers": 80}),
    "qwen2_vl_text": Family(windows="qwen", usual_window=4096, fields={"max_window_layers": 80}),
    "qwen2_5_vl": Family(windows="qwen", usual_window=4096, fields={"max_window_layers": 80}),
    "qwen2_5_vl_text": Family(windows="qwen", usual_window=4096, fields={"max_window_layers": 80}),
    "qwen2_5_omni_text": Family(windows="qwen", usual_window=32768),
    "qwen3": Family(windows="qwen", usual_window=4096, qk_norm="each head"),
    "qwen3_vl_text": Family(windows="qwen experts", qk_norm="each head"),
    "granite": Family(),
    "phi3": Family(),
    "smollm3": Family(is_tied=True, windows="listed"),
    "olmo2": Family(),
    "olmo3": Family(windows="pattern", pattern=4, usual_window=4096),
    "glm4": Family(),
    "glm4v_text": Family(),
    "glm_ocr_text": Family(),
    "internlm2": Family(),
    "internlm3": Family(),
    "seed_oss": Family(),
    "exaone4": Family(windows="pattern", pattern=4, usual_window=4096),
    "cohere": Family(is_tied=True),
    "cohere2": Family(is_tied=True, windows="pattern", pattern=4, one_more=1, usual_window=4096),
    "gemma": Family(is_tied=True),
    "gemma2": Family(is_tied=True, windows="alternate", usual_window=4096),
    "gemma3_text": Family(
        is_tied=True, windows="pattern", pattern=6, qk_norm="each head", fields=GEMMA3_FIELDS
    ),
    "gpt2": Family(is_gated=False, is_tied=True),
    "opt": Family(is_gated=False, is_tied=True),
    "starcoder2": Family(is_gated=False, is_tied=True),
    "gpt_neox": Family(is_gated=False),
    "nemotron": Family(is_gated=False),
    "arcee": Family(is_gated=False),
    "mixtral": Family(),
    "qwen2_moe": Family(windows="qwen mixed", usual_window=4096),
    "qwen3_moe": Family(windows="qwen experts", usual_window=4096, qk_norm="each head"),
    "qwen3_vl_moe_text": Family(windows="qwen experts", qk_norm="each head"),
    "olmoe": Family(),
    "phimoe": Family(),
    "granitemoe": Family(),
    "gpt_oss": Family(windows="alternate", usual_window=128),
    "minimax_m2": Family(qk_norm="all heads"),
    "granitemoeshared": Family(),
    "granitemoe_swa": Family(usual_window=128),
    "glm4_moe": Family(),
    "glm4v_moe_text": Family(),
    "glm4_moe_lite": Family(),
    "ernie4_5_moe": Family(is_tied=True),
    "exaone_moe": Family(
        windows="pattern",
        pattern=4,
        usual_window=4096,
        lists_windows=True,
        fields={"first_k_dense_replace": 1},
    ),
    "hy_v3": Family(),
    "axk1": Family(),
    "dots1": Family(),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(),
    "kimi_k2": Family(),
    "minicpm3": Family(is_tied=True, keeps_latent=False),
    "llama4_text": Family(windows="chunked", has_shared_expert=True, usual_window=8192),
    "mimo": Family(windows="qwen", usual_window=4096),
    "step3p5": Family(),
    "step3p7": Family(),
    "laguna": Family(fields={"sliding_window": 512}),
    "afmoe": Family(fields={"sliding_window": 1024, "num_dense_layers": 1}),
    "cohere2_moe": Family(is_tied=True, windows="pattern", pattern=4, one_more=1, usual_window=4096),
    "minimax_m3": Family(),
    "minimax_m3_vl_text": Family(),
    "granitemoehybrid": Family(),
    "falcon_h1": Family(),
    "lfm2": Family(is_tied=True),
    "lfm2_moe": Family(is_tied=True),
    "gemma3n_text": Family(is_tied=True),
    "gemma4_text": Family(is_tied=True),
    "gemma4_unified_text": Family(is_tied=True),
    "qwen3_next": Family(),
    "olmo_hybrid": Family(fields={"attn_output_gate": False}),
    "qwen3_5_text": Family(),
    "qwen3_5_moe_text": Family(),
    "nemotron_h": Family(is_gated=False),
    "nemotron-nas": Family(),
    "deepseek_v32": Family(),
    "glm_moe_dsa": Family(),
    "hy_v4": Family(),
    "kimi_linear": Family(),
    "mimo_v2_flash": Family(),
    "mimo_v2": Family(),
    "deepseek_v4": Family(fields={"expert_dtype": "fp4"}),
    "deepseek_ref": Family(),
    "falcon": Family(is_gated=False, is_tied=True),
    "bloom": Family(is_gated=False, is_tied=True),
    "mpt": Family(is_gated=False, is_tied=True),
    "gptj": Family(is_gated=False),
    "gpt_bigcode": Family(is_gated=False, is_tied=True),
    "phi": Family(is_gated=False),
    "jais2": Family(is_gated=False),
    "olmo": Family(),
    "flex_olmo": Family(),
    "glm": Family(),
    "cwm": Family(usual_window=8192),
    "mellum": Family(usual_window=1024, windows="listed"),
    "vaultgemma": Family(is_tied=True, windows="alternate", usual_window=4096),
    "hunyuan_v1_dense": Family(),
    "hunyuan_v1_moe": Family(),
    "dbrx": Family(),
    "mamba": Family(is_tied=True),
    "falcon_mamba": Family(),
    "mamba2": Family(),
    "jamba": Family(),
    "zamba2": Family(is_tied=True),
    "longcat_flash": Family(),
    "cosmos3_edge_text": Family(is_gated=False),
    "emu3_text_model": Family(),
    "hunyuan_vl_text": Family(is_tied=True),
}
"""Architectures that are understood."""

STATE_SPACE = "state-space layers, whose state does not grow with the context"
LINEAR = "linear-attention layers, whose state does not grow with the context"
SPARSE = "sparse attention, whose indexer picks the tokens that a query sees"
COMPRESSED = "layers that keep one key for several tokens, beside a window (compress_ratios)"
POOLED = "an index over pools of tokens, whose unfinished pool is a ring of blocks of its own"
CROSS = "cross-attention to an encoder"
LIGHTNING = "lightning attention beside full layers, which attn_type_list tells apart"
GROUPED_LINEAR = "linear attention beside latent attention, one layer of it in layer_group_size"
SHARING = "layers that read the keys and values of the one before them (cross-layer attention)"

NOT_MODELLED: Mapping[str, str] = {
    "bamba": STATE_SPACE,
    "glm5_next_text": POOLED,
    "glm5_next": POOLED,
    "qwen4_exp_text": POOLED,
    "qwen4_exp": POOLED,
    "inkling_text": "attention with convolutions of its own, whose last inputs are kept beside keys and values",
    "ernie4_5_vl_moe_text": "experts of two widths, for text and for images",
    "hrm_text": "layers that are gone through again and again, and keep each time",
    "plamo2": STATE_SPACE,
    "bailing_hybrid": GROUPED_LINEAR,
    "bailing_moe_linear": GROUPED_LINEAR,
    "minimax_m1": LIGHTNING,
    "plamo3": "windows by layer (interleaved_sliding_window), in layers whose weights are not counted here",
    "step3_text": "queries that are made of a low rank all heads share (share_q_dim)",
    "iquestloopcoder": "layers that are gone through loop_num times, with a window of loop_window_size",
    "pangu_ultra_moe": "latent attention (kv_lora_rank) and experts of a kind that is not counted here",
    "mistral4": "latent attention (kv_lora_rank) and experts of a kind that is not counted here",
    "minimax": LINEAR,
    "minimax_text_01": LINEAR,
    "rwkv": LINEAR,
    "mllama_text_model": CROSS,
    "whisper": CROSS,
    "t5": CROSS,
    "bart": CROSS,
}
"""What the architectures that people ask for have, and neither the KV capacity nor the roofline here knows."""

TELLING_FIELDS: Mapping[str, str] = {
    "compress_ratios": COMPRESSED,
    "index_topk": SPARSE,
    "mamba_d_state": STATE_SPACE,
    "ssm_state_size": STATE_SPACE,
    "ssm_cfg": STATE_SPACE,
    "linear_num_value_heads": LINEAR,
    "linear_attn_config": LINEAR,
    "cross_attention_layers": CROSS,
    "use_cla": SHARING,
}
"""Fields of config.json that say the same of an architecture of any name."""
UNKNOWN_TELLING: Mapping[str, str] = {
    "attn_type_list": LIGHTNING,
    "layer_group_size": GROUPED_LINEAR,
    "interleaved_sliding_window": "windows by layer",
    "loop_window_size": "layers that are gone through several times",
    "share_q_dim": "queries that are made of a low rank all heads share",
    "kv_lora_rank": "latent attention",
}
"""The same of an architecture that is not known; those that are may have them, too, and do not read them."""
NO_SERVERS = (
    "Bidirectional",
    "Eagle",
    "Medusa",
    "MTP",
    "SequenceClassification",
    "RewardModel",
    "TokenClassification",
)
"""Parts of the names in ``architectures`` of what vLLM does not serve as a writer of text: it embeds, judges, or drafts
for another model (model_executor/models/registry.py)."""
WRITES_TEXT = "ForConditionalGeneration"
"""How names end of models that write text from images, too: Eagle2_5_VL is one of them."""
