"""DeepSeek-V4: layers that keep one entry for 4 or 128 tokens, beside a window (vllm 0.32.0 models/deepseek_v4).

``compress_ratios`` says it of each layer; 0 and 1 are windows alone. With a ratio of 4 an indexer picks the entries
that a query sees, with 128 it sees them all.
"""

from __future__ import annotations

from collections import Counter

from replay.model.config_json import ModelFields, shown
from replay.model.layers.read_layers import WAY_ROUND, Layers, connection_parameters, indexer_entry_bytes
from replay.model.shape import Attention, Compression, Indexer, Mixer, SharedKeyAttention

RATIOS = (4, 128)
PICKED = 4
"""The ratio whose entries an indexer picks from; they also overlap, each made of twice as many tokens."""
HASH_ROUTED = "num_hash_layers: the table that routes tokens by their number is not counted"


def compressed(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Return DeepSeek-V4's layers, in the order of the first of each ratio. Raises ConfigError on another ratio."""
    shared = _shared_key(text, attention)
    window = text.needed("sliding_window")
    ratios = [_ratio(text, each) for each in text.items("compress_ratios")]
    if len(ratios) < num_layers:
        text.fail(
            "compress_ratios",
            got=f"{len(ratios)} ratios",
            expected=f"0, 4 or 128 of each of {num_layers} layers; {WAY_ROUND}",
        )
    mixers = tuple(
        _mixer(text, shared, ratio, num_layers=number, window=window)
        for ratio, number in Counter(ratios[:num_layers]).items()
    )
    hidden, streams = text.needed("hidden_size"), text.integer("hc_mult") or 1
    return Layers(
        mixers=mixers,
        attention=shared,
        other_parameters=connection_parameters(
            (2 + streams) * streams, streams=streams, hidden=hidden, num_layers=num_layers
        ),
        residual_streams=streams,
        has_fp8_kv_cache=True,
        left_out=(HASH_ROUTED,) if text.integer("num_hash_layers") else (),
    )


def _ratio(text: ModelFields, item: object) -> int:
    if type(item) is not int or item not in (0, 1, *RATIOS):
        text.fail(
            "compress_ratios", got=shown(item), expected="ratios of 0, 1, 4 or 128, as vLLM serves them"
        )
    return max(1, item)


def _shared_key(text: ModelFields, attention: Attention) -> SharedKeyAttention:
    rope = text.needed("qk_rope_head_dim")
    if rope >= attention.head_dim:
        text.fail("qk_rope_head_dim", got=f"{rope}", expected=f"a part of head_dim, {attention.head_dim}")
    return SharedKeyAttention(
        num_heads=attention.num_heads,
        num_kv_heads=1,
        head_dim=attention.head_dim,
        v_head_dim=attention.head_dim,
        q_latent_rank=text.needed("q_lora_rank"),
        kv_latent_rank=attention.head_dim - rope,
        rope_head_dim=rope,
        o_groups=text.needed("o_groups"),
        o_latent_rank=text.needed("o_lora_rank"),
    )


def _mixer(
    text: ModelFields, attention: SharedKeyAttention, ratio: int, *, num_layers: int, window: int
) -> Mixer:
    if ratio == 1:
        return Mixer(kind="sliding", num_layers=num_layers, attention=attention, window=window)
    return Mixer(
        kind="full",
        num_layers=num_layers,
        attention=attention,
        indexer=_indexer(text, attention) if ratio == PICKED else None,
        compression=_compression(text, ratio, width=attention.head_dim, window=window),
    )


def _compression(text: ModelFields, ratio: int, *, width: int, window: int) -> Compression:
    """Return what makes the entries: a product for keys and one for their weights (compressor.py)."""
    overlap = 2 if ratio == PICKED else 1
    return Compression(
        ratio=ratio,
        window=window,
        parameters=2 * overlap * width * (text.needed("hidden_size") + ratio // 2),
        state_width=2 * overlap * width,
        state_window=overlap * ratio,
    )


def _indexer(text: ModelFields, attention: SharedKeyAttention) -> Indexer:
    """Return the indexer, with a compressor of its own; no part of it is divided over a group."""
    heads, width = text.needed("index_n_heads"), text.needed("index_head_dim")
    own = _compression(text, PICKED, width=width, window=0)
    return Indexer(
        num_heads=heads,
        head_dim=width,
        top_k=text.needed("index_topk"),
        entry_bytes=indexer_entry_bytes(width),
        parameters=attention.q_latent_rank * heads * width
        + text.needed("hidden_size") * heads
        + own.parameters,
    )
