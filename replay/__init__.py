"""Replay: a trace and a configuration in, a simulated trace out; and the same engine answering HTTP.

The Python API of this room (everything is imported when first used):

- ``run(trace, config)`` simulates the requests of a trace, for one server and for a cluster, and returns a ``Run``: its
  summary, verdict, latencies, pace band and more, worked out when first asked for. ``RunSettings`` say how to simulate.
- ``find_capacity(workload, config, slo)`` is the highest rate within latency limits, ``find_sessions`` the most
  sessions at once, ``tune(workload, path, slo)`` the engine flags that serve the highest rate, ``sweep(grid)`` the
  table of many runs, ``find_front`` its Pareto front. ``answer.document()`` is what the command's ``--json`` prints.
- ``fleet_demand(workload, slo, profiles)`` is what a fleet is sized for, and ``FleetCheck`` how it is simulated;
  ``size_fleet``, ``compare_fleets``, ``split_fleet``, ``disaggregate_fleet``, ``compare_routers``, ``shed_power`` and
  ``reserve_fleet`` are the questions of ``vtwin fleet`` about it. ``plan_fleet`` is the first of them in one call,
  ``size_pools`` takes the pools of a file.
- ``model_card`` and ``compare_gpus`` are ``vtwin model``, ``find_profiles``, ``read_profile`` and ``check_profile``
  ``vtwin profiles``, ``start_twin`` is ``vtwin config from-serve``.
- ``run_rollouts(workload, config, settings)`` is how long batches of reinforcement learning take, and what would make
  them shorter.
- ``load_config(path)`` reads TWIN.yaml into a ``TwinConfig``, ``dump_config(config)`` is its text again.
- ``simulate_trace(trace, config)`` simulates the requests of a trace; ``summarize(simulation, trace)`` is the
  part of ``vtwin run --json`` about all requests; ``Run.document()`` is the whole.
- ``requests_from_trace(trace, block_size=16)`` is the trace as the columns that ``sim.simulate`` takes;
  ``pacing_of(trace)`` says whether answers set its pace, ``paced_requests(trace, pacing, block_size=16)`` applies it.
- ``lookup_defaults(model, gpu, tp=1)`` finds coefficients on record, ``write_defaults_entry(path, entry)``
  puts them there.
- ``tell_when_compiling()`` prints a line on stderr when the first call that simulates compiles the engine.
- ``serving(config)`` is an OpenAI-compatible server around the engine, as an async context manager; ``run_server``
serves until SIGINT or SIGTERM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.capacity.question import find_capacity, find_sessions
    from replay.cluster.simulate import simulate_trace
    from replay.config.question import StartedTwin, start_twin
    from replay.console.ready import tell_when_compiling
    from replay.fleet.answers import FleetAnswer, SizedFleet
    from replay.fleet.demand import FleetCheck, FleetDemand, fleet_demand
    from replay.fleet.other_questions import FleetProfile, fleet_profile, size_pools
    from replay.fleet.question import (
        HandoffLinks,
        compare_fleets,
        compare_routers,
        disaggregate_fleet,
        plan_fleet,
        reserve_fleet,
        shed_power,
        size_fleet,
        split_fleet,
    )
    from replay.gpus.model_card import ModelCard, model_card
    from replay.gpus.options import GpuCompareOptions, ModelInfoOptions
    from replay.gpus.question import ComparedGpus, compare_gpus
    from replay.profiles.fitted_profile import read_profile
    from replay.profiles.question import CheckedProfile, FoundProfiles, check_profile, find_profiles
    from replay.rollouts.rollouts import Rollouts, RolloutSettings, run_rollouts
    from replay.serve.request_limits import RequestLimits
    from replay.serve.server import run_server, serving
    from replay.simulation.pace_band import paced
    from replay.simulation.run_plan import RunSettings
    from replay.simulation.run_verdict import judge_trace
    from replay.simulation.simulated_run import Run, run
    from replay.sweeps.question import SweepFront, find_front, sweep
    from replay.trace.pacing import Pacing, paced_requests, pacing_of
    from replay.trace.request_columns import requests_from_trace
    from replay.trace.simulation_summary import summarize
    from replay.trace.trace_notes import trace_notes
    from replay.tuning.question import tune
    from replay.twin.config_read import load_config
    from replay.twin.config_write import dump_config
    from replay.twin.defaults import DefaultsEntry, Provenance, read_defaults
    from replay.twin.defaults_write import write_defaults_entry
    from replay.twin.own.own_code import allowing_code
    from replay.twin.recorded_coefficients import lookup_defaults
    from replay.twin.twin_config import TwinConfig, check_fits
    from replay.verdict.judged import Judged

__all__ = [
    "CheckedProfile",
    "ComparedGpus",
    "DefaultsEntry",
    "FleetAnswer",
    "FleetCheck",
    "FleetDemand",
    "FleetProfile",
    "FoundProfiles",
    "GpuCompareOptions",
    "HandoffLinks",
    "Judged",
    "ModelCard",
    "ModelInfoOptions",
    "Pacing",
    "Provenance",
    "RequestLimits",
    "RolloutSettings",
    "Rollouts",
    "Run",
    "RunSettings",
    "SizedFleet",
    "StartedTwin",
    "SweepFront",
    "TwinConfig",
    "allowing_code",
    "check_fits",
    "check_profile",
    "compare_fleets",
    "compare_gpus",
    "compare_routers",
    "disaggregate_fleet",
    "dump_config",
    "find_capacity",
    "find_front",
    "find_profiles",
    "find_sessions",
    "fleet_demand",
    "fleet_profile",
    "judge_trace",
    "load_config",
    "lookup_defaults",
    "model_card",
    "paced",
    "paced_requests",
    "pacing_of",
    "plan_fleet",
    "read_defaults",
    "read_profile",
    "requests_from_trace",
    "reserve_fleet",
    "run",
    "run_rollouts",
    "run_server",
    "serving",
    "shed_power",
    "simulate_trace",
    "size_fleet",
    "size_pools",
    "split_fleet",
    "start_twin",
    "summarize",
    "sweep",
    "tell_when_compiling",
    "trace_notes",
    "tune",
    "write_defaults_entry",
]

_HOMES = {
    "FleetAnswer": "replay.fleet.answers",
    "FleetProfile": "replay.fleet.other_questions",
    "fleet_profile": "replay.fleet.other_questions",
    "size_pools": "replay.fleet.other_questions",
    "fleet_demand": "replay.fleet.demand",
    "FleetCheck": "replay.fleet.demand",
    "FleetDemand": "replay.fleet.demand",
    "reserve_fleet": "replay.fleet.question",
    "shed_power": "replay.fleet.question",
    "compare_routers": "replay.fleet.question",
    "HandoffLinks": "replay.fleet.question",
    "disaggregate_fleet": "replay.fleet.question",
    "split_fleet": "replay.fleet.question",
    "compare_fleets": "replay.fleet.question",
    "size_fleet": "replay.fleet.question",
    "GpuCompareOptions": "replay.gpus.options",
    "ModelInfoOptions": "replay.gpus.options",
    "compare_gpus": "replay.gpus.question",
    "ComparedGpus": "replay.gpus.question",
    "model_card": "replay.gpus.model_card",
    "ModelCard": "replay.gpus.model_card",
    "find_front": "replay.sweeps.question",
    "SweepFront": "replay.sweeps.question",
    "StartedTwin": "replay.config.question",
    "start_twin": "replay.config.question",
    "read_profile": "replay.profiles.fitted_profile",
    "check_profile": "replay.profiles.question",
    "find_profiles": "replay.profiles.question",
    "CheckedProfile": "replay.profiles.question",
    "FoundProfiles": "replay.profiles.question",
    "DefaultsEntry": "replay.twin.defaults",
    "SizedFleet": "replay.fleet.answers",
    "Judged": "replay.verdict.judged",
    "Pacing": "replay.trace.pacing",
    "Provenance": "replay.twin.defaults",
    "RequestLimits": "replay.serve.request_limits",
    "RolloutSettings": "replay.rollouts.rollouts",
    "Rollouts": "replay.rollouts.rollouts",
    "Run": "replay.simulation.simulated_run",
    "RunSettings": "replay.simulation.run_plan",
    "TwinConfig": "replay.twin.twin_config",
    "allowing_code": "replay.twin.own.own_code",
    "check_fits": "replay.twin.twin_config",
    "dump_config": "replay.twin.config_write",
    "find_capacity": "replay.capacity.question",
    "find_sessions": "replay.capacity.question",
    "judge_trace": "replay.simulation.run_verdict",
    "load_config": "replay.twin.config_read",
    "lookup_defaults": "replay.twin.recorded_coefficients",
    "paced": "replay.simulation.pace_band",
    "paced_requests": "replay.trace.pacing",
    "pacing_of": "replay.trace.pacing",
    "plan_fleet": "replay.fleet.question",
    "read_defaults": "replay.twin.defaults",
    "requests_from_trace": "replay.trace.request_columns",
    "run": "replay.simulation.simulated_run",
    "run_rollouts": "replay.rollouts.rollouts",
    "run_server": "replay.serve.server",
    "serving": "replay.serve.server",
    "simulate_trace": "replay.cluster.simulate",
    "summarize": "replay.trace.simulation_summary",
    "sweep": "replay.sweeps.question",
    "trace_notes": "replay.trace.trace_notes",
    "tell_when_compiling": "replay.console.ready",
    "tune": "replay.tuning.question",
    "write_defaults_entry": "replay.twin.defaults_write",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'replay' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what this room offers, for whoever looks around in a shell."""
    return sorted(__all__)
