"""Models of Mamba's first and second kind: alone, beside attention (Jamba), or with attention that is shared (Zamba2).

Weights are counted as vllm 0.32.0 makes them (``model_executor/models``), norms and biases left out.
"""

from __future__ import annotations

from collections import Counter
from lazy_dataclasses import dataclass, replace

from replay.model.config_json import ModelFields
from replay.model.layers.mamba_models import STATE_BYTES, mamba2_state
from replay.model.layers.read_layers import Layers, in_order, listed_kinds
from replay.model.shape import Attention, LayerState, Mixer

SCAN = "Mamba-1 layers, whose scan goes channel by channel"
SHARED = "attention that layers share, behind a product each"
ZAMBA_MAMBA, ZAMBA_HYBRID = ("mamba", "linear_attention"), "hybrid"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAttention(Attention):
    """Attention whose weights several layers have together: ``weights`` of each, on average."""

    weights: int

    def parameters(self, hidden_size: int) -> int:
        """Return a layer's part of the weights; ``hidden_size`` says nothing of them."""
        del hidden_size
        return self.weights


def mamba1_state(hidden: int, *, inner: int, size: int, rank: int, kernel: int) -> LayerState:
    """Return a layer of Mamba (arXiv:2312.00752): ``inner`` channels with ``size`` numbers each (mamba_mixer.py)."""
    products = hidden * 2 * inner + inner * (rank + 2 * size) + rank * inner + inner * hidden
    return LayerState(
        name="Mamba-1",
        num_heads=inner,
        head_dim=1,
        key_heads=0,
        key_dim=size,
        conv_kernel=kernel,
        dtype_bytes=STATE_BYTES,
        parameters=products + inner * (kernel + size),
    )


def mamba(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Mamba and Falcon-Mamba: such layers and nothing else (mamba.py)."""
    state = mamba1_state(
        text.needed("hidden_size"),
        inner=attention.num_heads,
        size=text.needed("state_size"),
        rank=text.needed("dt_rank"),
        kernel=text.needed("conv_kernel"),
    )
    return Layers(
        mixers=(Mixer(kind="state", num_layers=num_layers, state=state),), num_plain_mlps=0, not_timed=(SCAN,)
    )


def mamba2(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Mamba-2: such layers and nothing else (mamba2.py)."""
    heads = attention.num_heads
    state = mamba2_state(
        text.needed("hidden_size"),
        inner=heads * text.needed("head_dim"),
        num_heads=heads,
        num_groups=text.needed("n_groups"),
        size=text.needed("state_size"),
        kernel=text.needed("conv_kernel"),
        dtype_bytes=STATE_BYTES,
    )
    return Layers(mixers=(Mixer(kind="state", num_layers=num_layers, state=state),), num_plain_mlps=0)


def jamba(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Jamba: every so-many-th layer attention, every so-many-th with experts (jamba.py)."""
    kinds = ["mamba"] * num_layers
    for at in _every(text, "attn_layer", num_layers):
        kinds[at] = "attention"
    hidden, number = text.needed("hidden_size"), Counter(kinds)
    state = mamba1_state(
        hidden,
        inner=(text.integer("mamba_expand") or 2) * hidden,
        size=text.needed("mamba_d_state"),
        rank=text.needed("dt_rank"),
        kernel=text.needed("mamba_d_conv"),
    )
    mixers = {
        "mamba": Mixer(kind="state", num_layers=number["mamba"], state=state),
        "attention": Mixer(kind="full", num_layers=number["attention"], attention=attention),
    }
    has_experts = (text.integer("num_experts") or 1) > 1
    with_experts = len(_every(text, "expert_layer", num_layers)) if has_experts else 0
    return Layers(
        mixers=in_order(kinds, mixers),
        num_moe_layers=with_experts,
        num_plain_mlps=num_layers - with_experts,
        not_timed=(SCAN,),
    )


def _every(text: ModelFields, name: str, num_layers: int) -> range:
    """Return the layers that a period and an offset say."""
    return range(text.integer(f"{name}_offset") or 0, num_layers, text.needed(f"{name}_period"))


def zamba2(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Zamba2: Mamba-2 in every layer; before some of them one of a few blocks of attention and an MLP (zamba2.py).

    A block reads the hidden state and the embedding side by side. Each layer that has one keeps keys and values of its
    own, and has a product, and adapters, of its own; the block's weights are there once.
    """
    kinds = listed_kinds(text, "layers_block_type", (*ZAMBA_MAMBA, ZAMBA_HYBRID), num_layers=num_layers)
    number, hidden = kinds.count(ZAMBA_HYBRID), text.needed("hidden_size")
    heads, inner = text.needed("n_mamba_heads"), (text.integer("mamba_expand") or 2) * hidden
    state = mamba2_state(
        hidden,
        inner=inner,
        num_heads=heads,
        num_groups=text.needed("mamba_ngroups"),
        size=text.needed("mamba_d_state"),
        kernel=text.needed("mamba_d_conv"),
        dtype_bytes=STATE_BYTES,
    )
    mixers: list[Mixer] = [Mixer(kind="state", num_layers=num_layers, state=state)]
    other = 0
    if number:
        weights = _block_parameters(text, num_hybrid=number, hidden=hidden)
        dim = text.integer("attention_head_dim") or 2 * hidden // attention.num_heads
        shared = SharedAttention(
            num_heads=attention.num_heads,
            num_kv_heads=attention.num_kv_heads,
            head_dim=dim,
            v_head_dim=dim,
            weights=weights // number,
        )
        mixers.append(Mixer(kind="full", num_layers=number, attention=shared))
        other = weights % number
        attention = replace(attention, head_dim=dim, v_head_dim=dim)
    if kinds[0] == ZAMBA_HYBRID:
        mixers.reverse()
    return Layers(
        mixers=tuple(mixers),
        attention=attention,
        num_plain_mlps=0,
        other_parameters=other,
        not_timed=(SHARED,) if number else (),
    )


def _block_parameters(text: ModelFields, *, num_hybrid: int, hidden: int) -> int:
    """Return the weights of all blocks, with the products and the adapters of the layers that have them."""
    blocks, rank = text.integer("num_mem_blocks") or 1, text.integer("adapter_rank") or 0
    width, inner = text.integer("attention_hidden_size") or 2 * hidden, text.needed("intermediate_size")
    block = 3 * width * width + width * hidden + 3 * hidden * inner
    low_rank = rank * (hidden + 2 * inner)
    if text.flag("use_shared_attention_adapter"):
        low_rank += 3 * rank * 2 * width
    return min(blocks, num_hybrid) * block + num_hybrid * (hidden * hidden + low_rank)
