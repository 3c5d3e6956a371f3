"""The latency models by the names that TWIN.yaml gives them: a row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sim.latency.blackbox import Blackbox
from sim.latency.extended import Extended
from sim.latency.latency_model import LatencyModel
from sim.latency.physics import Physics
from sim.latency.profiled import Profiled
from sim.latency.roofline import Roofline

LATENCY_CLASSES: Final[Mapping[str, type[LatencyModel]]] = {
    "blackbox": Blackbox,
    "extended": Extended,
    "physics": Physics,
    "roofline": Roofline,
    "profiled": Profiled,
}
