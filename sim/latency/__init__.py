"""Latency models: how long a step takes, as a function of what is in it."""

from sim.latency.batch import StepBatch
from sim.latency.blackbox import Blackbox
from sim.latency.extended import Extended
from sim.latency.model import LatencyModel
from sim.latency.paced import Paced
from sim.latency.peak import PeakTimes
from sim.latency.physics import Physics
from sim.latency.profiled import Profiled
from sim.latency.roofline import Roofline

__all__ = [
    "Blackbox",
    "Extended",
    "LatencyModel",
    "Paced",
    "PeakTimes",
    "Physics",
    "Profiled",
    "Roofline",
    "StepBatch",
]
