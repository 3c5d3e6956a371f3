"""How long computing takes on a GPU whose power limit lowers its clock meanwhile: said here alone, compiled too."""

from __future__ import annotations

import math


def throttled_us(compute_us: float, duty: float, kappa: float, u0: float, tau_us: float) -> float:
    """Return how long ``compute_us`` of computing at full clock takes, µs, float64.

    ``duty``, u, is the share of recent time spent computing, an exponential average over ``tau_us``. It rises while
    the step computes, u(t) = 1 - (1 - u)·exp(-t / tau), and the clock is lower by 1 + kappa·max(0, u - u0). So the time
    follows from ∫ dt / (1 + kappa·max(0, u(t) - u0)) = compute_us, which has a closed form on either side of u0.
    With a long ``tau_us`` it is compute_us·(1 + kappa·max(0, u - u0)).
    """
    if kappa <= 0.0 or compute_us <= 0.0 or u0 >= 1.0 or tau_us <= 0.0:
        return compute_us
    at_full_clock = 0.0
    if duty < u0:
        at_full_clock = tau_us * math.log((1.0 - duty) / (1.0 - u0))
        if compute_us <= at_full_clock:
            return compute_us
        duty = u0
    most = 1.0 + kappa * (1.0 - u0)
    missing = kappa * (1.0 - duty)
    exponent = most * (compute_us - at_full_clock) / tau_us
    # log((missing + (most - missing)·e^x) / most), without the overflow of e^x.
    slowed = tau_us * (exponent + math.log((most - missing + missing * math.exp(-exponent)) / most))
    return at_full_clock + slowed
