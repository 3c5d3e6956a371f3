"""The extended model's coefficients from logged steps: robust least squares on the logs of their times, no simulation.

What the steps leave open is held by the same priors as in a fit to requests (``calibrate.fit.objective.priors``).
Neighbouring steps are alike and no model is exact, so that ``STEPS_PER_OBSERVATION`` of them count as one observation
against a prior. Intervals are from a moving-block bootstrap of the times, one Newton step for each replicate.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.initial_guess import robust_nnls
from calibrate.fit.objective.coefficients import EXTENDED_FITTED, MOST, decimals_of
from calibrate.fit.objective.objective import robust
from calibrate.fit.objective.priors import Prior, proportions, with_priors
from calibrate.fit.pipeline import SPARE_DECIMALS
from calibrate.fit.uncertainty import Coefficient, Uncertainty, coefficients_of
from calibrate.run_to_run.normal_quantiles import deviation_of_median
from calibrate.steps.step_model import predicted_us
from calibrate.steps.step_series import StepSeries
from sim import Blackbox, Extended
from traces.statistics.bootstrap import Floats, block_length, generator_of, over_resamples

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

NAMES = ("beta0", "beta1", "beta2", *EXTENDED_FITTED)
NOISE = 0.04
"""Relative spread of a step's time, at least: below, single steps would outweigh what the model leaves out."""
STEPS_PER_OBSERVATION = 20.0
LEAST_TAU_S = 0.003
START_KAPPA = 0.3
"""Where a search begins that no prior draws away from 0: there the threshold and the time have no effect."""
LEAST_SHARE = 0.05
"""A coefficient starts at this share of its scale at least."""
REPLICATES = 1000
LEAST_SLOPE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """The ``model`` that explains the steps, its coefficients with intervals, and how well it does.

    ``correlation`` [p, p] of the coefficients ``NAMES``. ``loss``: 1 is a step that is one noise off, priors left out.
    ``decode_off``, ``prefill_off``: predicted over observed time, less 1, of all steps without and with prompts
    together; ``decode_mape``, ``prefill_mape``: of single ones. ``num_steps``: of which ``num_known`` times are known.
    """

    model: Extended
    coefficients: tuple[Coefficient, ...]
    correlation: Floats
    condition_number: float
    loss: float
    converged: bool
    num_steps: int
    num_known: int
    decode_off: float
    prefill_off: float
    decode_mape: float
    prefill_mape: float
    seconds: float


def fit_steps(
    logs: Sequence[StepSeries], base: Blackbox, *, priors: Mapping[str, Prior], seed: int = 42
) -> StepFit:
    """Return the extended model fitted to the steps of engines of one kind; ``base``: has the ways in and out."""
    begun = time.monotonic()
    task = _StepTask.of(logs, base, priors)
    first = task.solved(task.start())
    task = replace(task, noise=max(NOISE, task.spread(first.x)))
    found = task.solved(first.x)
    theta, spread = found.x * task.scale, task.uncertainty(found, seed=seed)
    coefficients = coefficients_of(NAMES, theta, spread=spread, scale=task.scale, priors=task.priors)
    rounded = [
        round(float(each), decimals_of(name) - SPARE_DECIMALS)
        for name, each in zip(NAMES, theta, strict=True)
    ]
    model = replace(task.base, **dict(zip(NAMES, rounded, strict=True)))  # type: ignore[arg-type]  # numbers, by name
    ratio, prompts, took = task.ratios(found.x), task.has_prompts(), task.took_us()
    return StepFit(
        model=model,
        coefficients=tuple(coefficients),
        correlation=spread.correlation,
        condition_number=spread.condition_number,
        loss=float(robust(ratio / task.noise).mean()),
        converged=bool(found.status > 0),
        num_steps=sum(map(len, logs)),
        num_known=len(ratio),
        decode_off=_off(ratio[~prompts], took[~prompts]),
        prefill_off=_off(ratio[prompts], took[prompts]),
        decode_mape=float(np.abs(np.expm1(ratio[~prompts])).mean()) if (~prompts).any() else 0.0,
        prefill_mape=float(np.abs(np.expm1(ratio[prompts])).mean()),
        seconds=time.monotonic() - begun,
    )


