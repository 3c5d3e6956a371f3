"""A fitted latency model on another server: scaled by what physics says of the two GPUs, or of the two layouts.

Physics' corrections are factors on the time at the peak, so they stay and the peak is the new server's. Coefficients in
µs are multiplied by the ratio of what physics says of the new and the old server, each for the part of a step that it
stands for. Ways in and out are the CPU's and stay; a slowdown stays between GPUs that have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, replace

import numpy as np

from calibrate.fit.model_selection import SLOWING
from calibrate.fit.objective.priors import POWER_LIMITED
from replay.twin import usual_physics
from sim import LatencyModel, PeakTimes, Physics, StepBatch
from sim.latency import Fitting
from traces import ConfigError

CONTEXT = 1_000
"""KV entries that each sequence of a probe reads, of a model that has no term for them."""
FEW, MANY = 8, 64
"""Sequences between which a decode token's time is taken."""
SHORT, LONG = 1_024, 2_048
"""Prompt tokens between which a token's time is taken: products are bound by compute there."""
ENTRIES, PAIRS = 1_000_000, 100_000_000
"""So many that a step in whole µs shows what one of them takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPeak:
    """A server as far as steps go: its model at its GPU's peak, and what the GPU is called."""

    peak: PeakTimes
    gpu: str


def carried_model(
    latency: LatencyModel, old: GpuPeak, new: GpuPeak, *, tiles: tuple[tuple[int, float], ...] = ()
) -> LatencyModel:
    """Return a fitted model as physics expects it on another server; ``tiles``: of the new one's products.

    Raises ConfigError for a model whose times are tables of one GPU, or a user's own.
    """
    if latency.fitting is Fitting.NEARBY and hasattr(latency, "peak"):
        return replace(latency, peak=new.peak)  # type: ignore[call-arg]  # of a class that has one
    if latency.fitting is not Fitting.FREELY:
        kind = type(latency).__name__.lower()
        raise ConfigError(
            f"--from: got latency.model {kind}, expected blackbox, extended or physics: a {kind} model's times are "
            "those of one GPU"
        )
    ratios = physics_ratios(old.peak, new.peak, has_floor=has_floor(latency))
    scaled = {
        name: float(getattr(latency, name)) * ratio
        for name, ratio in ratios.items()
        if hasattr(latency, name)
    }
    found = replace(latency, **{name: round(value, 12) for name, value in scaled.items()})
    if latency.tile_factors:
        found = found.with_tiles(tiles)
    if is_power_limited(old.gpu) and is_power_limited(new.gpu):
        return found
    return found.with_terms(set(found.fit_terms) - set(SLOWING))


def has_floor(latency: LatencyModel) -> bool:
    """Return whether reading the weights is a term of its own."""
    return "floor" in latency.fit_terms and float(getattr(latency, "floor")) > 0  # noqa: B009 - of such a class


def is_power_limited(gpu: str) -> bool:
    """Return whether a GPU is known as one whose clock falls while it computes."""
    return any(kind in gpu.upper() for kind in POWER_LIMITED)


def physics_ratios(old: PeakTimes, new: PeakTimes, *, has_floor: bool) -> Mapping[str, float]:
    """Return new / old of the part of a step behind each coefficient, by physics.

    ``has_floor``: reading the weights is a term of its own; else it is in beta0, and reading the KV in beta2.
    """
    one, other = _parts(old, has_floor=has_floor), _parts(new, has_floor=has_floor)
    return {name: other[name] / one[name] for name in one if one[name] > 0 and other[name] > 0}


def _parts(peak: PeakTimes, *, has_floor: bool) -> dict[str, float]:
    """Return what physics says of the parts of a step, µs."""
    model = Physics(peak=peak, **usual_physics(peak))  # type: ignore[arg-type]  # coefficients are numbers
    alone = replace(peak, weights=0.0, head_weights=0.0, expert_weights=0.0, experts_tokens=(), experts_us=())
    overhead = _quiet(replace(model, peak=alone))
    quiet = _quiet(model)
    found = {
        "beta1": (_prefill(model, LONG) - _prefill(model, SHORT)) / (LONG - SHORT),
        "beta3": (_decode(model, MANY, entries=ENTRIES) - _decode(model, MANY)) / ENTRIES,
        "beta4": (_prefill(model, SHORT, pairs=PAIRS) - _prefill(model, SHORT)) / PAIRS,
    }
    if has_floor:
        return {**found, "floor": quiet - overhead, "beta0": overhead}
    many, few = (_decode(model, number, entries=number * CONTEXT) for number in (MANY, FEW))
    return {**found, "beta0": quiet, "beta2": (many - few) / (MANY - FEW)}


def _quiet(model: Physics) -> float:
    return _decode(model, 1)


def _decode(model: Physics, number: int, *, entries: int = 0) -> float:
    """Return a step of so many decodes that read so many KV entries, or one each, µs."""
    return _step(model, num_decode_tokens=number, decode_context_tokens=max(entries, number))


def _prefill(model: Physics, tokens: int, *, pairs: int = 0) -> float:
    """Return a step of one prompt's tokens with so many (query, key) pairs, or as few as it can have, µs."""
    return _step(
        model,
        num_prefill_tokens=tokens,
        prefill_pairs=max(pairs, tokens * (tokens + 1) // 2),
        num_prefill_seqs=1,
        prefill_context_tokens=tokens,
    )


def _step(model: Physics, **sums: int) -> float:
    batch = StepBatch(
        **{name: np.array([sums.get(name, 0)], np.int64) for name in StepBatch.__dataclass_fields__}
    )
    return float(model.durations_us(batch)[0])
