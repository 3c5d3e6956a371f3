"""The config.json of an EAGLE head, or of a smaller model that drafts.

vllm 0.32.0 model_executor/models/llama_eagle.py and llama_eagle3.py, v1/spec_decode/draft_model.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from replay.model.config_json import read_model_fields
from replay.model.hf_config import find_config, read_model_config, shape_from
from replay.model.layers.drafter import Drafter
from replay.model.layers.mtp import projection_parameters
from replay.model.shape import ModelShape
from replay.model.shipped_models import model_name
from traces import ConfigError

HeadMethod = Literal["eagle", "eagle3", "draft_model"]
"""vLLM's methods whose drafts come from a checkpoint of its own with layers that keep KV."""
LAYERS = "transformer_layer_config"
"""Where the files of the speculators library say what the layers are."""
EAGLE3_STATES = 3
"""Hidden states of the model, of a low, a middle and a high layer, that EAGLE-3 starts from (arXiv:2503.01840)."""


def read_drafter(path: str | Path, *, method: HeadMethod, of: ModelShape) -> Drafter:
    """Return what a config.json, or a model that ships, is as the drafter of a model.

    It has the model's type and keeps its KV in the model's, whatever its own file says (vllm 0.32.0
    config/speculative.py). Raises ConfigError, also on a head that cannot be one of this model.
    """
    if method == "draft_model":
        smaller = replace(read_model_config(path, dtype=of.dtype), kv_dtype_bytes=of.kv_dtype_bytes)
        return Drafter(shape=smaller, has_head=True, has_embedding=True)
    file = find_config(path)
    fields = read_model_fields(file)
    said = fields.mapping(LAYERS)
    shape = replace(
        shape_from(fields if said is None else said, name=model_name(file), dtype=of.dtype),
        kv_dtype_bytes=of.kv_dtype_bytes,
    )
    hidden = shape.hidden_size
    read = (method == "eagle3" and fields.integer("target_hidden_size")) or hidden
    _check_head(shape, of=of, method=method, read=read)
    if method == "eagle":
        shared = replace(shape, vocab_size=of.vocab_size)
        return Drafter(shape=shared, joining_parameters=projection_parameters(hidden))
    attention = shape.attention
    wider = hidden * (attention.num_heads + 2 * attention.num_kv_heads) * attention.head_dim
    layers = replace(
        shape,
        vocab_size=fields.integer("draft_vocab_size") or shape.vocab_size,
        other_parameters=shape.other_parameters + wider,
    )
    return Drafter(
        shape=layers,
        joining_parameters=EAGLE3_STATES * read * hidden,
        has_head=True,
        has_embedding=hidden != of.hidden_size,
        num_embedded=shape.vocab_size,
    )


def _check_head(shape: ModelShape, *, of: ModelShape, method: HeadMethod, read: int) -> None:
    """Raise ConfigError where a head is no head of a model; ``read``: how wide the hidden states are that it reads.

    Without a width of its own, as EAGLE-3 may have, it reads states as wide as its own (llama_eagle.py and
    llama_eagle3.py: fc).
    """
    if read != of.hidden_size:
        raise ConfigError(
            f"got a head for hidden states of {read:,} numbers ({shape.name}), expected {of.hidden_size:,}, as "
            f"{of.name} has them"
        )
    if shape.num_layers >= of.num_layers:
        raise ConfigError(
            f"got {shape.name} with {shape.num_layers} layers, expected a head of {method}: fewer layers than the "
            f"{of.num_layers} of {of.name}; a model that drafts by itself is draft_model"
        )
