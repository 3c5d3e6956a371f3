"""How near Blackwell's products come to their peak, beside Hopper's: the constants are those of the measured tables."""

from __future__ import annotations

import numpy as np
import pytest

from replay.model.gpus import find_gpu
from replay.model.kernels.reach import ON_BLACKWELL, relative_reach
from replay.model.matmuls.measured_times import measured_products
from replay.model.shape import MatmulKind

ROWS = 8192
KINDS: dict[str, tuple[MatmulKind, str]] = {
    "16bit": ("16bit", "bfloat16"),
    "fp8": ("fp8", "fp8"),
    "fp8, in blocks": ("fp8", "fp8_block"),
    "fp4": ("fp4", "nvfp4"),
}


def reached(gpu: str, rate: MatmulKind, table: str) -> float:
    """Return the median share of a GPU's peak that its measured large products reach."""
    shares = [
        2.0 * ROWS * n * k / float(np.interp(ROWS, rows, time_us)) / find_gpu(gpu).flops_per_us(rate)
        for (n, k), (rows, time_us) in measured_products(gpu, (table,)).items()
        if min(n, k) >= 4096 and rows[-1] >= ROWS
    ]
    return float(np.median(shares))


@pytest.mark.parametrize("kind", ON_BLACKWELL)
def test_the_shares_are_those_of_the_measured_products(kind: str) -> None:
    rate, table = KINDS[kind]
    beside = KINDS["fp8"] if kind == "fp4" else (rate, table)
    hopper = np.mean([reached(gpu, *beside) for gpu in ("H100", "H200")])
    assert ON_BLACKWELL[kind] == pytest.approx(reached("B200", rate, table) / hopper, abs=0.015)


def test_only_blackwell_s_products_fall_short_and_by_their_kind() -> None:
    for gpu in ("H200", "A100-80", "L40S", "MI300X"):
        assert relative_reach(find_gpu(gpu), "fp8") == 1.0
    for gpu in ("B200", "B300", "GB200"):
        assert relative_reach(find_gpu(gpu), "fp8") == ON_BLACKWELL["fp8"]
        assert relative_reach(find_gpu(gpu), "fp8", in_blocks=True) == ON_BLACKWELL["fp8, in blocks"]
        assert relative_reach(find_gpu(gpu), "fp4") == ON_BLACKWELL["fp4"]
        assert relative_reach(find_gpu(gpu), "int8") == 1.0
