"""Models of attention beside Mamba-2 or short convolutions, in layers that each have an MLP or experts as well.

Weights are counted as vllm 0.32.0 makes them (``model_executor/models``), norms and biases left out. What a layer
keeps is in the model's own precision, unless ``--mamba-ssm-cache-dtype`` says otherwise
(mamba_utils.py:MambaStateDtypeCalculator).
"""

from __future__ import annotations

from collections import Counter

from replay.model.config_json import ModelFields, shown
from replay.model.layers.read_layers import Layers, in_order, listed_kinds
from replay.model.shape import Attention, LayerState, Mixer

STATE_BYTES = 2
MOST_FACTOR = 1000
ATTENTION, CONVOLUTION = ("attention", "full_attention"), ("conv", "linear_attention")
MAMBA = ("mamba", "linear_attention")
"""What layers are called in the models' own files, and in those that transformers has written."""


def mamba2_state(
    hidden: int, *, inner: int, num_heads: int, num_groups: int, size: int, kernel: int, dtype_bytes: int
) -> LayerState:
    """Return a Mamba-2 layer, ``inner`` numbers wide, of ``num_groups`` of B and C that are ``size`` wide."""
    convolved = inner + 2 * num_groups * size
    return LayerState(
        name="Mamba-2",
        num_heads=num_heads,
        head_dim=inner // num_heads,
        key_heads=num_groups,
        key_dim=size,
        conv_kernel=kernel,
        dtype_bytes=dtype_bytes,
        parameters=hidden * (inner + convolved + num_heads) + inner * hidden + kernel * convolved,
        kernel="mamba2",
    )


def _mamba2(text: ModelFields, *, inner: int) -> LayerState:
    """Return the same by the fields that begin with ``mamba_``."""
    heads = text.needed("mamba_n_heads")
    if inner % heads:
        text.fail(
            "mamba_n_heads", got=f"{heads}", expected=f"a divisor of the {inner} numbers that they share"
        )
    return mamba2_state(
        text.needed("hidden_size"),
        inner=inner,
        num_heads=heads,
        num_groups=text.needed("mamba_n_groups"),
        size=text.needed("mamba_d_state"),
        kernel=text.needed("mamba_d_conv"),
        dtype_bytes=STATE_BYTES,
    )


def granite_hybrid(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Granite 4: Mamba-2 or attention, then a shared MLP, beside experts where there are any (granitemoehybrid.py)."""
    kinds = listed_kinds(text, "layer_types", (*MAMBA, *ATTENTION), num_layers=num_layers)
    inner = (text.integer("mamba_expand") or 2) * text.needed("hidden_size")
    kinds = tuple(ATTENTION[0] if kind in ATTENTION else MAMBA[0] for kind in kinds)
    number = Counter(kinds)
    mixers = {
        "mamba": Mixer(kind="state", num_layers=number["mamba"], state=_mamba2(text, inner=inner)),
        "attention": Mixer(kind="full", num_layers=number["attention"], attention=attention),
    }
    if text.integer("num_local_experts"):
        return Layers(mixers=in_order(kinds, mixers))
    width = text.needed("shared_intermediate_size")
    return Layers(mixers=in_order(kinds, mixers), num_plain_mlps=num_layers, plain_width=num_layers * width)


def falcon_h1(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Falcon-H1: attention and Mamba-2 beside each other in every layer (falcon_h1.py)."""
    inner = text.integer("mamba_d_ssm") or (text.integer("mamba_expand") or 2) * text.needed("hidden_size")
    return Layers(
        mixers=(
            Mixer(kind="full", num_layers=num_layers, attention=attention),
            Mixer(kind="state", num_layers=num_layers, state=_mamba2(text, inner=inner)),
        )
    )


def lfm2(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """LFM2: short convolutions, whose last inputs are kept, and attention (lfm2.py, lfm2_moe.py, short_conv.py)."""
    kinds = listed_kinds(text, "layer_types", (*CONVOLUTION, *ATTENTION), num_layers=num_layers)
    kinds = tuple(ATTENTION[0] if kind in ATTENTION else CONVOLUTION[0] for kind in kinds)
    hidden, kernel = text.needed("hidden_size"), text.needed("conv_L_cache")
    width = text.integer("conv_dim") or hidden
    state = LayerState(
        name="short convolutions",
        num_heads=width,
        head_dim=1,
        key_heads=1,
        key_dim=0,
        conv_kernel=kernel,
        dtype_bytes=STATE_BYTES,
        parameters=4 * hidden * width + kernel * width,
        num_products=0,
    )
    number = Counter(kinds)
    mixers = {
        "conv": Mixer(kind="state", num_layers=number["conv"], state=state),
        "attention": Mixer(kind="full", num_layers=number["attention"], attention=attention),
    }
    layers = in_order(kinds, mixers)
    if text.integer("num_experts"):
        return Layers(mixers=layers)
    return Layers(mixers=layers, num_plain_mlps=num_layers, plain_width=num_layers * _width_of_mlp(text))


def _width_of_mlp(text: ModelFields) -> int:
    """Return how wide an MLP of LFM2 is: two thirds of what the file says, rounded up, where it is adjusted."""
    width = text.needed("intermediate_size", "block_ff_dim")
    if text.flag("block_auto_adjust_ff_dim") is False:
        return width
    width = int(2 * width / 3)
    factor = text.values.get("block_ffn_dim_multiplier")
    if isinstance(factor, int | float) and 0 < factor <= MOST_FACTOR:
        width = int(factor * width)
    elif factor is not None:
        text.fail("block_ffn_dim_multiplier", got=shown(factor), expected=f"a number up to {MOST_FACTOR}")
    multiple = text.integer("block_multiple_of") or 1
    return -(-width // multiple) * multiple
