"""What the experts of a layer took on real GPUs, by tokens: a table that ships, ``measured/experts.npz``.

Where it comes from and how it is packed: ``measured/PROVENANCE.md``. One number for the experts of all precisions, GPUs
and kernels is off by half: what a kernel for 4-bit weights reaches of a peak says nothing of one for FP8.
"""

from __future__ import annotations

from functools import lru_cache
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay.model.gpus import Gpu
from replay.model.matmuls import table_precisions
from replay.model.matmuls.measured_times import unpacked
from replay.model.shape import Experts, ModelShape
from sim import DEFAULT_VERSION, minor_version

SHIPPED = Path(__file__).with_name("measured") / "experts.npz"
SLICE = ("gpu", "version", "precision", "hidden", "width", "top", "experts", "tp", "ep")
"""What the columns of ``slices`` are."""
FEWEST_TOKENS = 4
"""Points that a curve has at least."""

STAND_INS = {"B300": "b200", "GB200": "b200", "GB300": "b200"}
"""GPUs without a table of their own, and the one of their generation that has one and the same bandwidth."""
NEW_KERNELS, NEWEST_KERNELS = 16, 23
"""The minor version of vLLM from which the tables of 0.22 and 0.24 are nearer than that of 0.14: the kernels for
experts were chosen anew then, and a slice of 8 tokens with whole experts differs 1.8 times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertCurve:
    """What one layer's experts take a GPU, µs, by tokens of the step; ``source``: whose rows they are."""

    tokens: tuple[float, ...]
    time_us: tuple[float, ...]
    source: str


def expert_curve(
    shape: ModelShape, gpu: Gpu, *, tp: int, ep: int = 1, version: str = DEFAULT_VERSION
) -> ExpertCurve | None:
    """Return the measured time of a layer's experts on one of ``tp`` GPUs, ``ep`` of which have whole experts.

    Of the nearest version that has rows of the model's sizes in its precision; where no slice is as wide, the nearest
    with as many GPUs that have whole experts, scaled by width. None where nothing near was measured.
    """
    if shape.experts is None or not shape.is_gated:
        return None
    name = STAND_INS.get(gpu.name, gpu.name.lower())
    sizes = (shape.experts.hidden_size or shape.hidden_size, *_sizes(shape.experts))
    wanted = (tp // ep, ep)
    for is_exact in (True, False):
        for measured in _nearest(version):
            for precision in table_precisions(shape.expert_precision, of_experts=True):
                found = _slices(name, measured, precision, sizes)
                slices = [wanted] if is_exact else _near(found, wanted)
                for each in slices:
                    if each in found:
                        return _curve(
                            found[each], each[0] / wanted[0], f"{name}, vLLM {measured}, {precision}"
                        )
    return None


def _sizes(experts: Experts) -> tuple[int, int, int]:
    return experts.intermediate_size, experts.num_per_token, experts.num_experts


def _nearest(version: str) -> tuple[str, ...]:
    minor = minor_version(version)
    if minor is not None and minor < NEW_KERNELS:
        return ("0.14", "0.22", "0.24")
    return (
        ("0.22", "0.24", "0.14") if minor is not None and minor < NEWEST_KERNELS else ("0.24", "0.22", "0.14")
    )


def _near(found: dict[tuple[int, int], Any], wanted: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the slices with as many GPUs of whole experts, the likest width first."""
    alike = [each for each in found if each[1] == wanted[1]]
    return sorted(alike, key=lambda each: (abs(np.log(each[0] / wanted[0])), each))


def _curve(points: NDArray[np.float64], factor: float, source: str) -> ExpertCurve:
    tokens, times = points
    return ExpertCurve(
        tokens=tuple(map(float, tokens)),
        time_us=tuple(round(float(each) * factor, 3) for each in times),
        source=source,
    )


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    with np.load(SHIPPED) as packed:
        return {name: packed[name] for name in packed.files}


@lru_cache(maxsize=256)
def _slices(
    gpu: str, version: str, precision: str, sizes: tuple[int, int, int, int]
) -> dict[tuple[int, int], NDArray[np.float64]]:
    """Return by (width, GPUs with whole experts) the tokens and times [2, n] that were measured."""
    table = _table()
    names = [table[key].tolist() for key in ("gpus", "versions", "precisions")]
    asked = (gpu, version, precision)
    if any(each not in known for each, known in zip(asked, names, strict=True)):
        return {}
    numbers = [known.index(each) for each, known in zip(asked, names, strict=True)]
    rows = np.flatnonzero((table["slices"][:, :7] == [*numbers, *sizes]).all(axis=1))
    found = {}
    for row in rows.tolist():
        known = table["units"][row] > 0
        if known.sum() >= FEWEST_TOKENS:
            times = unpacked(table["units"][row, known])
            found[int(table["slices"][row, 7]), int(table["slices"][row, 8])] = np.stack(
                [table["tokens"][known].astype(np.float64), times]
            )
    return found
