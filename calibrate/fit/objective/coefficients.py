"""The coefficients that a fit finds: their names by model, their units, and how finely they are rounded."""

from __future__ import annotations

from sim import Extended, LatencyModel
from sim.latency import LATENCY_CLASSES

COEFFICIENTS = ("alpha0", "alpha1", "alpha2", "alpha3", "beta0", "beta1", "beta2")
FITTED = ("alpha0", "alpha1", "alpha3", "beta0", "beta1", "beta2")
GUESS: dict[str, float] = {"alpha0": 1000, "alpha1": 1, "beta0": 5000, "beta1": 20, "beta2": 100}
"""µs, of no real server: the start of a fit without any other start."""
EXTENDED_FITTED = Extended.fit_terms
"""The further coefficients that a fit of ``latency.model: extended`` varies."""
_SAID = {name: each for model in LATENCY_CLASSES.values() for name, each in model.coefficients().items()}
UNITS = {name: each.unit for name, each in _SAID.items()}
MOST = {name: each.most for name, each in _SAID.items()}
"""The largest value of a coefficient that a fit tries."""


def decimals_of(name: str) -> int:
    """Return to how many decimals a coefficient (µs) is rounded: blackbox's to 10⁻⁶, the tiny ones finer."""
    return 12 if name in ("beta3", "beta4") else 6


def coefficients_in(latency: LatencyModel) -> tuple[str, ...]:
    """Return the names of the coefficients of a freely fitted model that a report shows."""
    return COEFFICIENTS + ((*latency.fit_terms, "sigma") if latency.fit_terms else ())
