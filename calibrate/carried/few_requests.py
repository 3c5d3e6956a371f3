"""A carried model corrected by few requests: the likeliest coefficients, those of one kind moving together.

Idle requests show three sums: the way in, a lone prompt's time, a lone decode's step. What they say of reading the
weights, say, holds of reading the KV cache, too, which they hardly do: each coefficient's log is off by what its group
is off (memory, compute, collectives, host) and by something of its own, both with a width that was chosen on
pairs of measured servers (docs/validation.md).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from calibrate.carried.carried_model import has_floor
from calibrate.fit.objective.coefficients import coefficients_in
from calibrate.fit.objective.fit_trace import LATENCIES, FitTrace
from calibrate.fit.objective.objective import NOISE, log_ratio
from calibrate.fit.objective.priors import Prior
from calibrate.fit.objective.simulated_trace import simulated
from calibrate.fit.pipeline import held_coefficient
from calibrate.fit.result import Fit
from calibrate.fit.search import Report
from calibrate.fit.uncertainty import Coefficient
from calibrate.run_to_run.normal_quantiles import half_width
from sim import EngineConfig, LatencyModel
from sim.latency import Fitting
from traces import TraceError
from traces.statistics.bootstrap import Floats

if TYPE_CHECKING:
    from replay import TwinConfig

METHOD = "least squares on log latencies, priors carried from another server, linearized at the optimum"
LEAST = 3
"""Fewer finished requests than this do not even tell a prompt's time from a decode's."""
MOST = 20.0
"""As so many requests a trace counts at most: how far the carried model's form is off does not shrink with more."""
GROUPS: Mapping[str, float] = {"memory": 0.2, "compute": 0.25, "collectives": 0.4, "host": 0.4}
"""How far all coefficients of a kind are off together: standard deviations of the log."""
OF_PHYSICS = 0.5
"""The same of physics, whose corrections hold for many servers: times as wide. One fit's µs are those of its loads."""
ALONE: Mapping[str, tuple[str, float]] = {
    "alpha0": ("", 0.8),
    "alpha1": ("", 0.6),
    "beta1": ("compute", 0.1),
    "beta2": ("host", 0.2),
    "beta3": ("memory", 0.15),
    "beta4": ("compute", 0.2),
    "beta5": ("host", 0.2),
    "floor": ("memory", 0.05),
    "prefill_compute": ("compute", 0.1),
    "decode_compute": ("compute", 0.15),
    "expert_compute": ("compute", 0.2),
    "experts_measured": ("compute", 0.1),
    "prefill_attention": ("compute", 0.2),
    "decode_attention": ("compute", 0.2),
    "prefill_kv": ("memory", 0.2),
    "decode_kv": ("memory", 0.15),
    "weights": ("memory", 0.05),
    "expert_weights": ("memory", 0.15),
    "head": ("memory", 0.15),
    "activation": ("memory", 0.2),
    "tensor_parallel": ("collectives", 0.2),
    "all_reduce_us": ("collectives", 0.2),
    "expert_tile": ("", 0.3),
    "layer_us": ("host", 0.2),
    "moe_layer_us": ("host", 0.2),
    "interleaved_moe_layer_us": ("host", 0.2),
    "block_us": ("host", 0.2),
    "latent_us": ("host", 0.2),
    "norm_us": ("collectives", 0.2),
    "request_us": ("host", 0.2),
    "step_us": ("host", 0.3),
    "cpu_step_us": ("host", 0.3),
    "cpu_request_us": ("host", 0.3),
}
"""Each coefficient's kind ("": none), and how far it is off beside the others of its kind."""
LEAST_WAY_IN_US = 2_000.0
"""A front end takes about so long at least; a fit to busy loads may have left it out, and idle requests show it."""
QUIET = {True: ("host", 0.2), False: ("memory", 0.1)}
"""The same of beta0: the time between steps where reading the weights is a term of its own, else mostly that."""
STEPS = (0.5, 0.1)
"""Shares of a width over which slopes are taken, one search after the other."""
EVALUATIONS = 20
SEEN = 0.7
"""A coefficient is told by the requests when they bring its spread below this share of the prior's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """The coefficients as they vary: log c = log centre + spread @ z, z of standard normals, the groups' first."""

    names: tuple[str, ...]
    centre: Floats
    spread: Floats
    base: LatencyModel

    @classmethod
    def of(cls, model: LatencyModel) -> _Space:
        """Return the space around a carried model; a coefficient of 0 stays so."""
        kinds = {**ALONE, "beta0": QUIET[has_floor(model)]}
        model = replace(model, alpha0=max(float(model.alpha0), LEAST_WAY_IN_US))
        own = {each.name for each in fields(model)}
        names = tuple(
            name
            for name in kinds
            if name in own and float(getattr(model, name)) > 0 and model.describes(name)
        )
        groups = tuple(GROUPS)
        wide = OF_PHYSICS if model.fitting is Fitting.NEARBY else 1.0
        together = np.array(
            [[wide * GROUPS[group] * (kinds[name][0] == group) for group in groups] for name in names]
        )
        alone = np.diag([kinds[name][1] for name in names])
        return cls(
            names=names,
            centre=np.log([float(getattr(model, name)) for name in names]),
            spread=np.hstack([together, alone]),
            base=model,
        )

    @property
    def width(self) -> Floats:
        """The prior's width of each log."""
        return np.asarray(np.sqrt((self.spread**2).sum(axis=1)))

    def values(self, z: Floats) -> dict[str, float]:
        """Return the coefficients at z."""
        logs = self.centre + self.spread @ z
        return {name: float(f"{np.exp(log):.6g}") for name, log in zip(self.names, logs, strict=True)}

    def model(self, z: Floats) -> LatencyModel:
        """Return the model at z."""
        return replace(self.base, **self.values(z))


