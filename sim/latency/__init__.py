"""Latency models: how long a step takes, as a function of what is in it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.latency.batch import StepBatch
    from sim.latency.blackbox import Blackbox
    from sim.latency.by_name import LATENCY_CLASSES
    from sim.latency.contract import check_own_model
    from sim.latency.extended import Extended, check_tiles
    from sim.latency.latency_model import ALPHAS, LARGEST_US, CoefficientFacts, Fitting, LatencyModel
    from sim.latency.paced import Paced, at_pace
    from sim.latency.peak import PeakTimes
    from sim.latency.physics import Physics
    from sim.latency.profiled import COLLECTIVE, OPTIONAL, TABLES, VIDURS, Floats, Profiled, axis_knots
    from sim.latency.roofline import Analytic, Roofline
    from sim.latency.throttling import throttled_us

__all__ = [
    "ALPHAS",
    "COLLECTIVE",
    "LARGEST_US",
    "LATENCY_CLASSES",
    "OPTIONAL",
    "TABLES",
    "VIDURS",
    "Analytic",
    "Blackbox",
    "CoefficientFacts",
    "Extended",
    "Fitting",
    "Floats",
    "LatencyModel",
    "Paced",
    "PeakTimes",
    "Physics",
    "Profiled",
    "Roofline",
    "StepBatch",
    "at_pace",
    "axis_knots",
    "check_own_model",
    "check_tiles",
    "throttled_us",
]

_HOMES = {
    "ALPHAS": "sim.latency.latency_model",
    "Analytic": "sim.latency.roofline",
    "Blackbox": "sim.latency.blackbox",
    "COLLECTIVE": "sim.latency.profiled",
    "CoefficientFacts": "sim.latency.latency_model",
    "Extended": "sim.latency.extended",
    "Fitting": "sim.latency.latency_model",
    "Floats": "sim.latency.profiled",
    "LARGEST_US": "sim.latency.latency_model",
    "LATENCY_CLASSES": "sim.latency.by_name",
    "LatencyModel": "sim.latency.latency_model",
    "Paced": "sim.latency.paced",
    "OPTIONAL": "sim.latency.profiled",
    "PeakTimes": "sim.latency.peak",
    "Physics": "sim.latency.physics",
    "Profiled": "sim.latency.profiled",
    "Roofline": "sim.latency.roofline",
    "StepBatch": "sim.latency.batch",
    "TABLES": "sim.latency.profiled",
    "VIDURS": "sim.latency.profiled",
    "at_pace": "sim.latency.paced",
    "axis_knots": "sim.latency.profiled",
    "check_own_model": "sim.latency.contract",
    "check_tiles": "sim.latency.extended",
    "throttled_us": "sim.latency.throttling",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sim.latency' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
