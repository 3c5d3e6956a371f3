"""What drafts for a model under speculative decoding, in numbers: layers, what joins them to the model, weights."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace

from replay.model.layers.mtp import projection_parameters
from replay.model.shape import ModelShape, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """Layers that run once for each draft.

    ``shape``: its layers as a model of their own, in ``num_modules`` that take turns. ``joining_parameters``: weights,
    in the model's own type, of the products that join embeddings and hidden states into its input. Every GPU holds all
    of them, unless ``splits_joining``. ``has_head``, ``has_embedding``: it has its own, a head for each module, and
    does not use the model's. ``num_embedded``: tokens in its embedding; 0 means as many as its head gives.
    """

    shape: ModelShape
    num_modules: int = 1
    joining_parameters: int = 0
    splits_joining: bool = False
    has_head: bool = False
    has_embedding: bool = False
    num_embedded: int = 0

    def one_draft(self, tp: int) -> ModelShape:
        """Return what runs for one draft, a module with its products of both inputs, as one of ``tp`` GPUs has it."""
        shape, number = self.shape, self.num_modules
        copies = 1 if self.splits_joining else tp
        return replace(
            shape,
            num_layers=shape.num_layers // number,
            num_moe_layers=shape.num_moe_layers // number,
            num_plain_mlps=None if shape.num_plain_mlps is None else shape.num_plain_mlps // number,
            mixers=tuple(replace(each, num_layers=each.num_layers // number) for each in shape.mixers),
            other_parameters=shape.other_parameters + self.joining_parameters * copies // number,
        )


def mtp_drafter(shape: ModelShape) -> Drafter | None:
    """Return the MTP layers of a model as what drafts; None where it has none that are known.

    All of them are loaded, and one module runs for a draft (vllm 0.32.0 model_executor/models/*_mtp.py). Embedding and
    head are the model's (v1/spec_decode/llm_base_proposer.py: _maybe_share_embeddings, _maybe_share_lm_head).
    """
    mtp = shape.mtp
    if mtp is None:
        return None
    number = mtp.mixer.num_layers
    layers = replace(
        shape,
        name=f"the MTP layers of {shape.name}",
        num_layers=number,
        mixers=(mtp.mixer,),
        num_moe_layers=number if mtp.has_experts else 0,
        experts=shape.experts if mtp.has_experts else None,
        num_plain_mlps=None if shape.num_plain_mlps is None else number * (not mtp.has_experts),
        plain_width=None,
        other_parameters=0,
        lookup_parameters=0,
        mtp=None,
        vision=None,
        audio_parameters=0,
        not_timed=(),
    )
    if mtp.is_spared:
        layers = in_one_precision(layers)
    return Drafter(
        shape=layers,
        num_modules=mtp.num_modules if number % mtp.num_modules == 0 else 1,
        joining_parameters=number * projection_parameters(shape.hidden_size),
        splits_joining=mtp.splits_projection,
        has_head=mtp.has_own_heads,
    )


def in_one_precision(shape: ModelShape) -> ModelShape:
    """Return a model's layers in the type of its activations, whatever the checkpoint keeps the others in."""
    plain = Precision(name=shape.dtype, bytes_per_weight=shape.dtype_bytes, matmul="16bit")
    return replace(shape, attention_precision=plain, mlp_precision=plain, expert_precision=plain)
