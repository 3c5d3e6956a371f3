"""The initial guess at the coefficients from the observed traces alone: one convex regression, no simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.objective.exposure import exposure_columns
from calibrate.fit.objective.fit_trace import FitTrace
from calibrate.fit.objective.objective import FitObjective
from traces.statistics.bootstrap import Floats

QUIET_STEPS = 5.0
"""A quiet TTFT is no more than this many steps: the rest is due to the queue."""
LEAST = 0.02
"""Share of its natural scale that every coefficient starts at, at least: a search cannot scale up from 0."""
STEP_NOISE = 0.05
"""Relative spread taken for one logged step."""
REWEIGHTINGS = 5
"""Rounds of reweighting that turn least squares into a robust fit; more have no visible effect."""


def natural_scale(traces: Sequence[FitTrace], names: Sequence[str]) -> Floats:
    """Return what each coefficient would be if it explained a quiet latency alone (µs); all positive.

    A quiet TTFT is the lower decile, and no more than ``QUIET_STEPS``.
    """
    first = _quantile([trace.observed_us[0] for trace in traces], 0.1, otherwise=10_000.0)
    gap = _quantile([trace.observed_us[2] for trace in traces], 0.5, otherwise=first)
    first = min(first, QUIET_STEPS * gap)
    prompt = _quantile([trace.requests.prompt_tokens[trace.used()] for trace in traces], 0.5, otherwise=1.0)
    together = _quantile([decoding_together(trace) for trace in traces], 0.5, otherwise=1.0)
    scale = {
        "alpha0": first,
        "alpha1": first / prompt,
        "alpha2": gap,
        "alpha3": gap / max(together, 1.0),
        "beta0": gap,
        "beta1": first / prompt,
        "beta2": gap / max(together, 1.0),
        "beta3": gap / max(together * prompt, 1.0),
        "beta4": first / prompt**2,
        "floor": gap,
        "concavity": 1.0,
        "kappa": 1.0,
        "u0": 1.0,
        "tau_s": 0.1,
    }
    return np.array([scale[name] for name in names])


def decoding_together(trace: FitTrace) -> Floats:
    """Return how many requests decoded, on average, while each one did; NaN of those that never did."""
    seen = exposure_columns(trace.observed_timeline, trace.requests.prompt_tokens.astype(np.float64))
    return np.asarray(seen["beta2"][2])


def blackbox_starts(objective: FitObjective) -> list[Floats]:
    """Return where the search begins: the initial guess, its variants, and the configured values if there are any."""
    guess = initial_guess(objective)
    starts = several_starts(guess, names=objective.names, scale=objective.scale)
    if (logged := guess_of_steps(objective, guess)) is not None:
        starts.insert(0, np.maximum(logged, LEAST * objective.scale))
    if objective.configured("beta0") > 0:
        starts.append(configured(objective))
    return starts


def configured(objective: FitObjective) -> Floats:
    """Return the coefficients as configured, none of them exactly 0."""
    given = np.array([float(getattr(objective.base, name)) for name in objective.names])
    return np.asarray(np.maximum(given, LEAST * objective.scale))


def initial_guess(objective: FitObjective) -> Floats:
    """Return the coefficients that explain the observed latencies by what each request was exposed to.

    Non-negative least squares on relative errors, reweighted to be robust; the observed overlap of requests
    says how many steps, prefill tokens and decode tokens each one sat through.
    """
    rows, targets, weights = [], [], []
    for trace, weight in zip(objective.traces, objective.weights(), strict=True):
        columns = exposure_columns(trace.observed_timeline, trace.requests.prompt_tokens.astype(np.float64))
        held = sum(columns[name] * value for name, value in objective.held().items())
        matrix = np.stack([columns[name] for name in objective.names], axis=-1)
        # A time of 0, which clocks of whole milliseconds give, has no relative error.
        positive = np.where(trace.observed_us > 0, trace.observed_us, np.nan)
        relative = positive[:, :, None] * objective.noise[:, None, None]
        rows.append((matrix / relative).reshape(-1, len(objective.names)))
        targets.append(((trace.observed_us - held) / relative[:, :, 0]).ravel())
        weights.append(weight.ravel())
    return robust_nnls(
        np.concatenate(rows), np.concatenate(targets), weights=np.concatenate(weights), scale=objective.scale
    )


def guess_of_steps(objective: FitObjective, guess: Floats) -> Floats | None:
    """Return ``guess`` with the step's coefficients fitted to logged steps, None if no trace has a log of them.

    Convex, and free of the queue: durations against the tokens of the same steps, with equal weight on relative errors.
    """
    logs = [trace.steps for trace in objective.traces if trace.steps is not None]
    names = [name for name in ("beta0", "beta1", "beta2") if name in objective.names]
    if not logs or not names:
        return None
    prefill, decode, duration = (
        np.concatenate([getattr(log, column) for log in logs])
        for column in ("prefill_tokens", "decode_tokens", "duration_us")
    )
    kept = (duration > 0) & (prefill + decode > 0)
    columns = {"beta0": np.ones(len(duration)), "beta1": prefill, "beta2": decode}
    matrix = np.stack([columns[name] for name in names], axis=1)[kept] / duration[kept, None] / STEP_NOISE
    at = [objective.names.index(name) for name in names]
    found = guess.copy()
    found[at] = robust_nnls(
        matrix,
        np.full(int(kept.sum()), 1 / STEP_NOISE),
        weights=np.full(int(kept.sum()), 1 / max(int(kept.sum()), 1)),
        scale=objective.scale[at],
    )
    return found


def robust_nnls(matrix: Floats, target: Floats, *, weights: Floats, scale: Floats) -> Floats:
    """Return non-negative coefficients of ``matrix @ x = target`` (rows with NaN are passed over).

    ``scale`` brings the columns to one size; a hundredth of a typical row pulls undetermined coefficients towards 0.
    """
    from scipy.optimize import nnls

    known = np.isfinite(target) & np.isfinite(matrix).all(axis=1)
    scaled, target, base = matrix[known] * scale, target[known], weights[known]
    if len(target) == 0:
        return np.zeros(len(scale))
    pull = 1e-2 * np.sqrt(base.sum() / len(scale)) * np.eye(len(scale))
    anchor = np.zeros(len(scale))
    weight, x = base, np.zeros(len(scale))
    for _ in range(REWEIGHTINGS):
        root = np.sqrt(weight)[:, None]
        x, _ = nnls(np.vstack([scaled * root, pull]), np.concatenate([target * root[:, 0], anchor]))
        weight = base / np.sqrt(1 + (scaled @ x - target) ** 2)
    return np.asarray(x * scale)


def several_starts(guess: Floats, *, names: Sequence[str], scale: Floats) -> list[Floats]:
    """Return the guess and others that a different split of the same latency would have given.

    The initial guess may have attributed costs that it cannot separate to the wrong side: a prompt token's cost on the
    way in (alpha1) or in the step (beta1), a constant on the way in (alpha0) or in every step (beta0).
    """
    at = {name: index for index, name in enumerate(names)}
    floor = LEAST * scale
    starts = [np.maximum(guess, floor)]
    for source, target, share in (
        ("alpha1", "beta1", 1.0),
        ("beta1", "alpha1", 0.5),
        ("alpha0", "beta0", 0.3),
        ("beta0", "beta2", 0.3),
    ):
        if source in at and target in at:
            moved = guess.copy()
            amount = share * guess[at[source]]
            moved[at[source]] -= amount
            moved[at[target]] += _exchanged(amount, source, target, scale=scale, at=at)
            starts.append(np.maximum(moved, floor))
    return starts


def _exchanged(amount: float, source: str, target: str, *, scale: Floats, at: Mapping[str, int]) -> float:
    """Return what an amount of one coefficient is worth in another: per-token costs alike, else by scale."""
    if {source, target} == {"alpha1", "beta1"}:
        return amount
    return float(amount / scale[at[source]] * scale[at[target]])


def _quantile(parts: Sequence[NDArray[np.generic]], share: float, *, otherwise: float) -> float:
    """Return a quantile over all traces of what is known and positive."""
    values = np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])
    values = values[np.isfinite(values) & (values > 0)]
    return float(np.quantile(values, share)) if len(values) else otherwise
