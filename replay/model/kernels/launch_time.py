"""How long a CPU takes to start the kernels of a step one by one: what no CUDA graph was captured for lasts as long."""

from __future__ import annotations

from replay.model.shape import ModelShape

LAUNCH_US_PER_LAYER = 700.0
"""µs per layer, of Python and the launches of its kernels together, whatever the GPU: the CPU does it.

Measured: an 8B model's steps beyond its graphs on an H100 machine, 20.3 to 23.3 ms for 32 layers, so 630 to 730
(docs/validation.md); Qwen3-30B-A3B on L20, TPOT 34.4 ms of 48 layers without graphs, 717, for 11.8 with them
(github.com/vllm-project/vllm/issues/45709); a 7B model of 28 layers on A800, 22 ms with --enforce-eager, 790, for 13
(github.com/vllm-project/vllm-omni/issues/7960).
"""
MEASURED_WITH = ("H100", "L20", "A800")
"""The GPUs of the machines on which that was measured."""


def launch_us(shape: ModelShape, *, enforce_eager: bool = False) -> float:
    """Return the shortest time of a step outside CUDA graphs, µs: every layer's launches, all pipeline stages'.

    0 of a mixture of experts that has graphs: its measured servers show no such limit (docs/validation.md).
    """
    if shape.experts is not None and not enforce_eager:
        return 0.0
    return LAUNCH_US_PER_LAYER * shape.num_layers
