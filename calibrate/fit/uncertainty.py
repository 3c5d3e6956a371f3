"""How well the traces determine each coefficient: intervals, correlations, and undetermined ones.

On the response surface around the optimum, a moving-block bootstrap of the requests' contributions moves the optimum by
one Newton step per replicate. A weak prior, as wide as a coefficient's possible range, gives a direction that no
request determines this width instead of a false certainty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass

import numpy as np

from calibrate.fit.objective.coefficients import MOST
from calibrate.fit.objective.objective import FitObjective, robust_weight
from calibrate.fit.objective.priors import Prior
from calibrate.fit.response_surface import Surface, reach_around, sample_surface
from traces.statistics.bootstrap import LEVEL, Floats, block_length, generator_of, resamples

METHOD = "one-step moving-block bootstrap over requests on a response surface, with a weak prior"
LEAST_SHARE = 0.03
"""The least share of a curvature that counts as real, however noisy its slopes."""
RELATIVE_TOLERANCE = 0.25
SCALE_TOLERANCE = 0.02
"""A coefficient is identifiable when its interval reaches at most a quarter of its value to each side, or
what would change a quiet latency by 2 %."""
PRIOR_LED = 0.5
"""A coefficient is led by its prior if this share of the information about it comes from there."""
CURVED = ("concavity", "kappa", "u0", "tau_s")
"""Coefficients that act through a product or a power with others: a plane gives too narrow intervals for them."""
WIDENED = 1.5
"""How many times wider their intervals are made, and that of beta2 beside a concavity: of 40 fits to simulated servers
the plane's intervals held u0 in 60 %, beta2 in 70 % and kappa in 73 %."""
FLAT_REACH = 0.07
"""How far, relative to the coefficients, a plane holds in blackbox, which is a straight line in each: the nearer the
points, the less a slope reflects the coefficient, and the more the step into which an arrival falls."""
FLAT_POINTS = 36
FLAT_POINTS_OF_MANY = 12
"""Points per coefficient for that plane; of ``MANY_REQUESTS`` fewer."""
MANY_REQUESTS = 1500
CONFOUNDED = 0.9
"""Correlation from which two coefficients are named together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A coefficient's value in µs per unit; ``low`` and ``high`` None where it was not fitted.

    ``prior``: its expected value, if any. ``is_prior_led``: most of the information about it comes from there.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    fitted: bool
    identifiable: bool
    reason: str | None
    prior: Prior | None = None
    is_prior_led: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Replicates of the coefficients [replicates, p], their correlation [p, p] and the condition number.

    ``prior_share`` [p]: how much of what is known of each comes from its prior, 0 to 1. ``covariance`` [p, p]: of the
    replicates before they are kept within limits.
    """

    replicates: Floats
    covariance: Floats
    correlation: Floats
    condition_number: float
    prior_share: Floats


def uncertainty(
    objective: FitObjective,
    theta: Floats,
    *,
    surface: Surface,
    seed: int,
    replicates: int = 1000,
    scatter: Floats | None = None,
) -> Uncertainty:
    """Return the spread of the coefficients around their optimum ``theta``, which the surface surrounds.

    ``scatter``: standard error of ``theta`` that the simulator's staircase adds.
    """
    curvature, scores, noise = _information(objective, theta, surface)
    precision = objective.prior_precision(theta)
    inverse = np.linalg.inv(curvature + noise * np.eye(len(theta)) + np.diag(precision))
    generator = generator_of(seed, 77)
    # The prior's pull counts from where the fit is, so that it widens without moving.
    pull = noise * generator.normal(size=(replicates, len(theta)))
    if objective.priors:
        width = np.where(precision > 0, objective.prior_width() / objective.scale, 0.0)
        pull += precision * width * generator.normal(size=pull.shape)
    for stream, score in enumerate(scores):
        block = max((block_length(column) for column in score.T), default=1)
        for which, counts in resamples(
            len(score), block, replicates=replicates, seed=seed, stream=7000 + stream
        ):
            pull[which] += (counts - 1) @ score
    steps = -pull @ inverse
    correlation = _correlation(steps)
    covariance = np.cov(steps * objective.scale, rowvar=False).reshape(len(theta), -1)
    if scatter is not None:
        steps += generator.normal(size=steps.shape) * scatter / objective.scale
    return Uncertainty(
        replicates=np.clip(theta + steps * objective.scale, 0.0, objective.most()),
        covariance=covariance,
        correlation=correlation,
        condition_number=condition_number(curvature),
        prior_share=np.clip(precision * np.diag(inverse), 0.0, 1.0),
    )


