"""``calibrate --from OLD.yaml``: the other server's twin, carried to this server and corrected by its requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from calibrate.carried.carried_model import GpuPeak, carried_model
from calibrate.carried.few_requests import fit_few
from calibrate.fit.objective.known_server import KnownServer, known_physics, known_tiles
from traces import ConfigError

if TYPE_CHECKING:
    from calibrate.fit.objective.fit_trace import FitTrace
    from calibrate.fit.result import Fit
    from calibrate.fit.search import Report
    from replay import TwinConfig
    from replay.twin.fitted import FittedRange, Pace
    from sim import PeakTimes

WITHIN, BEYOND = 0.12, 0.2
"""How far all steps together may be off where few requests of a server are all that was seen (docs/validation.md)."""


def fit_carried(
    ready: Sequence[FitTrace],
    known: KnownServer,
    config: TwinConfig,
    old: TwinConfig,
    *,
    report: Report | None = None,
) -> Fit:
    """Return this server's twin (``config``: its flags), with the old one's coefficients as far as they carry.

    Raises ConfigError where either server's model or GPU is not known, or the models differ.
    """
    new, place = _new_place(known, config), _old_place(old)
    if place.peak.num_layers != new.peak.num_layers:
        raise ConfigError(
            f"--from: got a twin of a model of {place.peak.num_layers} layers, expected one of this server's, which "
            f"has {new.peak.num_layers}: what another model takes is not carried"
        )
    model = carried_model(old.latency, place, new, tiles=known_tiles(known, config).factors)
    return fit_few(ready, replace(config, latency=model), carried_from=server_of(old, place), report=report)


def server_of(old: TwinConfig, place: GpuPeak) -> str:
    """Return the old server in words."""
    if old.fitted_on is not None:
        return old.fitted_on.server
    name = "" if old.source is None else f" ({old.source.name})"
    return f"{place.gpu}, tp {place.peak.tp}{name}"


def range_carried(old: FittedRange | None, own: FittedRange) -> FittedRange:
    """Return the loads that a carried twin stands for: the old server's and its own."""
    from replay.twin.fitted import union

    return own if old is None else union([old, own])


def pace_carried(own: Pace) -> Pace:
    """Return how far a carried twin's steps may be off: at least as far as pairs of measured servers show."""
    from replay.twin.fitted import Pace

    return Pace(within=max(own.within, WITHIN), beyond=max(own.beyond, BEYOND))


def _new_place(known: KnownServer, config: TwinConfig) -> GpuPeak:
    physics, reason = known_physics(known, config)
    if physics is None or known.gpu_name is None:
        raise ConfigError(
            f"--from: got a server whose steps physics does not know: {reason or 'GPU not known (--gpu)'}; expected "
            "its model (--model-config) and GPU (--gpu), by which the other twin is scaled"
        )
    return GpuPeak(peak=physics.peak, gpu=known.gpu_name)


def _old_place(old: TwinConfig) -> GpuPeak:
    """Return the old twin's server: as its file names it, else as it says what it was fitted on."""
    gpu = old.gpus_of_pools[0][0] if old.gpus_of_pools else None
    peak = old.peaks[0] if old.peaks else None
    if peak is not None and gpu is not None:
        return GpuPeak(peak=peak, gpu=gpu)
    on = old.fitted_on
    if on is None or on.model is None or on.gpu is None:
        raise ConfigError(
            f"--from: got {_name(old.source)}, which names no model and GPU, expected hardware.gpu and "
            "latency.model_config, or latency.fitted_on: the other twin is scaled by physics of both servers"
        )
    return GpuPeak(peak=_peak_of(on.model, on.gpu, tp=on.tp or 1, version=old.vllm_version), gpu=on.gpu)


def _peak_of(model: str, gpu: str, *, tp: int, version: str) -> PeakTimes:
    from replay.model import find_gpu, peak_times, read_model_config

    return peak_times(read_model_config(model), find_gpu(gpu), tp=tp, version=version)


def _name(source: Path | None) -> str:
    return "a twin" if source is None else str(source)
