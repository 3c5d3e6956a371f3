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

HeadMethod = Literal["eagle", "eagle3", "draft_model"]
"""vLLM's methods whose drafts come from a checkpoint of its own with layers that keep KV."""
LAYERS = "transformer_layer_config"
"""Where the files of the speculators library say what the layers are."""
EAGLE3_STATES = 3
"""Hidden states of the model, of a low, a middle and a high layer, that EAGLE-3 starts from (arXiv:2503.01840)."""


def read_drafter(path: str | Path, *, method: HeadMethod, of: ModelShape) -> Drafter:
    """Return what a config.json, or a model that ships, is as the drafter of a model. Raises ConfigError."""
    if method == "draft_model":
        return Drafter(shape=read_model_config(path), has_head=True, has_embedding=True)
    file = find_config(path)
    fields = read_model_fields(file)
    said = fields.mapping(LAYERS)
    shape = shape_from(fields if said is None else said, name=model_name(file))
    hidden = shape.hidden_size
    if method == "eagle":
        shared = replace(shape, vocab_size=of.vocab_size)
        return Drafter(shape=shared, joining_parameters=projection_parameters(hidden))
    attention = shape.attention
    wider = hidden * (attention.num_heads + 2 * attention.num_kv_heads) * attention.head_dim
    states = EAGLE3_STATES * (fields.integer("target_hidden_size") or of.hidden_size)
    layers = replace(
        shape,
        vocab_size=fields.integer("draft_vocab_size") or shape.vocab_size,
        other_parameters=shape.other_parameters + wider,
    )
    return Drafter(shape=layers, joining_parameters=states * hidden, has_head=True)