def flat_surface(objective: FitObjective, theta: Floats, *, seed: int) -> Surface:
    """Return the surface of a blackbox model from which to read its intervals.

    The surfaces of a search lie as near as what they leave open: from them intervals were four times too wide.
    """
    num_requests = sum(trace.num_used for trace in objective.traces)
    return sample_surface(
        objective,
        theta,
        reach=reach_around(objective, theta, relative=FLAT_REACH),
        seed=seed,
        points_per_coefficient=FLAT_POINTS_OF_MANY if num_requests >= MANY_REQUESTS else FLAT_POINTS,
    )


def _information(
    objective: FitObjective, theta: Floats, surface: Surface
) -> tuple[Floats, list[Floats], float]:
    """Return the curvature [p, p], requests' scores by trace [n, p], the variance of a unit of weight."""
    p = len(theta)
    curvature, noisy = np.zeros((p, p)), np.zeros((p, p))
    scores, squares, total = [], 0.0, 0.0
    offset = (theta - surface.centre) / objective.scale
    for t, weight in enumerate(objective.weights()):
        slopes = np.nan_to_num(surface.slopes[t])
        residual = surface.means[t] + np.tensordot(offset, slopes, axes=1)
        importance = np.where(np.isfinite(residual), weight * robust_weight(np.nan_to_num(residual)), 0.0)
        pull = importance * np.nan_to_num(residual)
        first, second = (np.nan_to_num(half[t]).reshape(p, -1) for half in surface.halves)
        curvature += (first * importance.ravel()) @ second.T
        noisy += (slopes.reshape(p, -1) * importance.ravel()) @ slopes.reshape(p, -1).T
        scores.append(np.einsum("mn,pmn->np", pull, slopes)[objective.traces[t].used()])
        squares += float(np.sum(pull**2))
        total += float(np.sum(importance))
    return _between(curvature, noisy), scores, max(squares / max(total, 1e-12), 1e-9)


def _between(unbiased: Floats, noisy: Floats) -> Floats:
    """Return the unbiased curvature, in each direction at least a share of the noisy one, at most all of it.

    The product of two independent estimates has no noise squared in it, but may come out negative.
    """
    values, vectors = np.linalg.eigh(noisy)
    root = np.sqrt(np.maximum(values, 1e-12 * max(float(values[-1]), 1e-300)))
    whitened = (vectors.T @ ((unbiased + unbiased.T) / 2) @ vectors) / np.outer(root, root)
    share, directions = np.linalg.eigh(whitened)
    kept = (directions * np.clip(share, LEAST_SHARE, 1.0)) @ directions.T
    back = vectors * root
    return np.asarray(back @ kept @ back.T)


def _correlation(steps: Floats) -> Floats:
    """Return the correlation of the columns, 0 for a column that does not vary."""
    covariance = np.cov(steps, rowvar=False).reshape(steps.shape[1], -1)
    deviation = np.sqrt(np.diag(covariance))
    size = np.where(deviation > 0, deviation, 1.0)
    correlation = covariance / np.outer(size, size)
    np.fill_diagonal(correlation, 1.0)
    return np.asarray(np.clip(correlation, -1, 1))


def condition_number(curvature: Floats) -> float:
    """Return the condition number of the residuals' slopes, their columns brought to one length."""
    size = np.sqrt(np.diag(curvature))
    # A column without length is a coefficient without effect.
    if not (size > 0).all():
        return float("inf")
    values: Floats = np.linalg.eigvalsh(curvature / np.outer(size, size))
    return float(np.sqrt(values[-1] / values[0])) if values[0] > 0 else float("inf")


