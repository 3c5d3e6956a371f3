"""What a model and a GPU are, in numbers: shapes from config.json, GPUs from a table, KV blocks, priors of a fit.

- ``read_model_config(path)`` is a Hugging Face config.json, or the name of a model that ships, as a ``ModelShape``.
- ``find_gpu(name)`` is a row of the table of GPUs.
- ``kv_capacity(shape, gpu, tp=…)`` is where the GPU's memory goes, and how many KV blocks vLLM would find.
- ``extended_priors(shape, gpu, tp=…)`` is what the coefficients of ``sim.Extended`` should be, before any fit.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.model.capacity import KvCapacity, Serving, kv_capacity
    from replay.model.gpus import Gpu, find_gpu
    from replay.model.hf_config import read_model_config
    from replay.model.priors import Prior, extended_priors
    from replay.model.shape import ModelShape

_HOMES = {
    "Gpu": "replay.model.gpus",
    "KvCapacity": "replay.model.capacity",
    "ModelShape": "replay.model.shape",
    "Prior": "replay.model.priors",
    "Serving": "replay.model.capacity",
    "extended_priors": "replay.model.priors",
    "find_gpu": "replay.model.gpus",
    "kv_capacity": "replay.model.capacity",
    "read_model_config": "replay.model.hf_config",
}

__all__ = [
    "Gpu",
    "KvCapacity",
    "ModelShape",
    "Prior",
    "Serving",
    "extended_priors",
    "find_gpu",
    "kv_capacity",
    "read_model_config",
]


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'replay.model' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
