"""Models whose layers are of several kinds: how many of each, read from the fields that each model's config.json has.

Weights are counted as vllm 0.32.0 makes them (``model_executor/models``, ``models``), norms and biases left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from replay.model.config_json import ModelFields, shown
from replay.model.layers.compressed import compressed
from replay.model.layers.gemma import gemma3n, gemma4
from replay.model.layers.mamba_models import falcon_h1, granite_hybrid, lfm2, mamba2_state
from replay.model.layers.read_layers import (
    WAY_ROUND,
    Layers,
    connection_parameters,
    in_order,
    indexer_entry_bytes,
    listed_kinds,
)
from replay.model.layers.spellings import NEMOTRON_BLOCKS
from replay.model.layers.state_models import jamba, mamba, mamba2, zamba2
from replay.model.layers.windows_by_layer import gated, laguna, step
from replay.model.shape import Attention, Indexer, LayerState, Mixer

FLOAT32_BYTES = 4
USUAL_SHARING = 4
"""Layers of Hunyuan 4 that take the choice of one indexer, where its file does not say it."""
INDEXERS = {"F": "full", "S": "shared"}
OPT_OFFSET = 2
"""Rows of OPT's positions that no token has (opt.py: OPTLearnedPositionalEmbedding)."""
NAS_MULTIPLE = 256
"""Widths of Nemotron-NAS are rounded up to it (nemotron_nas.py:_find_multiple)."""


