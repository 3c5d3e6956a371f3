"""What a model is made of, in numbers: how many parameters there are, and what a token, a pair and a KV entry cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MatmulKind = Literal["16bit", "fp8", "int8", "fp4"]
"""What a matrix product is computed in: weights of 4 bits with 16-bit activations are computed in 16 bits."""

GATED_MATRICES = 3
"""Matrices of a gated MLP (gate, up, down); a plain one has two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How weights are kept and multiplied. ``bytes_per_weight`` includes the scales of its groups."""

    name: str
    bytes_per_weight: float
    matmul: MatmulKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One attention layer. With ``kv_lora_rank`` it is multi-head latent attention (DeepSeek-V2, arXiv:2405.04434).

    ``head_dim``: of queries and keys; ``v_head_dim``: of values; MLA's ``rope_head_dim`` is a part of ``head_dim``.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    rope_head_dim: int = 0

    @property
    def is_mla(self) -> bool:
        """Whether keys and values are kept as one latent vector that all heads share."""
        return self.kv_lora_rank > 0

    def parameters(self, hidden_size: int) -> int:
        """Return how many weights the four projections have (MLA: with its down and up projections)."""
        output = self.num_heads * self.v_head_dim * hidden_size
        if not self.is_mla:
            keys_values = self.num_kv_heads * (self.head_dim + self.v_head_dim)
            return hidden_size * (self.num_heads * self.head_dim + keys_values) + output
        query = self.num_heads * self.head_dim
        down = hidden_size * (self.kv_lora_rank + self.rope_head_dim)
        nope = self.head_dim - self.rope_head_dim
        up = self.kv_lora_rank * self.num_heads * (nope + self.v_head_dim)
        if self.q_lora_rank:
            return hidden_size * self.q_lora_rank + self.q_lora_rank * query + down + up + output
        return hidden_size * query + down + up + output

    def replicated_parameters(self, hidden_size: int) -> int:
        """Return how many of them every GPU of a tensor-parallel group holds whole: MLA's down projections."""
        return hidden_size * (self.q_lora_rank + self.kv_lora_rank + self.rope_head_dim) if self.is_mla else 0

    def entries_per_token(self, tp: int) -> int:
        """Return how many numbers a token leaves in one GPU's KV cache; MLA's latent vector is not divided."""
        if self.is_mla:
            return self.kv_lora_rank + self.rope_head_dim
        return max(1, self.num_kv_heads // tp) * (self.head_dim + self.v_head_dim)

    def prefill_flops_per_pair(self, tp: int) -> float:
        """Return FLOPs per (query, key) pair: a product with the key, one with the value."""
        return 2.0 * self.num_heads / tp * (self.head_dim + self.v_head_dim)

    def decode_flops_per_entry(self, tp: int) -> float:
        """Return FLOPs per KV entry that a decode reads; MLA's heads all work on the latent vector itself."""
        if not self.is_mla:
            return self.prefill_flops_per_pair(tp)
        return 2.0 * self.num_heads / tp * (2 * self.kv_lora_rank + self.rope_head_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The routed and shared experts of a mixture-of-experts layer; ``shared_size`` 0 where none is shared."""

    num_experts: int
    num_per_token: int
    intermediate_size: int
    shared_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder as its Hugging Face config.json describes it.

    ``num_windowed_layers`` of the layers see the last ``window`` tokens only. ``num_moe_layers`` of them have experts
    in place of the MLP of ``intermediate_size``. ``dtype_bytes``: of activations, embeddings and, unless
    ``kv_dtype_bytes`` says otherwise, the KV cache. Precisions: of what the quantization covers. ``max_model_len``:
    the longest sequence that vLLM takes without a flag. ``left_out``: what of the file is not in these numbers.
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
    num_windowed_layers: int = 0
    window: int = 0
    left_out: tuple[str, ...] = ()

    @property
    def num_matrices(self) -> int:
        """How many matrices an MLP has."""
        return GATED_MATRICES if self.is_gated else 2

    @property
    def num_dense_layers(self) -> int:
        """How many layers have a plain MLP."""
        return self.num_layers - self.num_moe_layers

    @property
    def num_full_layers(self) -> int:
        """How many layers attend to the whole context."""
        return self.num_layers - self.num_windowed_layers

    def attention_parameters(self) -> int:
        """Return the weights of all attention projections."""
        return self.num_layers * self.attention.parameters(self.hidden_size)

    def mlp_parameters(self) -> int:
        """Return the weights of all plain MLPs and shared experts."""
        shared = self.experts.shared_size if self.experts else 0
        width = self.num_dense_layers * self.intermediate_size + self.num_moe_layers * shared
        return width * self.num_matrices * self.hidden_size

    def expert_parameters(self) -> int:
        """Return the weights of all routed experts."""
        if self.experts is None:
            return 0
        one = self.num_matrices * self.hidden_size * self.experts.intermediate_size
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
        """Return the weights of the embedding, and of the LM head where it has its own."""
        return self.vocab_size * self.hidden_size * (1 if self.is_tied else 2)

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
        layers = self.num_windowed_layers if windowed else self.num_full_layers
        return layers * self.attention.entries_per_token(tp) * self.kv_dtype_bytes
