"""What a model and a GPU are, in numbers: shapes from config.json, GPUs from a table, KV blocks, priors of a fit.

- ``read_model_config(path)`` is a Hugging Face config.json, or the name of a model that ships, as a ``ModelShape``.
- ``find_gpu(name)`` is a row of the table of GPUs.
- ``kv_cache_size(shape, gpu, tp=…)`` is where the GPU's memory goes, and how many KV blocks vLLM would find.
- ``expected_coefficients(shape, gpu, tp=…)`` is what the coefficients of ``sim.Extended`` should be, before any fit.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.model.expectations import ExpectedCoefficient, expected_coefficients
    from replay.model.gpu_memory import KvCacheSize, Serving, kv_cache_size
    from replay.model.gpus import Gpu, find_gpu
    from replay.model.hf_config import read_model_config
    from replay.model.layout import Layout
    from replay.model.model_peak import kinds_not_timed, peak_times
    from replay.model.shape import LayerState, ModelShape, Precision, SharedKeyAttention
    from replay.model.shipped_models import shipped_config

__all__ = [
    "ExpectedCoefficient",
    "Gpu",
    "KvCacheSize",
    "LayerState",
    "Layout",
    "ModelShape",
    "Precision",
    "Serving",
    "SharedKeyAttention",
    "expected_coefficients",
    "find_gpu",
    "kinds_not_timed",
    "kv_cache_size",
    "peak_times",
    "read_model_config",
    "shipped_config",
]

_HOMES = {
    "ExpectedCoefficient": "replay.model.expectations",
    "Gpu": "replay.model.gpus",
    "KvCacheSize": "replay.model.gpu_memory",
    "LayerState": "replay.model.shape",
    "Layout": "replay.model.layout",
    "ModelShape": "replay.model.shape",
    "Precision": "replay.model.shape",
    "Serving": "replay.model.gpu_memory",
    "SharedKeyAttention": "replay.model.shape",
    "expected_coefficients": "replay.model.expectations",
    "find_gpu": "replay.model.gpus",
    "kinds_not_timed": "replay.model.model_peak",
    "kv_cache_size": "replay.model.gpu_memory",
    "peak_times": "replay.model.model_peak",
    "read_model_config": "replay.model.hf_config",
    "shipped_config": "replay.model.shipped_models",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'replay.model' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