def _gated_delta(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Qwen3-Next and Qwen3.5: gated delta nets, every n-th layer attention with a gate (qwen3_next.py, qwen3_5.py)."""
    if "layer_types" in text:
        kinds = listed_kinds(
            text, "layer_types", ("linear_attention", "full_attention"), num_layers=num_layers
        )
    else:
        every = text.integer("full_attention_interval") or 4
        kinds = tuple("linear_attention" if (n + 1) % every else "full_attention" for n in range(num_layers))
    heads, width = text.needed("linear_num_value_heads"), text.needed("linear_value_head_dim")
    key_heads, key_width = text.needed("linear_num_key_heads"), text.needed("linear_key_head_dim")
    values, keys, hidden = heads * width, key_heads * key_width, text.needed("hidden_size")
    kernel = text.integer("linear_conv_kernel_dim") or 4
    state = LayerState(
        name="gated delta nets",
        num_heads=heads,
        head_dim=width,
        key_heads=key_heads,
        key_dim=key_width,
        conv_kernel=kernel,
        dtype_bytes=FLOAT32_BYTES if text.text("mamba_ssm_dtype") == "float32" else 2,
        parameters=hidden * (2 * keys + 2 * values + 2 * heads)
        + values * hidden
        + kernel * (2 * keys + values),
        num_products=3,
        kernel=None if text.text("model_type") == "olmo_hybrid" else "gated delta",
    )
    gated = replace(attention, has_gate=text.flag("attn_output_gate") is not False)
    number = Counter(kinds)
    mixers = {
        "linear_attention": Mixer(kind="state", num_layers=number["linear_attention"], state=state),
        "full_attention": Mixer(kind="full", num_layers=number["full_attention"], attention=gated),
    }
    return Layers(mixers=in_order(kinds, mixers), states=_numbers(kinds, "linear_attention"))


def _numbers(kinds: Sequence[str], kind: str) -> frozenset[int]:
    """Return the numbers of the layers of a kind."""
    return frozenset(number for number, each in enumerate(kinds) if each == kind)


BLOCKS_OF_NEMOTRON = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def _nemotron_kinds(text: ModelFields, num_layers: int) -> tuple[str, ...]:
    """Return what each layer is, by a list of names, or a text of letters where there is none."""
    pattern = text.text("hybrid_override_pattern")
    if pattern is None and "layers_block_type" not in text:
        text.fail(
            "hybrid_override_pattern",
            got="nothing",
            expected=f"{', '.join(BLOCKS_OF_NEMOTRON)} of each layer; {WAY_ROUND}",
        )
    if "layers_block_type" in text or pattern is None:
        known = (*BLOCKS_OF_NEMOTRON.values(), *NEMOTRON_BLOCKS)
        listed = listed_kinds(text, "layers_block_type", known, num_layers=num_layers)
        return tuple(NEMOTRON_BLOCKS.get(kind, kind) for kind in listed)
    unknown = sorted(set(pattern) - set(BLOCKS_OF_NEMOTRON))
    if unknown:
        text.fail(
            "hybrid_override_pattern",
            got=f"{unknown[0]!r}, a kind of layer that is not known",
            expected=f"{', '.join(BLOCKS_OF_NEMOTRON)}; {WAY_ROUND}",
        )
    return tuple(BLOCKS_OF_NEMOTRON[letter] for letter in pattern)


def _nemotron_h(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Nemotron-H and Nemotron 3: each layer is one of Mamba-2, attention, an MLP, or experts (nemotron_h.py)."""
    kinds = _nemotron_kinds(text, num_layers)
    heads, width = text.needed("mamba_num_heads"), text.needed("mamba_head_dim")
    groups, size, hidden = text.needed("n_groups"), text.needed("ssm_state_size"), text.needed("hidden_size")
    kernel, inner = text.integer("conv_kernel") or 4, heads * width
    state = mamba2_state(
        hidden,
        inner=inner,
        num_heads=heads,
        num_groups=groups,
        size=size,
        kernel=kernel,
        dtype_bytes=FLOAT32_BYTES if (text.text("mamba_ssm_cache_dtype") or "float32") == "float32" else 2,
    )
    number = Counter(kinds)
    mixers = {
        "mamba": Mixer(kind="state", num_layers=number["mamba"], state=state),
        "attention": Mixer(kind="full", num_layers=number["attention"], attention=attention),
    }
    latent = text.integer("moe_latent_size") or 0
    return Layers(
        mixers=in_order(kinds, mixers),
        num_moe_layers=number["moe"],
        num_plain_mlps=number["mlp"],
        other_parameters=2 * number["moe"] * latent * hidden,
        only=kinds,
        states=_numbers(kinds, "mamba"),
    )


def _sparse(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """DeepSeek-V3.2 and GLM-5: latent attention to the keys that an indexer picks (deepseek_v2.py: Indexer).

    Layers whose indexer is shared take the choice of the layer before, and keep no keys of their own.
    """
    heads, width, top = (text.needed(f"index_{name}") for name in ("n_heads", "head_dim", "topk"))
    hidden, rank = text.needed("hidden_size"), text.integer("q_lora_rank") or text.needed("hidden_size")
    kinds = _indexers(text, num_layers)
    own = Indexer(
        num_heads=heads,
        head_dim=width,
        top_k=top,
        entry_bytes=indexer_entry_bytes(width),
        parameters=rank * heads * width + hidden * (width + heads),
    )
    shared = Indexer(num_heads=0, head_dim=0, top_k=top, entry_bytes=0, parameters=0)
    number = Counter(kinds)
    mixers = {
        kind: Mixer(kind="full", num_layers=number[kind], attention=attention, indexer=indexer)
        for kind, indexer in (("full", own), ("shared", shared))
    }
    return Layers(mixers=in_order(kinds, mixers))


def _indexers(text: ModelFields, num_layers: int) -> tuple[str, ...]:
    """Return of each layer whether its indexer is its own, ``full``, or ``shared``.

    vLLM goes by ``index_topk_pattern``, else by ``index_topk_freq`` and ``index_skip_topk_offset``, and does not read
    ``indexer_types`` (models/deepseek_v32/attention.py); of Hunyuan 4 it reads nothing else (configs/hy_v4.py).
    Raises ConfigError where both are there and differ.
    """
    said: tuple[str, ...] = ()
    if "indexer_types" in text:
        said = listed_kinds(text, "indexer_types", ("full", "shared"), num_layers=num_layers)
    if text.text("model_type") == "hy_v4":
        usual = tuple("shared" if n and (n - 1) % USUAL_SHARING else "full" for n in range(num_layers))
        return said or usual
    found = _indexers_by_pattern(text, num_layers) if "index_topk_pattern" in text else None
    if found is None:
        every = text.needed("index_topk_freq") if "index_topk_freq" in text else 1
        first = text.integer("index_skip_topk_offset")
        ahead = (2 if first is None else first) - 1
        found = tuple("shared" if max(n - ahead, 0) % every else "full" for n in range(num_layers))
    if said and said != found:
        text.fail(
            "indexer_types",
            got=f"{said.count('full')} layers that are full",
            expected=f"the {found.count('full')} of index_topk_pattern, or of index_topk_freq and "
            "index_skip_topk_offset: vLLM goes by these",
        )
    return found


def _indexers_by_pattern(text: ModelFields, num_layers: int) -> tuple[str, ...]:
    """Return the same by a letter, F or S, of each layer; those behind the last are full."""
    key = "index_topk_pattern"
    letters = text.texts(key) if text.is_list(key) else tuple(text.text(key) or "")
    unknown = next((letter for letter in letters if letter not in INDEXERS), None)
    if unknown is not None:
        text.fail(key, got=f"{unknown!r}, a kind of layer that is not known", expected="F or S of each layer")
    kinds = [INDEXERS[letter] for letter in letters[:num_layers]]
    return (*kinds, *["full"] * (num_layers - len(kinds)))


def _hy_v4(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Hunyuan 4: as above with a gate at the output, and several hidden states (models/hy_v4)."""
    gated = replace(attention, has_gate=text.flag("gated_mla") is not False)
    sparse, streams = _sparse(text, gated, num_layers), text.integer("hc_mult") or 1
    return replace(
        sparse,
        attention=gated,
        residual_streams=streams,
        other_parameters=connection_parameters(
            2 * streams, streams=streams, hidden=text.needed("hidden_size"), num_layers=num_layers
        ),
    )


def _kimi_delta(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Kimi Linear and K3: Kimi delta attention, every fourth layer latent attention with a gate (models/kimi_k3)."""
    linear = text.mapping("linear_attn_config")
    if linear is None:
        text.fail("linear_attn_config", got="nothing", expected="which layers are linear attention")
    delta = set(linear.integers("kda_layers"))
    kinds = tuple("delta" if n + 1 in delta else "latent" for n in range(num_layers))
    heads, width, hidden = linear.needed("num_heads"), linear.needed("head_dim"), text.needed("hidden_size")
    inner, kernel = heads * width, linear.integer("short_conv_kernel_size") or 4
    gate = hidden * inner if linear.flag("use_full_rank_gate") else (hidden + inner) * width
    state = LayerState(
        name="Kimi delta attention",
        num_heads=heads,
        head_dim=width,
        key_heads=heads,
        key_dim=width,
        conv_kernel=kernel,
        dtype_bytes=FLOAT32_BYTES,
        parameters=hidden * (3 * inner + width + heads)
        + width * inner
        + gate
        + inner * hidden
        + 3 * kernel * inner,
        num_products=3,
        kernel="kda" if "gate_lower_bound" in linear else None,
    )
    gated = replace(attention, has_gate=text.flag("mla_use_output_gate") or False)
    number = Counter(kinds)
    mixers = {
        "delta": Mixer(kind="state", num_layers=number["delta"], state=state),
        "latent": Mixer(kind="full", num_layers=number["latent"], attention=gated),
    }
    latent, first = text.integer("routed_expert_hidden_size") or 0, text.integer("first_k_dense_replace") or 0
    return Layers(
        mixers=in_order(kinds, mixers),
        other_parameters=2 * (num_layers - first) * latent * hidden,
        states=_numbers(kinds, "delta"),
    )


def _mimo_v2(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """MiMo-V2: windows of other heads than the full layers, by a list of 0 and 1 (mimo_v2.py)."""
    pattern = [bool(each) for each in text.items("hybrid_layer_pattern")][:num_layers]
    if len(pattern) < num_layers:
        text.fail(
            "hybrid_layer_pattern",
            got=f"{len(pattern)} entries",
            expected=f"0, full, or 1, a window, of each of {num_layers} layers; {WAY_ROUND}",
        )
    windowed = Attention(
        num_heads=text.integer("swa_num_attention_heads") or attention.num_heads,
        num_kv_heads=text.integer("swa_num_key_value_heads") or attention.num_kv_heads,
        head_dim=text.integer("swa_head_dim") or attention.head_dim,
        v_head_dim=text.integer("swa_v_head_dim") or attention.v_head_dim,
    )
    window = text.needed("sliding_window_size", "sliding_window")
    kinds = ["sliding" if each else "full" for each in pattern]
    mixers = {
        "sliding": Mixer(kind="sliding", num_layers=sum(pattern), attention=windowed, window=window),
        "full": Mixer(kind="full", num_layers=num_layers - sum(pattern), attention=attention),
    }
    return Layers(mixers=in_order(kinds, mixers), num_moe_layers=_ones(text, num_layers))


def _ones(text: ModelFields, num_layers: int) -> int:
    """Return how many of the layers a list of 0 and 1 says to have experts."""
    return sum(bool(each) for each in text.items("moe_layer_freq")[:num_layers])


def _minimax_m3(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """MiniMax-M3: in some layers an index picks blocks of keys for each head of KV (models/minimax_m3).

    Its file says it in ``sparse_attention_config``; what transformers has written, in ``layer_types``.
    """
    sparse = text.mapping("sparse_attention_config")
    fields = text if sparse is None else sparse
    if sparse is not None:
        is_sparse = [bool(each) for each in sparse.items("sparse_attention_freq")]
    else:
        known = ("full_attention", "minimax_m3_sparse")
        kinds = (
            listed_kinds(text, "layer_types", known, num_layers=num_layers) if "layer_types" in text else ()
        )
        is_sparse = [kind == known[1] for kind in kinds]
    is_sparse = is_sparse[:num_layers] + [False] * (num_layers - len(is_sparse))
    number = Counter(is_sparse)
    mixers = {False: Mixer(kind="full", num_layers=number[False], attention=attention)}
    if number[True]:
        mixers[True] = Mixer(
            kind="full",
            num_layers=number[True],
            attention=attention,
            indexer=_index_of_blocks(fields, text.needed("hidden_size")),
        )
    return Layers(
        mixers=tuple(mixers[each] for each in dict.fromkeys(is_sparse)),
        num_moe_layers=_ones(text, num_layers) if text.items("moe_layer_freq") else None,
    )


def _index_of_blocks(fields: ModelFields, hidden: int) -> Indexer:
    """Return MiniMax-M3's index: a key of a token for all heads, in 16 bits (common/indexer.py)."""
    heads, width = (
        fields.needed("sparse_num_index_heads", "index_n_heads"),
        fields.needed("sparse_index_dim", "index_head_dim"),
    )
    block = fields.needed("sparse_block_size", "index_block_size")
    return Indexer(
        num_heads=heads,
        head_dim=width,
        top_k=block * fields.needed("sparse_topk_blocks", "index_topk_blocks"),
        entry_bytes=2 * width,
        parameters=hidden * (heads + 1) * width,
        block_size=block,
    )


def _nas(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Nemotron-NAS: heads of KV and the width of the MLP by layer, or none of either (nemotron_nas.py)."""
    hidden, heads, width = text.needed("hidden_size"), attention.num_heads, attention.head_dim
    blocks = [ModelFields(each.without_nulls()) for each in text.section.sections("block_configs")]
    if len(blocks) < num_layers:
        text.fail(
            "block_configs", got=f"{len(blocks)} blocks", expected=f"one for each of {num_layers} layers"
        )
    kv_heads: list[int] = []
    widths: list[int] = []
    for block in blocks[:num_layers]:
        mixing, mlp = block.mapping("attention"), block.mapping("ffn")
        for part, key in ((mixing, "attention"), (mlp, "ffn")):
            if part is None or part.flag("replace_with_linear") or part.integer("window_length"):
                block.fail(
                    key, got=shown(part and dict(part.values)), expected="attention or an MLP, or no_op"
                )
        assert mixing is not None  # noqa: S101 - it was just seen
        assert mlp is not None  # noqa: S101 - likewise
        if not mixing.flag("no_op"):
            kv_heads.append(heads // mixing.needed("n_heads_in_group"))
        if not mlp.flag("no_op"):
            wide = int(2 * float(str(mlp.values.get("ffn_mult", 0))) * hidden / 3)
            widths.append(-(-wide // NAS_MULTIPLE) * NAS_MULTIPLE)
    mixers = tuple(
        Mixer(
            kind="full",
            num_layers=number,
            attention=Attention(num_heads=heads, num_kv_heads=kv, head_dim=width, v_head_dim=width),
        )
        for kv, number in Counter(kv_heads).items()
    )
    return Layers(mixers=mixers, num_plain_mlps=len(widths), plain_width=sum(widths))


def _learned_positions(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """GPT-2 and OPT: an embedding of the position beside that of the token (gpt2.py, opt.py)."""
    hidden = text.needed("hidden_size")
    if text.integer("word_embed_proj_dim") not in (None, hidden):
        text.fail(
            "word_embed_proj_dim",
            got=f"{text.integer('word_embed_proj_dim')}",
            expected=f"hidden_size, {hidden}: embeddings of another width are not read",
        )
    more = OPT_OFFSET if text.text("model_type") == "opt" else 0
    return Layers(
        mixers=(Mixer(kind="full", num_layers=num_layers, attention=attention),),
        lookup_parameters=(text.needed("max_position_embeddings") + more) * hidden,
    )


def _longcat(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """LongCat-Flash: latent attention and an MLP twice in a layer, experts beside them once (longcat_flash.py).

    ``num_layers`` counts the halves. The router's scores of experts that do nothing are products, too.
    """
    empty = text.integer("zero_expert_num") or 0
    return Layers(
        mixers=(Mixer(kind="full", num_layers=num_layers, attention=attention),),
        num_moe_layers=num_layers // 2,
        num_plain_mlps=num_layers,
        other_parameters=num_layers // 2 * empty * text.needed("hidden_size"),
    )


HYBRIDS: Mapping[str, Callable[[ModelFields, Attention, int], Layers]] = {
    "gemma3n_text": gemma3n,
    "gemma4_text": gemma4,
    "gemma4_unified_text": gemma4,
    "qwen3_next": _gated_delta,
    "qwen3_5_text": _gated_delta,
    "qwen3_5_moe_text": _gated_delta,
    "nemotron_h": _nemotron_h,
    "deepseek_v32": _sparse,
    "hy_v4": _hy_v4,
    "glm_moe_dsa": _sparse,
    "kimi_linear": _kimi_delta,
    "mimo_v2_flash": _mimo_v2,
    "mimo_v2": _mimo_v2,
    "nemotron-nas": _nas,
    "deepseek_v4": compressed,
    "deepseek_ref": compressed,
    "gpt2": _learned_positions,
    "gpt_bigcode": _learned_positions,
    "longcat_flash": _longcat,
    "mamba": mamba,
    "falcon_mamba": mamba,
    "mamba2": mamba2,
    "jamba": jamba,
    "zamba2": zamba2,
    "opt": _learned_positions,
    "laguna": laguna,
    "step3p5": step,
    "step3p7": step,
    "afmoe": gated,
    "muse_glimmer_text": gated,
    "olmo_hybrid": _gated_delta,
    "minimax_m3": _minimax_m3,
    "minimax_m3_vl_text": _minimax_m3,
    "granitemoehybrid": granite_hybrid,
    "falcon_h1": falcon_h1,
    "lfm2": lfm2,
    "lfm2_moe": lfm2,
}
"""How a model's layers are read, by config.json's ``model_type``."""
