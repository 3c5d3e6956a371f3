"""The step times that stand in a started TWIN.yaml until somebody measures: no server's, and told as such."""

from __future__ import annotations

from sim import Blackbox, LatencyModel

PLACEHOLDER = {"alpha0": 1000, "alpha1": 1, "alpha2": 0, "beta0": 5000, "beta1": 20, "beta2": 100}
"""Blackbox's coefficients, µs."""


def placeholder_notes(latency: LatencyModel) -> tuple[str, ...]:
    """Return the line that a run with these very coefficients needs."""
    if type(latency) is not Blackbox:
        return ()
    if any(getattr(latency, name) != value for name, value in PLACEHOLDER.items()):
        return ()
    return (
        "latency: the coefficients are the placeholders of `vtwin config from-serve`, not measured: times here are no "
        "server's. Fit them with `vtwin calibrate --fit`, or name a model and a GPU",
    )
