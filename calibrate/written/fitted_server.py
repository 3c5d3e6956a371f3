"""What a fit was made on, as the twin's file keeps it (``latency.fitted_on``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from traces.strict.escape import terminal

if TYPE_CHECKING:
    from calibrate.findings import Calibration, Compared
    from calibrate.fit.result import Fit
    from replay.twin.fitted import FittedLoad, FittedOn, Flag, NamedServer
    from traces import ServerInfo, Trace

ROLES = {"fitted": "fitted", "held out": "held out", "first half fitted, second half held out": "half"}
ERRORS = ("ttft", "tpot", "e2e")


def fitted_on(calibration: Calibration, named: NamedServer) -> FittedOn:
    """Return the server and the loads behind a fit; ``named``: what is known of its GPUs and its model."""
    from calibrate.flags.known_model_and_gpu import version_told
    from replay.twin.fitted import FittedOn

    fit = calibration.fit
    assert fit is not None  # noqa: S101 - only a fit is written
    header = calibration.traces[0].source.trace.header.server
    gpu = named.hardware.get("gpu") or header.gpu
    tp, pp = named.hardware.get("tp") or header.tensor_parallel, named.hardware.get("pp")
    tp, pp = (value if isinstance(value, int) else 1 for value in (tp, pp))
    return FittedOn(
        model=_printable(_model_of(named, header)),
        gpu=None if gpu is None else _printable(str(gpu)),
        num_gpus=None if gpu is None else tp * pp,
        tp=None if gpu is None else tp,
        vllm_version=_printable(version_told([each.source.trace for each in calibration.traces], fit.config)),
        flags=dict(_flags_of(calibration, fit, named)),
        noise={
            name: _short(found.mape.value)
            for name in ERRORS
            if (found := calibration.noise_floor.get(f"{name}_us")) is not None
            and found.mape.value is not None
        },
        loads=tuple(load_of(each) for each in calibration.traces if each.role in ROLES),
        carried_from=fit.carried_from,
    )


def _printable(text: str | None) -> str | None:
    """Return a stranger's text as a line that TWIN.yaml takes."""
    return None if not text else " ".join(terminal(text).split())


def _model_of(named: NamedServer, header: ServerInfo) -> str | None:
    """Return the model's name: the one that ships, else what the server calls it."""
    from replay.model import shipped_config

    own = named.latency.get("model_config")
    if isinstance(own, str) and shipped_config(own) is not None:
        return own
    return header.model_root or header.model


def _flags_of(calibration: Calibration, fit: Fit, named: NamedServer) -> Iterator[tuple[str, Flag]]:
    """Yield the server's flags that are known; what is only assumed is left out."""
    from calibrate.report.warnings import unknown_flags
    from replay.twin.fitted import FLAGS
    from sim import UNBOUNDED

    assumed = unknown_flags(calibration)
    for name in FLAGS:
        value = getattr(fit.config.engine, name, None)
        value = named.latency.get(name) if value is None else value
        if isinstance(value, int | bool | str) and name not in assumed and value != UNBOUNDED:
            yield name, value


def load_of(compared: Compared) -> FittedLoad:
    """Return an observed run with the twin's mean error per request on it."""
    from replay.twin.fitted import FittedLoad, range_of

    trace, pairs = compared.source.trace, compared.pairs
    rate = range_of([trace], [None]).rate_per_s
    errors = {}
    for name in ERRORS:
        real, mine = (side[f"{name}_us"].to_numpy(float) for side in (pairs.observed, pairs.simulated))
        known = np.isfinite(real) & np.isfinite(mine) & (real > 0)
        if known.any():
            errors[name] = _short(float(np.mean(np.abs(mine[known] / real[known] - 1))))
    return FittedLoad(
        name=_printable(compared.source.name) or "run",
        role=ROLES[compared.role],
        num_requests=len(pairs),
        rate_per_s=None if rate is None else rate[0],
        **_means_of(trace),
        **errors,
    )


def _means_of(trace: Trace) -> dict[str, float | None]:
    """Return the mean number of requests in flight, and the mean lengths, of the finished requests."""
    from traces import finished_ok, prompt_tokens, request_latencies, send_or_arrival_us

    kept = finished_ok(trace)
    start = np.asarray(send_or_arrival_us(trace), np.float64)[kept]
    e2e = request_latencies(trace)["e2e_us"][kept]
    values = {
        "prompt_tokens": prompt_tokens(trace)[kept].astype(np.float64),
        "output_tokens": trace.cells("output_tokens").floats()[kept],
    }
    known = np.isfinite(e2e)
    span = float((start + e2e)[known].max() - start[known].min()) if known.any() else 0.0
    found: dict[str, float | None] = {
        name: _short(float(np.nanmean(each))) if np.isfinite(each).any() else None
        for name, each in values.items()
    }
    return {"concurrency": _short(float(e2e[known].sum()) / span) if span > 0 else None, **found}


def _short(value: float) -> float:
    return float(f"{value:.4g}")