def fit_few(
    traces: Sequence[FitTrace], config: TwinConfig, *, carried_from: str, report: Report | None = None
) -> Fit:
    """Return the twin whose carried model (``config.latency``) is corrected by the traces' requests.

    ``carried_from``: the old server in words. Raises TraceError for fewer than ``LEAST`` finished requests.
    """
    began = time.monotonic()
    number = sum(each.num_used for each in traces)
    if number < LEAST:
        raise TraceError(f"--from: got {number} finished requests, expected at least {LEAST}")
    space = _Space.of(config.latency)
    found = _optimum(traces, config.engine, space, report=report or (lambda _stage, _loss: None))
    covariance = np.linalg.inv(found.jac.T @ found.jac)
    of_logs = space.spread @ covariance @ space.spread.T
    spread = np.sqrt(np.diag(of_logs))
    latency = space.model(found.x)
    told = {each.name: each for each in _coefficients(space, found.x, spread=spread, source=carried_from)}
    shown = coefficients_in(latency) if latency.fitting is Fitting.FREELY else space.names
    return Fit(
        config=replace(config, latency=latency),
        coefficients=tuple(told.get(name) or held_coefficient(name, latency) for name in shown),
        names=space.names,
        correlation=of_logs / np.outer(spread, spread),
        condition_number=float(np.linalg.cond(found.jac.T @ found.jac)),
        loss=float(found.cost / max(number * len(LATENCIES), 1)),
        noise=dict(zip(LATENCIES, NOISE.tolist(), strict=False)),
        num_requests=number,
        converged=bool(found.status > 0),
        method=METHOD,
        seconds=time.monotonic() - began,
        carried_from=carried_from,
    )


def _optimum(traces: Sequence[FitTrace], engine: EngineConfig, space: _Space, *, report: Report):  # type: ignore[no-untyped-def]  # noqa: ANN202 - scipy's own
    from scipy.optimize import least_squares

    weights = [
        np.sqrt(min(1.0, MOST / max(each.num_used, 1))) / NOISE[: len(LATENCIES), None] for each in traces
    ]

    def residuals(z: Floats) -> Floats:
        model = space.model(z)
        rows = []
        for each, weight in zip(traces, weights, strict=True):
            run = simulated(each, engine=engine, model=model)
            seen = slice(0, len(LATENCIES))
            off = log_ratio(run.latency_us[seen], each.observed_us[seen]) * weight
            rows.append(np.nan_to_num(off, nan=0.0).ravel())
        found = np.concatenate([*rows, z])
        report("few requests", float(np.mean(np.square(found)) / 2))
        return found

    z = np.zeros(space.spread.shape[1])
    for step in STEPS:

        def slopes(at: Floats, step: float = step) -> Floats:
            here = residuals(at)
            return np.stack([(residuals(at + row) - here) / step for row in step * np.eye(len(at))], axis=1)

        found = least_squares(residuals, z, jac=slopes, loss="soft_l1", max_nfev=EVALUATIONS)
        z = found.x
    return found


def _coefficients(space: _Space, z: Floats, *, spread: Floats, source: str) -> list[Coefficient]:
    """Return values with intervals and what was carried, and why the requests do not tell some of them."""
    factor, made = half_width(), []
    for i, (name, value) in enumerate(space.values(z).items()):
        is_seen = bool(spread[i] < SEEN * space.width[i])
        centre = float(np.exp(space.centre[i]))
        made.append(
            Coefficient(
                name=name,
                value=value,
                low=value * float(np.exp(-factor * spread[i])),
                high=value * float(np.exp(factor * spread[i])),
                fitted=True,
                identifiable=is_seen,
                reason=None if is_seen else "few requests do not tell: carried from the other twin",
                prior=Prior(centre=centre, width=centre * float(space.width[i]), source=source),
                is_prior_led=not is_seen,
            )
        )
    return made
