"""How long a CPU takes to start a step's kernels: by layers, of a dense model or without graphs."""

from __future__ import annotations

import pytest

from replay.model import read_model_config
from replay.model.kernels.launch_time import launch_us


@pytest.mark.parametrize(
    ("model", "enforce_eager", "expected"),
    [
        ("Qwen/Qwen3-8B", False, 36 * 700.0),
        ("Qwen/Qwen3-8B", True, 36 * 700.0),
        ("Qwen/Qwen3-30B-A3B", False, 0.0),
        ("Qwen/Qwen3-30B-A3B", True, 48 * 700.0),
    ],
)
def test_every_layer_s_launches_count_unless_experts_have_graphs(
    model: str, *, enforce_eager: bool, expected: float
) -> None:
    shape = read_model_config(model)
    assert launch_us(shape, enforce_eager=enforce_eager) == expected
    assert launch_us(shape) == (expected if shape.experts is None else 0.0)