def coefficients_of(
    names: Sequence[str],
    theta: Floats,
    *,
    spread: Uncertainty,
    scale: Floats,
    priors: Mapping[str, Prior],
    level: float = LEVEL,
) -> list[Coefficient]:
    """Return the fitted coefficients with their intervals and whether the traces determine them."""
    low, high = np.quantile(spread.replicates, [(1 - level) / 2, (1 + level) / 2], axis=0)
    low, high = np.minimum(low, theta), np.maximum(high, theta)
    wider = np.array([WIDENED if _is_curved(name, names) else 1.0 for name in names])
    most = np.array([MOST[name] for name in names])
    low, high = (
        np.maximum(theta + wider * (low - theta), 0.0),
        np.minimum(theta + wider * (high - theta), most),
    )
    tolerance = np.maximum(RELATIVE_TOLERANCE * theta, SCALE_TOLERANCE * scale)
    is_led = (spread.prior_share > PRIOR_LED) & np.array([name in priors for name in names])
    seen = ((high - low) / 2 <= tolerance) & ~is_led

    def reason(j: int) -> str | None:
        if is_led[j]:
            return f"mostly its prior, {priors[names[j]].text()}: the traces say less"
        return None if seen[j] else why_unseen(names, j, correlation=spread.correlation)

    return [
        Coefficient(
            name=name,
            value=float(theta[j]),
            low=float(low[j]),
            high=float(high[j]),
            fitted=True,
            identifiable=bool(seen[j]),
            reason=reason(j),
            prior=priors.get(name),
            is_prior_led=bool(is_led[j]),
        )
        for j, name in enumerate(names)
    ]


def _is_curved(name: str, names: Sequence[str]) -> bool:
    """Return whether a coefficient's effect is far from a plane."""
    return name in CURVED or (name == "beta2" and "concavity" in names)


UNSEEN = {
    "alpha0": "too small to measure in these traces: the TTFT varies by more",
    "alpha1": "prompt lengths are too alike, or its cost is too small to measure in these traces",
    "alpha2": "only visible in the ITL, together with beta0",
    "alpha3": "too few requests decode at a time to measure what their outputs delay a first token by",
    "beta0": "no step is long enough to separate it from the cost of its tokens",
    "beta1": "prefill cost too small to measure in these traces: longer prompts or more requests would show it",
    "beta2": "too few requests decode together to measure the cost of one more",
    "beta3": "contexts are too short or too alike to measure the cost of reading them",
    "beta4": "prompts are too short or too alike to measure the cost of attention",
    "floor": "prompts are too long or too alike to separate the reading of the weights from beta0",
    "concavity": "too alike a number decodes together to tell how the cost of one more falls",
    "kappa": "loads are too alike to measure how much the GPU slows down",
    "u0": "loads are too alike to tell from which load on the GPU slows down",
    "tau_s": "the load hardly changes within a trace, so how fast the GPU slows down cannot be seen",
}
TOGETHER = {
    frozenset(
        {"alpha0", "beta0"}
    ): "only the sum alpha0 + beta0 is measured while queues and outputs are short",
    frozenset(
        {"alpha1", "beta1"}
    ): "alpha1 and beta1 both delay a request's own first token per prompt token; only "
    "prefills that delay other requests, too rare here, show beta1 alone",
    frozenset({"alpha0", "alpha1"}): "alpha0 and alpha1 cannot be separated",
    frozenset({"alpha0", "beta1"}): "alpha0 and beta1 cannot be separated",
    frozenset({"beta0", "beta1"}): "beta0 and beta1 cannot be separated",
    frozenset(
        {"beta2", "beta3"}
    ): "contexts are too alike to separate the cost of reading them from a decode token's",
    frozenset(
        {"beta1", "beta4"}
    ): "prompts are too alike to separate the cost of attention from a prefill token's",
    frozenset(
        {"beta0", "floor"}
    ): "only the sum beta0 + floor is measured: prompts are too alike, or delay too few others",
    frozenset(
        {"beta1", "kappa"}
    ): "loads are too alike to separate a prefill token's cost from the GPU's slowdown",
    frozenset({"kappa", "u0"}): "too few loads slow the GPU down to separate how much from where it begins",
    frozenset(
        {"beta2", "concavity"}
    ): "too alike a number decodes together to tell how the cost of one more falls",
    frozenset({"beta0", "beta2"}): "too alike a number decodes together to separate its cost from a step's",
}


def why_unseen(names: Sequence[str], index: int, *, correlation: Floats) -> str:
    """Return why a coefficient is not identifiable: its strongest partner, else its own lack of effect."""
    others = np.abs(correlation[index]).copy()
    others[index] = 0.0
    partner = int(np.argmax(others))
    name = names[index]
    if others[partner] < CONFOUNDED:
        return UNSEEN[name]
    pair = frozenset({name, names[partner]})
    told = TOGETHER.get(pair, f"{name} and {names[partner]} cannot be separated")
    return f"{told} (correlation with {names[partner]} {correlation[index, partner]:+.2f})"
