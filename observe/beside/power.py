"""Energy of a run, from the power that NVIDIA's DCGM exporter shows of each GPU."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from observe.beside.scrape import GaugeRow
from observe.server.prometheus_text import parse_metrics
from traces import PowerInfo

Floats = NDArray[np.float64]

POWER = "DCGM_FI_DEV_POWER_USAGE"
"""Watts of a GPU."""
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
"""Per cent of the time in which a kernel ran."""

_COVERED = 0.95
"""A smaller part of the run with readings is not its energy."""


def gpu_series(rows: Iterable[GaugeRow], name: str) -> dict[str, tuple[Floats, Floats]]:
    """Return each GPU's times, µs, and values of a gauge; of several series of one GPU (parts, pods) the mean."""
    gpu_of: dict[str, str | None] = {}
    found: dict[str, dict[int, list[float]]] = {}
    for time_us, key, value in rows:
        if not key.startswith(name):
            continue
        if key not in gpu_of:
            gpu_of[key] = _gpu(key, name)
        gpu = gpu_of[key]
        if gpu is not None:
            found.setdefault(gpu, {}).setdefault(time_us, []).append(value)
    return {
        gpu: (np.array(sorted(values), np.float64), np.array([np.mean(values[at]) for at in sorted(values)]))
        for gpu, values in found.items()
    }


def _gpu(key: str, name: str) -> str | None:
    """Return the GPU that a series is of, None of another gauge: by its UUID, else by its host and number."""
    samples = parse_metrics(f"{key} 0")
    if not samples or samples[0].name != name:
        return None
    labels = samples[0].labels
    places = (labels.get(each, "") for each in ("endpoint", "Hostname", "gpu"))
    return labels.get("UUID") or "/".join(places)


def power_of(
    rows: Iterable[GaugeRow], *, duration_us: float, period_s: float, output_tokens: int
) -> PowerInfo | None:
    """Return energy and power over a run of ``duration_us``; None where no GPU's power was read.

    The integral of each GPU's power by the trapezoid rule, all GPUs summed; the first and the last reading hold to the
    run's ends. Energy is None where readings cover less than 95 % of the run.
    """
    series = gpu_series(rows, POWER)
    if not series or duration_us <= 0:
        return None
    covered = min(_covered_us(times, duration_us, 2.5e6 * period_s) for times, _ in series.values())
    energy = sum(_integral(times, watts, duration_us) for times, watts in series.values()) / 1e6
    is_known = covered >= _COVERED * duration_us
    return PowerInfo(
        num_gpus=len(series),
        covered_frac=round(covered / duration_us, 4),
        energy_j=round(energy, 3) if is_known else None,
        mean_w=round(energy / (duration_us / 1e6), 3) if is_known else None,
        output_tokens_per_j=round(output_tokens / energy, 6) if is_known and energy > 0 else None,
    )


def _integral(times: Floats, values: Floats, until: float) -> float:
    inside = (times > 0) & (times < until)
    ends = np.interp([0.0, until], times, values)
    x = np.concatenate([[0.0], times[inside], [until]])
    y = np.concatenate([ends[:1], values[inside], ends[1:]])
    return float(((y[1:] + y[:-1]) / 2 * np.diff(x)).sum())


def _covered_us(times: Floats, until: float, most_gap: float) -> float:
    """Return how much of the run lies between readings no further apart than ``most_gap``."""
    gaps = np.diff(np.concatenate([[0.0], times[times < until], [until]]))
    return float(gaps[gaps <= most_gap].sum())
