"""Fields of families that have names of their own for what others call ``hidden_size`` and the like.

The classes are transformers' ``configuration_*.py`` of each model type (5.19); an MLP is four times as wide as the rest
where its file does not say.
"""

from __future__ import annotations

from collections.abc import Mapping

from replay.model.config_json import ModelFields

Fields = Mapping[str, object]
WIDER = 4
MAMBA_RANK = 16
"""How many times narrower than the hidden size the step of Mamba's scan is made, where its rank is ``auto``."""


def gpt(text: ModelFields) -> Fields:
    """GPT-2, GPT-J and GPT-BigCode (``attribute_map``); the last with one head of keys and values or all."""
    hidden = text.needed("n_embd", "hidden_size")
    said: dict[str, object] = {
        "hidden_size": hidden,
        "num_hidden_layers": text.needed("n_layer", "num_hidden_layers"),
        "num_attention_heads": text.needed("n_head", "num_attention_heads"),
        "intermediate_size": text.integer("n_inner") or WIDER * hidden,
    }
    if text.text("model_type") == "gpt_bigcode" and text.flag("multi_query") is not False:
        said["num_key_value_heads"] = 1
    longest = text.integer("n_positions")
    return said if longest is None else {**said, "max_position_embeddings": longest}


def qwen(text: ModelFields) -> Fields:
    """Qwen of 2023, whose file gives both halves of the gated product as one width (vllm 0.32.0 models/qwen.py)."""
    return {"intermediate_size": text.needed("intermediate_size") // 2}


def bloom(text: ModelFields) -> Fields:
    """BLOOM, whose heads see how far away a token is (ALiBi)."""
    hidden = text.needed("hidden_size", "n_embed")
    return {
        "hidden_size": hidden,
        "num_hidden_layers": text.needed("n_layer", "num_hidden_layers"),
        "num_attention_heads": text.needed("n_head", "num_attention_heads"),
        "intermediate_size": WIDER * hidden,
    }


def falcon(text: ModelFields) -> Fields:
    """Falcon: ``num_kv_heads`` counts in the newer architecture alone; else there is one, or all (falcon.py)."""
    heads, hidden = text.needed("num_attention_heads", "n_head"), text.needed("hidden_size")
    kv_heads = 1 if text.flag("multi_query") is not False else heads
    if text.flag("new_decoder_architecture"):
        kv_heads = text.integer("num_kv_heads", "n_head_kv") or heads
    return {
        "num_hidden_layers": text.needed("num_hidden_layers", "n_layer"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": WIDER * hidden,
    }


def dbrx(text: ModelFields) -> Fields:
    """DBRX: experts in every layer, its attention and they in objects of their own (dbrx.py)."""
    experts, attention = text.mapping("ffn_config"), text.mapping("attn_config")
    said = {
        "hidden_size": text.needed("d_model"),
        "num_hidden_layers": text.needed("n_layers"),
        "num_attention_heads": text.needed("n_heads"),
        "num_key_value_heads": (attention and attention.integer("kv_n_heads")) or 1,
    }
    if experts is None:
        text.fail("ffn_config", got="nothing", expected="how many experts there are, and how wide")
    return said | {
        "num_local_experts": experts.needed("moe_num_experts"),
        "num_experts_per_tok": experts.needed("moe_top_k"),
        "intermediate_size": experts.needed("ffn_hidden_size"),
    }


def mpt(text: ModelFields) -> Fields:
    """MPT, as wide in its MLPs as ``expansion_ratio`` says."""
    hidden, heads = text.needed("d_model"), text.needed("n_heads")
    attention = text.mapping("attn_config")
    return {
        "hidden_size": hidden,
        "num_hidden_layers": text.needed("n_layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": (attention and attention.integer("kv_n_heads")) or heads,
        "intermediate_size": (text.integer("expansion_ratio") or WIDER) * hidden,
    }


def hunyuan_moe(text: ModelFields) -> Fields:
    """Hunyuan-A13B: what all layers have alike is a list of one number each (hunyuan_v1_moe.py)."""
    said = {
        key: _alike(text, name)
        for key, name in (
            ("num_experts_per_tok", "moe_topk"),
            ("n_shared_experts", "num_shared_expert"),
            ("expert_size", "moe_intermediate_size"),
        )
    }
    size = said.pop("expert_size")
    wide = text.needed("intermediate_size")
    found: dict[str, object] = {key: value for key, value in said.items() if value}
    if said["n_shared_experts"]:
        found["shared_expert_intermediate_size"] = wide
    return found | ({"moe_intermediate_size": size} if size else {})


def _alike(text: ModelFields, key: str) -> int | None:
    """Return a number that is said once, or of each layer. Raises ConfigError where the layers differ."""
    if not text.is_list(key):
        return text.integer(key)
    values = set(text.integers(key))
    if len(values) != 1:
        text.fail(key, got=str(sorted(values)), expected="the same of every layer")
    return values.pop()


def mamba(text: ModelFields) -> Fields:
    """Mamba and Falcon-Mamba: no attention; their channels stand for its heads, which share out as those do."""
    hidden = text.needed("hidden_size")
    inner = text.integer("intermediate_size") or (text.integer("expand") or 2) * hidden
    return {"num_attention_heads": inner, "head_dim": 1, **ranks(text, "time_step_rank")}


def mamba2(text: ModelFields) -> Fields:
    """Mamba-2: no attention; the heads of its states stand for its heads."""
    return {"num_attention_heads": text.needed("num_heads")}


def jamba(text: ModelFields) -> Fields:
    """Jamba: the same rank by another name."""
    return ranks(text, "mamba_dt_rank")


def ranks(text: ModelFields, key: str) -> Fields:
    """Return the rank of a scan's step, under ``dt_rank``."""
    said = text.values.get(key, "auto")
    return {"dt_rank": -(-text.needed("hidden_size") // MAMBA_RANK) if said == "auto" else text.needed(key)}


def longcat(text: ModelFields) -> Fields:
    """LongCat-Flash: a layer is two of attention and two MLPs; some of a token's experts do nothing (zero experts)."""
    real, empty = text.needed("n_routed_experts"), text.integer("zero_expert_num") or 0
    each = text.needed("moe_topk")
    return {
        "num_hidden_layers": 2 * text.needed("num_layers"),
        "intermediate_size": text.needed("ffn_hidden_size"),
        "moe_intermediate_size": text.needed("expert_ffn_hidden_size"),
        "num_experts_per_tok": max(1, round(each * real / (real + empty))),
    }
