"""What a model is made of, in numbers: how many parameters there are, and what a token, a pair and a KV entry cost."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Literal

from replay.model.vision.tower import VisionTower

MatmulKind = Literal["16bit", "fp8", "int8", "fp4"]
"""What a matrix product is computed in: weights of 4 bits with 16-bit activations are computed in 16 bits."""

PACKED_TOKEN = 656
"""Bytes of a token of latent attention in fp8: values, scales, the rotary part in 16 bits (mla_attention.py:
fp8_ds_mla)."""
GATED_MATRICES = 3
"""Matrices of a gated MLP (gate, up, down); a plain one has two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How weights are kept and multiplied. ``bytes_per_weight`` includes the scales of its groups.

    ``others``: (name, how it is multiplied, share of the weights) of those that a checkpoint keeps otherwise;
    ``bytes_per_weight`` is the mean over all. ``block``: rows, and columns, of the weights that share a scale, where
    they are cut in squares (DeepSeek-V3's FP8); 0: they are not.
    """

    name: str
    bytes_per_weight: float
    matmul: MatmulKind
    others: tuple[tuple[str, MatmulKind, float], ...] = ()
    block: int = 0

    def __str__(self) -> str:
        """Return the name, with the shares that are kept otherwise."""
        told = ", ".join(f"{share:.0%} {name}" for name, _, share in self.others)
        return f"{self.name} ({told})" if told else self.name


Products = tuple[tuple[str, tuple[tuple[Precision, float], ...]], ...]
"""Operators of a layer, each with its precisions and their shares of its weights, the most first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One attention layer. With ``kv_latent_rank`` it is multi-head latent attention (DeepSeek-V2, arXiv:2405.04434).

    ``head_dim``: of queries and keys; ``v_head_dim``: of values; MLA's ``rope_head_dim`` is a part of ``head_dim``.
    ``has_gate``: its output is gated by a projection as wide (Qwen3.5, Kimi K3). ``values_are_keys``: one projection
    makes both, which are kept twice all the same (Gemma 4). ``keeps_latent``: else the latent vector is brought up
    before it is kept, values as wide as keys (vllm 0.32.0 minicpm3.py). ``reads_other_layers``: it reads the keys and
    values that a layer before it has kept, and keeps none (Gemma 3n and 4).
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    q_latent_rank: int = 0
    kv_latent_rank: int = 0
    rope_head_dim: int = 0
    has_gate: bool = False
    values_are_keys: bool = False
    keeps_latent: bool = True
    reads_other_layers: bool = False

    @property
    def is_mla(self) -> bool:
        """Whether keys and values are kept as one latent vector that all heads share."""
        return self.kv_latent_rank > 0 and self.keeps_latent

    @property
    def kept_value_dim(self) -> int:
        """How wide a head's value is in the cache."""
        return self.v_head_dim if self.keeps_latent else self.head_dim

    @property
    def is_grouped(self) -> bool:
        """Whether several heads of queries share one of keys and values."""
        return self.num_kv_heads < self.num_heads and not self.is_mla

    def parameters(self, hidden_size: int) -> int:
        """Return how many weights the four projections have (MLA: with its down and up projections)."""
        output = self.num_heads * self.v_head_dim * hidden_size * (2 if self.has_gate else 1)
        if not self.kv_latent_rank:
            values = 0 if self.values_are_keys else self.v_head_dim
            keys_values = 0 if self.reads_other_layers else self.num_kv_heads * (self.head_dim + values)
            return hidden_size * (self.num_heads * self.head_dim + keys_values) + output
        query = self.num_heads * self.head_dim
        down = hidden_size * (self.kv_latent_rank + self.rope_head_dim)
        nope = self.head_dim - self.rope_head_dim
        up = self.kv_latent_rank * self.num_heads * (nope + self.v_head_dim)
        if self.q_latent_rank:
            return hidden_size * self.q_latent_rank + self.q_latent_rank * query + down + up + output
        return hidden_size * query + down + up + output

    def replicated_parameters(self, hidden_size: int) -> int:
        """Return how many of them every GPU of a tensor-parallel group holds whole: MLA's down projections."""
        return (
            hidden_size * (self.q_latent_rank + self.kv_latent_rank + self.rope_head_dim)
            if self.kv_latent_rank
            else 0
        )

    def entries_per_token(self, tp: int) -> int:
        """Return how many numbers a token leaves in one GPU's KV cache; MLA's latent vector is not divided."""
        if self.is_mla:
            return self.kv_latent_rank + self.rope_head_dim
        return max(1, self.num_kv_heads // tp) * (self.head_dim + self.kept_value_dim)

    def prefill_flops_per_pair(self, tp: int) -> float:
        """Return FLOPs per (query, key) pair: a product with the key, one with the value."""
        return 2.0 * self.num_heads / tp * (self.head_dim + self.kept_value_dim)

    def decode_flops_per_entry(self, tp: int) -> float:
        """Return FLOPs per KV entry that a decode reads; MLA's heads all work on the latent vector itself."""
        if not self.is_mla:
            return self.prefill_flops_per_pair(tp)
        return 2.0 * self.num_heads / tp * (2 * self.kv_latent_rank + self.rope_head_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedKeyAttention(Attention):
    """One vector of a token is key and value of all heads, and the output is projected in groups (DeepSeek-V4).

    ``kv_latent_rank`` and ``rope_head_dim``: the parts of that vector, ``head_dim`` together. The heads' outputs are
    cut into ``o_groups``, each brought to ``o_latent_rank`` numbers before one product makes the hidden state (vllm
    0.32.0 models/deepseek_v4/attention.py).
    """

    o_groups: int
    o_latent_rank: int

    def parameters(self, hidden_size: int) -> int:
        """Return the weights of the projections: queries by a low rank, the vector, the output in groups."""
        query = (hidden_size + self.num_heads * self.head_dim) * self.q_latent_rank
        output = self.num_heads * self.v_head_dim * self.o_latent_rank
        return query + hidden_size * self.head_dim + output + self.o_groups * self.o_latent_rank * hidden_size

    def decode_flops_per_entry(self, tp: int) -> float:
        """Return FLOPs per entry that a token reads: a product with it as key, one as value."""
        return self.prefill_flops_per_pair(tp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """What keeps one entry for every ``ratio`` tokens, and the newest ``window`` one by one (DeepSeek-V4).

    ``parameters``: weights of one layer that make the entries; every GPU of a group has them whole. Tokens that no
    entry stands for yet are kept as ``state_width`` float32 numbers each, ``state_window`` of them.
    """

    ratio: int
    window: int
    parameters: int
    state_width: int
    state_window: int


StateKernel = Literal["mamba2", "gated delta", "kda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerState:
    """What a layer keeps of a request in place of keys and values, whatever the length: a matrix per head.

    ``name``: what the layer is called in messages. ``head_dim`` x ``key_dim``: the matrix of each of ``num_heads``;
    ``key_heads``: of keys and queries (Mamba-2: groups of B and C). The last ``conv_kernel`` - 1 inputs of the
    convolution before it are kept, too. ``dtype_bytes``: of the matrices. ``parameters``: weights of one layer.
    ``num_products``: with the matrix per token: to write and to read, the delta rule also before it writes.
    ``kernel``: of those that may save a state inside a prompt's chunk (``kernels/state_kernels.py``); None: of others.
    """

    name: str
    num_heads: int
    head_dim: int
    key_heads: int
    key_dim: int
    conv_kernel: int
    dtype_bytes: int
    parameters: int
    num_products: int = 2
    kernel: StateKernel | None = None

    def bytes_per_request(self, tp: int, *, dtype_bytes: int, num_lookahead: int = 0) -> int:
        """Return what one layer keeps on one GPU (vllm 0.32.0 mamba_utils.py:MambaStateShapeCalculator).

        Groups that ``tp`` does not divide are kept more than once; the convolution has an input more for each draft.
        """
        groups = self.key_heads if self.key_heads % tp == 0 else tp
        width = self.num_heads * self.head_dim + 2 * groups * self.key_dim
        convolution = width // tp * (self.conv_kernel - 1 + num_lookahead) * dtype_bytes
        return convolution + self.num_heads // tp * self.head_dim * self.key_dim * self.dtype_bytes

    def flops_per_token(self, tp: int) -> float:
        """Return FLOPs of the recurrence per token and layer: products with each head's matrix.

        Mamba-2 (arXiv:2405.21060) writes B x and reads C h; the gated delta rule (arXiv:2412.06464) reads S k, writes
        the difference and reads S q. Chunked kernels do more products in larger pieces, as many per token.
        """
        return 2.0 * self.num_products * self.num_heads / tp * self.head_dim * self.key_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """What picks the ``top_k`` keys that a query sees (DeepSeek-V3.2): a scan over all keys of one small head.

    ``parameters``: weights of one layer; ``entry_bytes``: what a token leaves in its cache. ``block_size``: keys are
    picked in blocks of so many, and scanned in 16 bits (MiniMax-M3); 0: one by one, in fp8.
    """

    num_heads: int
    head_dim: int
    top_k: int
    entry_bytes: int
    parameters: int
    block_size: int = 0


MixerKind = Literal["full", "sliding", "chunked", "state"]
QkNorm = Literal["", "each head", "all heads"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """Layers that mix tokens alike: attention over everything, a window or a chunk of it, or a state."""

    kind: MixerKind
    num_layers: int
    attention: Attention | None = None
    window: int = 0
    state: LayerState | None = None
    indexer: Indexer | None = None
    compression: Compression | None = None

    @property
    def tokens_per_entry(self) -> int:
        """How many tokens one entry of its cache stands for."""
        return self.compression.ratio if self.compression else 1

    @property
    def most_seen(self) -> int:
        """How many tokens of the context a query sees at most, in a window or by an indexer; 0: all of it."""
        if self.is_windowed:
            return self.window
        return self.indexer.top_k * self.tokens_per_entry if self.indexer else 0

    @property
    def keeps(self) -> bool:
        """Whether its layers keep keys and values of their own."""
        return self.attention is not None and not self.attention.reads_other_layers

    @property
    def is_windowed(self) -> bool:
        """Whether it sees a part of the context, the newest."""
        return self.kind in ("sliding", "chunked")

    def parameters(self, hidden_size: int) -> int:
        """Return the weights of all its layers."""
        one = self.attention.parameters(hidden_size) if self.attention else 0
        one += self.state.parameters if self.state else 0
        one += self.compression.parameters if self.compression else 0
        return self.num_layers * (one + (self.indexer.parameters if self.indexer else 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpLayers:
    """Layers with which a model drafts for itself: what they keep, and how many modules draft one after another.

    ``has_experts``: as many as the model's layers with experts have, else a plain MLP. ``splits_projection``: the
    product of embedding and hidden state is shared out over the GPUs; else each has it whole. ``is_spared``: a
    quantized checkpoint has them in 16 bits. ``has_own_heads``: each has an LM head of its own.
    """

    mixer: Mixer
    num_modules: int
    has_experts: bool = False
    splits_projection: bool = False
    is_spared: bool = False
    has_own_heads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The routed and shared experts of a mixture-of-experts layer; ``shared_size`` 0 where none is shared.

    ``hidden_size``: what goes in and out, where it is less than the model's (a latent mixture).
    """

    num_experts: int
    num_per_token: int
    intermediate_size: int
    shared_size: int = 0
    hidden_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder as its Hugging Face config.json describes it.

    ``mixers``: its layers by what they keep, in the order of the first of each. ``num_moe_layers`` of the layers have
    experts in place of the MLP of ``intermediate_size``, or beside it: ``num_plain_mlps`` then says of how many layers,
    ``plain_width`` how wide all of them are together where they differ. ``attention``: of the layers that see
    everything. ``not_timed``: kinds of layers whose time no formula here has. ``dtype_bytes``: of activations,
    embeddings and, unless ``kv_dtype_bytes`` says otherwise, the KV cache. Precisions: of what the quantization covers;
    ``products``: of each operator by itself, where a checkpoint says it.
    ``mtp``: layers that draft, which nothing else here counts. ``residual_streams``: how many hidden states a layer
    mixes (hyper-connections, arXiv:2409.19606). ``max_model_len``: the longest sequence that vLLM takes without a flag.
    ``lookup_parameters``: of embeddings beside that of ``vocab_size``.
    ``vision``: its vision tower, not in ``num_parameters``; None: none, or none that is known. ``audio_parameters``: of
    its audio tower, likewise. ``is_mm_prefix_lm``:
    tokens of an image see each other in both directions. ``left_out``: what of the file is not in these numbers.
    ``kv_cache_dtype``: as vLLM's flag. ``packed_token_bytes``: what a token of sparse latent attention takes in a layer
    where it is packed with its scales, 0: where it is not (``kernels/latent_kernels.py``).
    ``qk_norm``: over what queries and keys are normed, none where empty. For a norm over all heads the GPUs that share
    them add up squares first: one more all-reduce of a layer, of two numbers a token (vllm 0.19.0 linear_attn.py,
    MiniMaxText01RMSNormTP.forward_qk).
    """

    name: str
    model_type: str
    hidden_size: int
    num_layers: int
    vocab_size: int
    max_model_len: int
    intermediate_size: int
    attention: Attention
    attention_precision: Precision
    mlp_precision: Precision
    expert_precision: Precision
    dtype: str
    dtype_bytes: int
    kv_dtype_bytes: float
    is_gated: bool = True
    is_tied: bool = False
    num_moe_layers: int = 0
    experts: Experts | None = None
    mixers: tuple[Mixer, ...]
    mtp: MtpLayers | None = None
    num_plain_mlps: int | None = None
    plain_width: int | None = None
    other_parameters: int = 0
    lookup_parameters: int = 0
    residual_streams: int = 1
    not_timed: tuple[str, ...] = ()
    vision: VisionTower | None = None
    audio_parameters: int = 0
    is_mm_prefix_lm: bool = False
    left_out: tuple[str, ...] = ()
    kv_cache_dtype: str = "auto"
    packed_token_bytes: int = 0
    products: Products = ()
    qk_norm: QkNorm = ""

    def precisions_of(self, operator: str, part: Precision) -> tuple[tuple[Precision, float], ...]:
        """Return an operator's precisions and their shares of its weights; ``part``: of the part that it is in."""
        return next((each for name, each in self.products if name == operator), ((part, 1.0),))

    @property
    def has_sparse_latent_attention(self) -> bool:
        """Whether an index picks from latent vectors (DeepSeek-V3.2, GLM-5)."""
        return not self.is_compressed and any(
            each.indexer is not None and each.attention is not None and each.attention.is_mla
            for each in self.mixers
        )

    @property
    def is_compressed(self) -> bool:
        """Whether layers keep one entry for several tokens."""
        return any(each.compression for each in self.mixers)

    @property
    def num_matrices(self) -> int:
        """How many matrices an MLP has."""
        return GATED_MATRICES if self.is_gated else 2

    @property
    def num_dense_layers(self) -> int:
        """How many layers have a plain MLP."""
        return self.num_layers - self.num_moe_layers if self.num_plain_mlps is None else self.num_plain_mlps

    @property
    def num_windowed_layers(self) -> int:
        """How many layers see a window or a chunk of it."""
        return sum(each.num_layers for each in self.mixers if each.is_windowed)

    @property
    def window(self) -> int:
        """How many tokens the layers with a window see, the widest where they differ; 0: there are none."""
        return max((each.window for each in self.mixers if each.is_windowed), default=0)

    def attention_parameters(self) -> int:
        """Return the weights of all layers that mix tokens, and of what else is kept in their precision."""
        return sum(each.parameters(self.hidden_size) for each in self.mixers) + self.other_parameters

    def replicated_parameters(self) -> int:
        """Return how many of them every GPU of a tensor-parallel group holds whole."""
        return sum(
            each.num_layers
            * (
                each.attention.replicated_parameters(self.hidden_size)
                + (each.compression.parameters if each.compression else 0)
                + (each.indexer.parameters if each.indexer else 0)
            )
            for each in self.mixers
            if each.attention
        )

    def mlp_parameters(self) -> int:
        """Return the weights of all plain MLPs and shared experts."""
        shared = self.experts.shared_size if self.experts else 0
        plain = (
            self.num_dense_layers * self.intermediate_size if self.plain_width is None else self.plain_width
        )
        return (plain + self.num_moe_layers * shared) * self.num_matrices * self.hidden_size

    def expert_parameters(self) -> int:
        """Return the weights of all routed experts."""
        if self.experts is None:
            return 0
        one = (
            self.num_matrices
            * (self.experts.hidden_size or self.hidden_size)
            * self.experts.intermediate_size
        )
        return self.num_moe_layers * self.experts.num_experts * one

    def active_expert_parameters(self) -> int:
        """Return the weights of the routed experts that one token passes."""
        if self.experts is None:
            return 0
        return self.expert_parameters() * self.experts.num_per_token // self.experts.num_experts

    def router_parameters(self) -> int:
        """Return the weights of the routers, one per layer with experts."""
        return self.num_moe_layers * self.hidden_size * (self.experts.num_experts if self.experts else 0)

    def embedding_parameters(self) -> int:
        """Return the weights of the embeddings, and of the LM head where it has its own."""
        return self.vocab_size * self.hidden_size * (1 if self.is_tied else 2) + self.lookup_parameters

    def head_parameters(self) -> int:
        """Return the weights that the LM head multiplies with, tied or not."""
        return self.vocab_size * self.hidden_size

    def num_parameters(self) -> int:
        """Return how many weights there are (norms and biases, a thousandth, left out)."""
        return (
            self.attention_parameters()
            + self.mlp_parameters()
            + self.expert_parameters()
            + self.router_parameters()
            + self.embedding_parameters()
        )

    def num_active_parameters(self) -> int:
        """Return how many weights a token is multiplied with, the LM head included, the embedding not."""
        return (
            self.attention_parameters()
            + self.mlp_parameters()
            + self.active_expert_parameters()
            + self.router_parameters()
            + self.head_parameters()
        )

    def kv_bytes_per_token(self, tp: int, *, windowed: bool = False) -> float:
        """Return what a token leaves in one GPU's KV cache, over its full layers (or the windowed ones)."""
        return sum(
            each.num_layers
            * (self.token_bytes(each, tp) + (each.indexer.entry_bytes if each.indexer else 0))
            / each.tokens_per_entry
            for each in self.mixers
            if each.keeps and each.is_windowed == windowed
        )

    def token_bytes(self, mixer: Mixer, tp: int) -> float:
        """Return what a token leaves of keys and values in one layer's cache on one GPU."""
        if mixer.attention is None:
            return 0.0
        if self.packed_token_bytes and mixer.indexer is not None and mixer.attention.is_mla:
            return float(self.packed_token_bytes)
        return mixer.attention.entries_per_token(tp) * self.kv_dtype_bytes
