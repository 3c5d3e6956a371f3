"""The objective of a fit: coefficients in, the loss of the simulated latencies against the observed ones out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from calibrate.fit.objective.coefficients import COEFFICIENTS, MOST, decimals_of
from calibrate.fit.objective.exposure import exposure_columns
from calibrate.fit.objective.fit_trace import FitTrace
from calibrate.fit.objective.priors import WAY_IN, Prior
from calibrate.fit.objective.simulated_trace import SimulatedTrace, simulated
from calibrate.run_to_run.normal_quantiles import deviation_of_median
from sim import EngineConfig, LatencyModel
from traces.statistics.bootstrap import Floats

NOISE = np.array([0.10, 0.03, 0.03, 0.03])
"""Relative spread taken for one request's TTFT, E2E, TPOT and completion before the fit has measured its own."""
NOISE_LIMITS = (0.02, 0.30)
"""The measured spread is kept within these: below, rounding would dominate; above, a metric would not count."""
NEVER_FINISHED = np.log(10.0)
"""Residual of a request that the simulator does not finish: as if it were ten times too slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitObjective:
    """The problem to be fitted; immutable, every evaluation simulates the same requests.

    ``names``: the coefficients that vary, in the order of every vector. ``base``: the model they vary in.
    ``scale``: what each would be if it explained a typical latency alone: the natural size of a step.
    ``priors``: where some of them are expected, by name.
    """

    traces: tuple[FitTrace, ...]
    engine: EngineConfig
    names: tuple[str, ...]
    base: LatencyModel
    scale: Floats
    noise: Floats = field(default_factory=NOISE.copy)
    priors: Mapping[str, Prior] = field(default_factory=lambda: MappingProxyType({}))

    def latency(self, theta: Floats) -> LatencyModel:
        """Return the latency model with these coefficients."""
        values = {
            name: round(min(max(float(value), 0.0), MOST[name]), decimals_of(name))
            for name, value in zip(self.names, theta, strict=True)
        }
        return replace(self.base, **values)

    def most(self) -> Floats:
        """Return the largest value of each coefficient, infinite where there is no limit."""
        return np.array([MOST[name] for name in self.names])

    def configured(self, name: str) -> float:
        """Return a coefficient as configured."""
        return float(getattr(self.base, name))

    def held(self) -> dict[str, float]:
        """Return the coefficients that do not vary (µs)."""
        return {name: self.configured(name) for name in COEFFICIENTS if name not in self.names}

    def on(self, traces: tuple[FitTrace, ...]) -> FitObjective:
        """Return the objective of other traces."""
        return replace(self, traces=traces)

    def subset(self, names: Sequence[str]) -> FitObjective:
        """Return the objective in which only these of its coefficients vary, the others as in ``base``."""
        at = [self.names.index(name) for name in names]
        return replace(self, names=tuple(names), scale=self.scale[at])

    def simulate(self, theta: Floats) -> list[SimulatedTrace]:
        """Return every trace simulated with these coefficients."""
        model = self.latency(theta)
        return [simulated(trace, engine=self.engine, model=model) for trace in self.traces]

    def residuals(self, runs: Sequence[SimulatedTrace]) -> list[Floats]:
        """Return, per trace [4, n], log(simulated / observed) in units of the noise, NaN unless used."""
        return [
            log_ratio(run.latency_us, trace.observed_us) / self.noise[:, None]
            for run, trace in zip(runs, self.traces, strict=True)
        ]

    def weights(self) -> list[Floats]:
        """Return, per trace, each residual's weight: all traces count equally, and all metrics within one."""
        weights = []
        for trace in self.traces:
            cells = max(1, int(np.count_nonzero(trace.counts))) * len(self.traces)
            weight = np.where(trace.counts > 0, 1 / (np.maximum(trace.counts, 1) * cells), 0.0)
            weights.append(np.broadcast_to(weight[:, None], trace.observed_us.shape))
        return weights

    def prior_precision(self, theta: Floats) -> Floats:
        """Return the weight in the loss of each scaled coefficient's squared distance from its prior, at ``theta``.

        Heavy tails (Cauchy's): a prior that the traces clearly contradict yields instead of pulling ever harder.
        """
        weight = np.array([self._prior_weight(name) for name in self.names])
        return np.asarray(self.scale**2 * weight / (1 + self._prior_widths_off(theta) ** 2))

    def prior_loss(self, theta: Floats) -> float:
        """Return the priors' part of the loss: the robust squared distance in widths, as this many requests."""
        off = (theta - self.prior_centre()) ** 2
        weight = np.array([self._prior_weight(name) for name in self.names])
        widths = self._prior_widths_off(theta) ** 2
        softened = np.divide(np.log1p(widths), widths, out=np.ones(len(theta)), where=widths > 0)
        return float((weight * off) @ softened)

    def _prior_weight(self, name: str) -> float:
        """Return the weight of a coefficient's squared distance from where it is expected, near there."""
        one = 1.0 / max(sum(trace.num_used for trace in self.traces), 1)
        if name in self.priors:
            prior = self.priors[name]
            return float(prior.weight * one / prior.width**2)
        return float(one / WAY_IN.get(name, np.inf) ** 2)

    def _prior_widths_off(self, theta: Floats) -> Floats:
        """Return how many widths each coefficient is off its own prior; 0 of those that have none of their own."""
        width = np.array([self.priors[name].width if name in self.priors else np.inf for name in self.names])
        return np.asarray((theta - self.prior_centre()) / width)

    def prior_centre(self) -> Floats:
        """Return where each coefficient is expected; 0 without a prior."""
        return np.array([self.priors[name].centre if name in self.priors else 0.0 for name in self.names])

    def prior_width(self) -> Floats:
        """Return the plausible error of each coefficient; infinite without a prior."""
        known = {name: prior.width for name, prior in self.priors.items()}
        return np.array([known.get(name, WAY_IN.get(name, np.inf)) for name in self.names])

    def loss(self, residuals: Sequence[Floats], theta: Floats) -> float:
        """Return the mean robust loss, prior included: 1 is a typical error of one noise, 0 perfection."""
        return self.prior_loss(theta) + float(
            sum(
                np.nansum(weight * robust(residual))
                for weight, residual in zip(self.weights(), residuals, strict=True)
            )
        )

    def evaluate(self, theta: Floats) -> float:
        """Return the loss at these coefficients."""
        return self.loss(self.residuals(self.simulate(theta)), theta)

    def exposure_gradients(self, runs: Sequence[SimulatedTrace]) -> list[Floats]:
        """Return, per trace, d residual / d coefficient while the schedule stays as it is: [p, 4, n]."""
        values = []
        for run, trace in zip(runs, self.traces, strict=True):
            latencies = exposure_columns(run.timeline, trace.requests.prompt_tokens.astype(np.float64))
            chosen = np.stack([latencies[name] for name in self.names])
            values.append(chosen / (np.maximum(run.latency_us, 1.0) * self.noise[:, None]))
        return values

    def with_noise_of(self, runs: Sequence[SimulatedTrace]) -> FitObjective:
        """Return the objective with each metric's noise measured from these runs' residuals."""
        ratios = np.concatenate(
            [
                log_ratio(run.latency_us, trace.observed_us)
                for run, trace in zip(runs, self.traces, strict=True)
            ],
            axis=1,
        )
        measured = np.array([_spread(row) for row in ratios])
        noise = np.where(np.isfinite(measured), np.clip(measured, *NOISE_LIMITS), self.noise)
        return replace(self, noise=noise)


def robust(residual: Floats) -> Floats:
    """Return the loss of residuals: squares near 0, straight lines far out (soft L1)."""
    return np.asarray(2 * (np.sqrt(1 + residual**2) - 1))


def robust_weight(residual: Floats) -> Floats:
    """Return what a residual's square must be weighted with for the same derivative as its robust loss."""
    return np.asarray(1 / np.sqrt(1 + residual**2))


def log_ratio(simulated_us: Floats, observed_us: Floats) -> Floats:
    """Return log(simulated / observed), NaN where not observed, ``NEVER_FINISHED`` where not simulated."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(np.maximum(simulated_us, 1.0)) - np.log(observed_us)
    ratio = np.where(np.isfinite(simulated_us), ratio, NEVER_FINISHED)
    return np.where(np.isfinite(observed_us) & (observed_us > 0), ratio, np.nan)


def _spread(ratios: Floats) -> float:
    """Return the standard deviation of a normal spread with this median of |log ratio|; NaN of none."""
    known = ratios[np.isfinite(ratios)]
    return deviation_of_median(float(np.median(np.abs(known)))) if len(known) else float("nan")
