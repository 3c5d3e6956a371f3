"""What a model and a GPU are, in numbers: shapes from config.json, GPUs from a table, KV blocks, priors of a fit.

- ``read_model_config(path)`` is a Hugging Face config.json, or the name of a model that ships, as a ``ModelShape``.
- ``find_gpu(name)`` is a row of the table of GPUs.
- ``kv_cache_size(shape, gpu, tp=…)`` is where the GPU's memory goes, and how many KV blocks vLLM would find.
- ``expected_coefficients(shape, gpu, tp=…)`` is what the coefficients of ``sim.Extended`` should be, before any fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from traces.strict.lazy_door import homes_of, opened

if TYPE_CHECKING:
    from replay.model.expectations import ExpectedCoefficient as ExpectedCoefficient
    from replay.model.expectations import expected_coefficients as expected_coefficients
    from replay.model.gpu_memory import KvCacheSize as KvCacheSize
    from replay.model.gpu_memory import Serving as Serving
    from replay.model.gpu_memory import kv_cache_size as kv_cache_size
    from replay.model.gpus import Gpu as Gpu
    from replay.model.gpus import find_gpu as find_gpu
    from replay.model.hf_config import read_model_config as read_model_config
    from replay.model.layout import Layout as Layout
    from replay.model.model_peak import kinds_not_timed as kinds_not_timed
    from replay.model.model_peak import peak_times as peak_times
    from replay.model.shape import LayerState as LayerState
    from replay.model.shape import ModelShape as ModelShape
    from replay.model.shape import Precision as Precision
    from replay.model.shape import SharedKeyAttention as SharedKeyAttention
    from replay.model.shipped_models import shipped_config as shipped_config

_HOMES = homes_of(
    {
        "replay.model.expectations": "expected_coefficients ExpectedCoefficient",
        "replay.model.gpu_memory": "kv_cache_size KvCacheSize Serving",
        "replay.model.gpus": "find_gpu Gpu",
        "replay.model.hf_config": "read_model_config",
        "replay.model.layout": "Layout",
        "replay.model.model_peak": "kinds_not_timed peak_times",
        "replay.model.shape": "LayerState ModelShape Precision SharedKeyAttention",
        "replay.model.shipped_models": "shipped_config",
    }
)
"""Where each name of the door is at home."""
__all__ = list(_HOMES)
__getattr__, __dir__ = opened(__name__, _HOMES)
