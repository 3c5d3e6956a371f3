"""The measured servers of the table, and which of them contradict themselves, by rules for all tools alike."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from sim import LatencyModel, PeakTimes, Roofline
from tests.studies.validation.silicon import (
    GPUS,
    MODEL_CLASSES,
    Point,
    Prepared,
    prepare,
    read_points,
    simulated,
)

CHOSEN = Path(__file__).with_name("points.txt")
SOURCE = "aiconfigurator_silicon/vllm_agg.csv"
STEADY = 0.85
"""A step with more users may measure as this share of one with fewer, not less."""


def default_data() -> Path:
    """Return the folder of public data: VTWIN_DATA, or the one beside the repository."""
    return Path(os.environ.get("VTWIN_DATA", Path(__file__).parents[4] / ".." / "shared" / "data"))


def all_points(data: Path) -> list[Point]:
    """Return every measurement that one engine can stand for, of all GPUs."""
    return read_points(data / SOURCE, gpus=GPUS.values())[0]


def read_scored(data: Path) -> list[Prepared]:
    """Return the points of the table, made ready: those named in points.txt, none of which vtwin was tuned on."""
    by_id = {point.id: point for point in all_points(data)}
    chosen = [by_id[name] for name in CHOSEN.read_text().split()]
    assert not any(point.is_ours_to_tune for point in chosen)
    return prepare(chosen)


def broken(points: Sequence[Prepared], measured: Sequence[Point]) -> dict[str, str]:
    """Return the rule by which a point is broken, by id; ``measured``: all points, for their neighbours."""
    rising = _below_fewer_users(measured)
    found = {}
    for ready in points:
        why = _too_fast(ready) or rising.get(ready.point.id)
        if why:
            found[ready.point.id] = why
    return found


def _too_fast(ready: Prepared) -> str:
    """Return why no server can have measured it: faster than the GPU at the peak of memory and arithmetic."""
    point = ready.point
    reading = ready.peak.weights + ready.peak.head_weights + _touched(ready) * ready.peak.expert_weights
    if point.tpot_ms * 1e3 < reading:
        return "TPOT below the time in which the weights are read"
    ttft, tpot = simulated(ready, perfect)
    if point.ttft_ms + point.osl * point.tpot_ms < ttft + point.osl * tpot:
        return "does not hold its load: faster than the GPU at its peaks"
    return ""


def _touched(ready: Prepared) -> float:
    """Return the share of the experts that one request touches in a step: the least that is read."""
    return ready.peak.num_experts_per_token / ready.peak.num_experts if ready.peak.num_experts else 0.0


def perfect(peak: PeakTimes) -> LatencyModel:
    """Return a GPU that always runs at its peaks and launches, waits and exchanges nothing."""
    free = replace(peak, waiting=0.0, per_token=0.0, all_reduce=0.0, all_to_all=0.0)
    shares = dict.fromkeys(("compute", "expert", "attention", "bandwidth", "link"), 1.0)
    times = ("all_reduce", "layer", "moe_layer", "step", "sequence", "cpu_step", "cpu_sequence")
    return Roofline(
        peak=free,
        alpha0=0,
        batching=0.0,
        expert_tile=1.0,
        **{f"{name}_efficiency": share for name, share in shares.items()},  # type: ignore[arg-type]
        **dict.fromkeys((f"{name}_us" for name in times), 0.0),  # type: ignore[arg-type]
    )


def server_of(point: Point) -> tuple[object, ...]:
    """Return what two measurements of one server at the same lengths have in common."""
    return (
        *(point.model, point.gpu, point.fp8, point.fp4, point.tp, point.has_whole_experts),
        *(point.isl, point.osl),
    )


def _below_fewer_users(measured: Sequence[Point]) -> dict[str, str]:
    """Return the points whose TPOT is well below that of the same server with fewer users, by id."""
    servers: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for point in measured:
        servers[server_of(point)].append(point)
    found = {}
    for group in servers.values():
        for point in group:
            fewer = [each.tpot_ms for each in group if each.concurrency < point.concurrency]
            if fewer and point.tpot_ms < STEADY * max(fewer):
                found[point.id] = "TPOT below that of the same server with fewer users"
    return found


def noise(measured: Sequence[Point]) -> dict[tuple[str, str], tuple[int, float, float]]:
    """Return by class and GPU how far repeated measurements lie from the first: their number, TTFT and TPOT, %.

    A repetition has the same server, lengths and users. The figures are medians of the absolute differences: what a
    tool would score that answers every question with an earlier measurement.
    """
    first: dict[tuple[object, ...], Point] = {}
    apart: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for point in measured:
        key = (*server_of(point), point.concurrency)
        before = first.setdefault(key, point)
        if before is not point:
            both = (before.ttft_ms / point.ttft_ms - 1, before.tpot_ms / point.tpot_ms - 1)
            apart[MODEL_CLASSES[point.model].split(",")[0], point.gpu].append(both)
    medians = {key: 100 * np.median(np.abs(rows), axis=0) for key, rows in apart.items()}
    return {key: (len(apart[key]), float(both[0]), float(both[1])) for key, both in medians.items()}
