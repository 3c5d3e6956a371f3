"""The initial guesses at the extended model's coefficients, from blackbox's.

Blackbox gives the duration of a step without prefill and the additional cost of a prompt of usual length. Any split of
the first into overhead and reading weights, with a compute cost that matches the second, explains the traces about
equally well; the starts are a grid of such splits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from calibrate.fit.initial_guess import decoding_together
from calibrate.fit.objective.fit_trace import FitTrace
from calibrate.fit.objective.objective import FitObjective
from calibrate.fit.objective.priors import Prior
from sim import Extended
from traces.statistics.bootstrap import Floats

FLOOR_SHARES = (0.0, 0.5, 0.85)
"""Shares of a quiet step's time that are reading weights."""
MOST_DUTY = 0.95


def blackbox_within(objective: FitObjective) -> FitObjective:
    """Return the objective of the blackbox model within an extended one: every further term 0, no prior."""
    base = objective.base.with_tiles(()).with_terms(())
    names = [name for name in objective.names if name not in base.fit_terms]
    return replace(objective.subset(names), base=base, priors={})


def extended_starts(objective: FitObjective, blackbox: Mapping[str, float]) -> list[Floats]:
    """Return starts of an extended objective that agree with the ``blackbox`` coefficients (by name).

    They agree at steps without prefill, and at a prompt of usual length.
    """
    kappas = _kappas(objective.priors) if "kappa" in objective.names else (0.0,)
    shares = FLOOR_SHARES if "floor" in objective.names else (0.0,)
    return [
        extended_start(objective, blackbox, floor_share=share, kappa=kappa)
        for share in shares
        for kappa in kappas
    ]


def extended_start(
    objective: FitObjective, blackbox: Mapping[str, float], *, floor_share: float, kappa: float
) -> Floats:
    """Return the extended coefficients that agree with blackbox at a quiet step and at a usual prompt."""
    prompt, context = _usual_prompt(objective.traces), _usual_context(objective.traces)
    together = max(
        float(np.nanmean([np.nanmean(decoding_together(trace)) for trace in objective.traces])), 1.0
    )
    floor = floor_share * blackbox["beta0"]
    concavity = _expected(objective.priors, "concavity", 0.0)
    entry = min(_expected(objective.priors, "beta3", 0.0), 0.7 * blackbox["beta2"] / context)
    pair = min(_expected(objective.priors, "beta4", 0.0), 0.5 * blackbox["beta1"] / prompt)
    u0 = _expected(objective.priors, "u0", 0.0)
    duty = min(_duty(objective.traces, blackbox["beta1"]), MOST_DUTY)
    slowdown = 1 + kappa * max(duty - u0, 0.0)
    compute = np.sqrt((floor + blackbox["beta1"] * prompt) ** 2 - floor**2)
    compute = max(compute / slowdown - pair * prompt**2 / 2, 0.3 * blackbox["beta1"] * prompt)
    beta1 = compute / (prompt + (together if floor > 0 else 0.0))
    values = {
        **blackbox,
        "beta0": blackbox["beta0"] - floor,
        "beta1": beta1,
        "beta2": (blackbox["beta2"] - entry * context) * together**concavity,
        "beta3": entry,
        "beta4": pair,
        "floor": floor,
        "concavity": concavity,
        "kappa": kappa,
        "u0": u0,
        "tau_s": _expected(objective.priors, "tau_s", Extended().tau_s),
    }
    least = 0.01 * objective.scale
    return np.asarray(np.maximum(np.array([values[name] for name in objective.names]), least))


def further_starts(objective: FitObjective, names: Sequence[str], theta: Floats) -> list[Floats]:
    """Return starts at the coefficients ``names`` of a simpler model, each further one where it may be.

    Every one is at least a hundredth of its scale: a search cannot scale up from 0.
    """
    known = dict(zip(names, theta.tolist(), strict=True))
    kappas = _kappas(objective.priors) if "kappa" in objective.names else (0.0,)
    starts = []
    for kappa in kappas:
        further = {"kappa": kappa, **known}
        values = [
            further.get(name, _expected(objective.priors, name, objective.configured(name)))
            for name in objective.names
        ]
        starts.append(np.asarray(np.maximum(np.array(values), 0.01 * objective.scale)))
    return starts


def _kappas(priors: Mapping[str, Prior]) -> tuple[float, ...]:
    """Return the slowdowns to start from: the expected one alone, else none and a plausible one.

    A search cannot leave 0: there the threshold and the time have no effect.
    """
    prior = priors.get("kappa")
    if prior is None or prior.centre > 0:
        return (0.0 if prior is None else prior.centre,)
    return (prior.width, 0.0)


def _expected(priors: Mapping[str, Prior], name: str, otherwise: float) -> float:
    return priors[name].centre if name in priors else otherwise


def _usual_prompt(traces: Sequence[FitTrace]) -> float:
    """Return the prompt length of which half of all prefill tokens are in longer ones."""
    lengths = np.sort(np.concatenate([trace.observed_timeline.prefill_tokens for trace in traces]))
    lengths = lengths[np.isfinite(lengths)]
    total = np.cumsum(lengths)
    return float(lengths[np.searchsorted(total, total[-1] / 2)])


def _usual_context(traces: Sequence[FitTrace]) -> float:
    """Return how many tokens a decode reads, on average over all decodes."""
    prompt = np.concatenate([trace.requests.prompt_tokens for trace in traces]).astype(np.float64)
    output = np.concatenate([trace.requests.output_tokens for trace in traces]).astype(np.float64)
    return float((output * (prompt + output / 2)).sum() / max(output.sum(), 1.0))


def _duty(traces: Sequence[FitTrace], beta1: float) -> float:
    """Return the share of time that prefill takes, on average over the traces."""
    shares = []
    for trace in traces:
        timeline = trace.observed_timeline
        span = float(np.nanmax(timeline.last) - np.nanmin(timeline.joined))
        shares.append(beta1 * float(np.nansum(timeline.prefill_tokens)) / max(span, 1.0))
    return float(np.mean(shares))
