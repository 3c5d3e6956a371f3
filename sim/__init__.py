"""The simulator: requests in, outcomes out. Pure: no files, no wall clock in its results, no logging.

>>> from sim import Blackbox, EngineConfig, simulate          # doctest: +SKIP
>>> simulate(requests, EngineConfig(), Blackbox(beta0=6000, beta1=20, beta2=30))

``EngineConfig`` names vLLM's settings, ``Requests`` and ``Outcomes`` are columns, ``simulate`` runs to the end,
``Engine`` can be fed, paused and looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.config import EngineConfig, InvalidConfig
    from sim.latency import (
        Blackbox,
        Extended,
        LatencyModel,
        PeakTimes,
        Physics,
        Profiled,
        Roofline,
        StepBatch,
    )
    from sim.ready import compile_engine
    from sim.records.histograms import Histogram
    from sim.records.itl import InterTokenLatencies
    from sim.records.results import View
    from sim.records.steps import Step
    from sim.requests import Outcomes, Requests, Status
    from sim.resumable import Engine
    from sim.simulation import Simulation, Simulator, simulate

__all__ = [
    "Blackbox",
    "Engine",
    "EngineConfig",
    "Extended",
    "Histogram",
    "InterTokenLatencies",
    "InvalidConfig",
    "LatencyModel",
    "Outcomes",
    "PeakTimes",
    "Physics",
    "Profiled",
    "Requests",
    "Roofline",
    "Simulation",
    "Simulator",
    "Status",
    "Step",
    "StepBatch",
    "View",
    "compile_engine",
    "simulate",
]

_HOMES = {
    "Blackbox": "sim.latency",
    "Engine": "sim.resumable",
    "EngineConfig": "sim.config",
    "Extended": "sim.latency",
    "LatencyModel": "sim.latency",
    "PeakTimes": "sim.latency",
    "Physics": "sim.latency",
    "Profiled": "sim.latency",
    "Roofline": "sim.latency",
    "StepBatch": "sim.latency",
    "Histogram": "sim.records.histograms",
    "InterTokenLatencies": "sim.records.itl",
    "InvalidConfig": "sim.config",
    "Outcomes": "sim.requests",
    "Requests": "sim.requests",
    "Simulation": "sim.simulation",
    "Simulator": "sim.simulation",
    "Status": "sim.requests",
    "Step": "sim.records.steps",
    "View": "sim.records.results",
    "compile_engine": "sim.ready",
    "simulate": "sim.simulation",
}


def __getattr__(name: str) -> object:
    """Import numba only when something that needs it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'sim' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    return value
