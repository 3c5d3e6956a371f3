"""Fleets by formulas: how many requests a GPU holds, how long they wait, how many GPUs that takes, and their power.

Minutes of arithmetic in place of hours of simulation. Times are in seconds here, as rates are per second; nothing of
this steps an engine. The formulas, their sources and where they break: docs/explanation/fleet-models.md.
"""

from __future__ import annotations

from sim.fleet.availability import availability, provisioned, provisioned_for, share_enough
from sim.fleet.erlang import Wait, erlang_b, erlang_c, p99_wait_s
from sim.fleet.profile import GpuProfile
from sim.fleet.workload import Lengths

__all__ = [
    "GpuProfile",
    "Lengths",
    "Wait",
    "availability",
    "erlang_b",
    "erlang_c",
    "p99_wait_s",
    "provisioned",
    "provisioned_for",
    "share_enough",
]
