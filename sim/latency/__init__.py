"""Latency models: how long a step takes, as a function of what is in it."""

from sim.latency.blackbox import Blackbox
from sim.latency.extended import Extended
from sim.latency.profiled import Profiled

__all__ = ["Blackbox", "Extended", "Profiled"]
