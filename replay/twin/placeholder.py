"""The step times of a new TWIN.yaml before a measurement: placeholders, labelled so in the file."""

from __future__ import annotations

from sim import Blackbox, LatencyModel

PLACEHOLDER = {"alpha0": 1000, "alpha1": 1, "alpha2": 0, "beta0": 5000, "beta1": 20, "beta2": 100}
"""Blackbox's coefficients, µs."""


def placeholder_notes(latency: LatencyModel) -> tuple[str, ...]:
    """Return the warning for a run with exactly these coefficients."""
    if type(latency) is not Blackbox:
        return ()
    if any(getattr(latency, name) != value for name, value in PLACEHOLDER.items()):
        return ()
    return (
        "latency: the coefficients are the placeholders of `vtwin config from-serve`, not measured: these times are no "
        "server's. Fit them with `vtwin calibrate --fit`, or name a model and a GPU",
    )