def _off(ratio: Floats, took_us: Floats) -> float:
    return float((np.exp(ratio) * took_us).sum() / took_us.sum() - 1) if len(ratio) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepTask:
    """What is minimized; vectors are coefficients over ``scale`` [p]. ``noise``: of the log of a time."""

    logs: tuple[StepSeries, ...]
    base: Extended
    priors: Mapping[str, Prior]
    scale: Floats
    guess: Floats
    noise: float = NOISE

    @staticmethod
    def of(logs: Sequence[StepSeries], base: Blackbox, priors: Mapping[str, Prior]) -> _StepTask:
        """Return the task, its scale and start from a straight line through the times."""
        line = _straight_line(logs)
        step_us = line["beta0"]
        all_priors = with_priors(proportions(beta1=line["beta1"], step_us=step_us), priors)
        expected = {name: each.centre for name, each in all_priors.items()}
        floor = min(expected["floor"], 0.8 * step_us)
        decodes = np.concatenate([log.batch.num_decode_tokens for log in logs])
        together = max(float(decodes.mean()), 1.0)
        guess = {
            **expected,
            "beta0": step_us - floor,
            "beta1": line["beta1"],
            "beta2": 0.5 * line["beta2"] * together ** expected["concavity"],
            "floor": floor,
            "kappa": max(expected["kappa"], START_KAPPA),
        }
        natural = {"beta0": step_us, "beta1": line["beta1"], "beta2": step_us / together, "floor": step_us}
        scale = {name: each.width for name, each in all_priors.items()} | natural
        shared = {name: getattr(base, name) for name in ("alpha0", "alpha1", "alpha2", "alpha3")}
        return _StepTask(
            logs=tuple(logs),
            base=Extended(**shared, tiles=base.tile_factors),
            priors=all_priors,
            scale=np.array([max(scale[name], LEAST_SLOPE) for name in NAMES]),
            guess=np.array([guess[name] for name in NAMES]),
        )

    def start(self) -> Floats:
        """Return where the search begins."""
        return np.maximum(self.guess / self.scale, LEAST_SHARE)

    def limits(self) -> tuple[Floats, Floats]:
        """Return the least and the largest value of each coefficient."""
        low = np.array([LEAST_TAU_S if name == "tau_s" else 0.0 for name in NAMES])
        high = np.array([MOST[name] for name in NAMES])
        return low / self.scale, high / self.scale

    def model(self, x: Floats) -> Extended:
        """Return the model with these coefficients."""
        low, high = self.limits()
        values = (np.clip(x, low, high) * self.scale).tolist()
        return replace(self.base, **dict(zip(NAMES, values, strict=True)))

    def ratios(self, x: Floats) -> Floats:
        """Return log(predicted / observed) of every known time."""
        model = self.model(x)
        parts = []
        for log in self.logs:
            known = log.known()
            parts.append(np.log(log.summed(predicted_us(model, log))[known] / log.took_us[known]))
        return np.concatenate(parts)

    def took_us(self) -> Floats:
        """Return the observed times that are known."""
        return np.concatenate([log.took_us[log.known()] for log in self.logs])

    def has_prompts(self) -> NDArray[np.bool_]:
        """Return which of them are of steps with prompts."""
        return np.concatenate([log.has_prompts[log.known()] for log in self.logs])

    def spread(self, x: Floats) -> float:
        """Return the relative spread of the times around the model."""
        return deviation_of_median(float(np.median(np.abs(self.ratios(x)))))

    def residuals(self, x: Floats) -> Floats:
        """Return what is squared and added up: of the times, then of the priors, both with heavy tails."""
        data = self.ratios(x) / self.noise
        return np.concatenate(
            [_softened(data) / np.sqrt(STEPS_PER_OBSERVATION), _softened(self._widths_off(x))]
        )

    def _widths_off(self, x: Floats) -> Floats:
        """Return how many widths each coefficient with a prior is off."""
        return np.array(
            [
                (x[j] * self.scale[j] - self.priors[name].centre) / max(self.priors[name].width, LEAST_SLOPE)
                for j, name in enumerate(NAMES)
                if name in self.priors
            ]
        )

    def solved(self, start: Floats) -> OptimizeResult:
        """Return the optimum from a start."""
        from scipy.optimize import least_squares

        low, high = self.limits()
        inside = np.clip(start, low + 1e-9, high - 1e-9)
        return least_squares(self.residuals, inside, bounds=(low, high), xtol=1e-5, ftol=1e-5)

    def uncertainty(self, found: OptimizeResult, *, seed: int) -> Uncertainty:
        """Return the coefficients' spread: times drawn anew in blocks, priors moved by their widths."""
        num_times = len(found.fun) - len(self._widths_off(found.x))
        slopes, residual = found.jac[:num_times], found.fun[:num_times]
        of_priors = found.jac[num_times:]
        curvature, pull = slopes.T @ slopes, of_priors.T @ of_priors
        inverse = np.linalg.inv(curvature + pull + LEAST_SLOPE * np.eye(len(found.x)))
        scores = slopes * residual[:, None]
        block = max(block_length(column) for column in scores.T)
        pulled = over_resamples(
            lambda counts: (counts - 1) @ scores, num_times, block, seed=seed, stream=8600
        )
        generator = generator_of(seed, 8601)
        pulled += generator.normal(size=(REPLICATES, len(of_priors))) @ of_priors
        steps = -pulled @ inverse
        low, high = self.limits()
        return Uncertainty(
            replicates=np.clip(found.x + steps, low, high) * self.scale,
            covariance=np.cov(steps * self.scale, rowvar=False),
            correlation=np.asarray(
                np.corrcoef(steps + LEAST_SLOPE * generator.normal(size=steps.shape), rowvar=False)
            ),
            condition_number=float(np.sqrt(np.linalg.cond(curvature + LEAST_SLOPE * np.eye(len(found.x))))),
            prior_share=np.clip(np.diag(pull) * np.diag(inverse), 0.0, 1.0),
        )


def _softened(values: Floats) -> Floats:
    """Return values whose squares are the robust loss: themselves near 0, their roots far out."""
    return np.asarray(np.sign(values) * np.sqrt(robust(values)))


def _straight_line(logs: Sequence[StepSeries]) -> dict[str, float]:
    """Return blackbox's three coefficients of a step, by relative errors, each of them above 0."""
    columns, took = [], []
    for log in logs:
        known = log.known()
        parts = (np.ones(len(log)), log.batch.num_prefill_tokens, log.batch.num_decode_tokens)
        columns.append(np.stack([log.summed(np.asarray(each, np.float64))[known] for each in parts], axis=1))
        took.append(log.took_us[known])
    matrix, times = np.concatenate(columns), np.concatenate(took)
    scale = np.median(times) / np.maximum(matrix.mean(axis=0), 1.0)
    found = robust_nnls(
        matrix / times[:, None] / NOISE,
        np.full(len(times), 1 / NOISE),
        weights=np.ones(len(times)),
        scale=scale,
    )
    least = 0.02 * scale
    return dict(zip(("beta0", "beta1", "beta2"), np.maximum(found, least).tolist(), strict=True))
